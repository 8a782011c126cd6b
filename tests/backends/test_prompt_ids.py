from __future__ import annotations

import pytest
from tests.backends.toy import TOKENS, toy_tokenizer

from espalier.backends.prompt_ids import PromptEncoder
from espalier.errors import PromptError
from espalier.types import Prompt, TextSegment, TokenSegment


def names(prompt: Prompt, *, add_bos: bool = False) -> list[str]:
    ids = PromptEncoder(toy_tokenizer(add_bos)).encode(prompt)
    assert ids.all == ids.head + ids.tail
    return [TOKENS[token_id] for token_id in ids.all]


def generated(*tokens: str) -> TokenSegment:
    ids = tuple(TOKENS.index(token) for token in tokens)
    return TokenSegment(ids, toy_tokenizer().decode(ids))


def test_neighbouring_constants_are_tokenised_together() -> None:
    assert names((TextSegment("a"), TextSegment("b"), TextSegment("c"))) == ["abc"]
    assert names((TextSegment("a", allow_special=False), TextSegment("b"))) == ["ab"]


def test_generated_tokens_stay_as_they_were_and_nothing_crosses_into_them() -> None:
    prompt = (TextSegment("a"), generated("b", "c"), TextSegment("d"), TextSegment("a"))
    assert names(prompt) == ["a", "b", "c", "d", "a"]
    assert names((generated("a", "b"), generated("c"), TextSegment("d"))) == ["a", "b", "c", "d"]


def test_only_text_that_may_spell_control_tokens_does() -> None:
    assert names((TextSegment("a<|x|>b"),)) == ["a", "<|x|>", "b"]
    assert "<|x|>" not in names((TextSegment("a<|x|>b", allow_special=False),))
    assert "<|x|>" not in names((TextSegment("<|"), TextSegment("x|>", allow_special=False)))
    assert names((TextSegment("<|"), TextSegment("x|>"))) == ["<|x|>"]


def test_a_bos_comes_at_the_very_start_only() -> None:
    prompt = (TextSegment("a"), generated("b"), TextSegment("c"))
    assert names(prompt, add_bos=True) == ["<s>", "a", "b", "c"]
    assert names((generated("b"), TextSegment("c")), add_bos=True) == ["<s>", "b", "c"]
    assert names((TextSegment("<s>a"),), add_bos=True) == ["<s>", "a"]


def test_the_tail_is_the_last_run_of_constants() -> None:
    encoder = PromptEncoder(toy_tokenizer())
    ids = encoder.encode((TextSegment("a"), generated("b"), TextSegment("c"), TextSegment("d")))
    assert [TOKENS[token_id] for token_id in ids.head] == ["a", "b"]
    assert [TOKENS[token_id] for token_id in ids.tail] == ["cd"]
    assert ids.tail_pieces == (("c", True), ("d", True))
    assert encoder.encode((TextSegment("a"), generated("b"))).tail == ()


def test_an_empty_prompt_has_no_tokens() -> None:
    assert names(()) == []
    assert names((), add_bos=True) == []


def test_lone_surrogates_raise() -> None:
    with pytest.raises(PromptError, match="surrogate"):
        names((TextSegment("a\ud800"),))


def test_the_cache_forgets_the_oldest_and_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("espalier.backends.prompt_ids._MAX_CACHED_CHARACTERS", 400)
    encoder = PromptEncoder(toy_tokenizer())
    for _ in range(3):
        for count in range(1, 12):
            assert len(encoder.encode((TextSegment("d!" * count),)).all) == 2 * count
    assert len(encoder._cache) <= 6


def test_text_that_cannot_fit_is_refused_before_it_is_tokenised() -> None:
    tokenizer = toy_tokenizer()
    longest = max(len(tokenizer.token_bytes(token_id)) for token_id in range(tokenizer.vocab_size))
    encoder = PromptEncoder(tokenizer, 8)
    assert encoder.encode((TextSegment("a" * 8 * longest),)).all
    with pytest.raises(PromptError, match=f"has {8 * longest + 1} characters; the context holds 8"):
        encoder.encode((TextSegment("a" * (8 * longest + 1)),))
