"""Healing keeps the tokens of a growing text those that the tokenizer gives for it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.fakes import EOS_ID
from tests.engine.piece_tokenizer import CHARACTERS, PIECES, PieceTokenizer

from espalier.constrain.canonical import Canonicaliser, Extensions
from espalier.loaders.model import load_model
from espalier.tokenizer.tokenizer import Tokenizer

TOKENIZER = PieceTokenizer()
CANONICALISER = Canonicaliser(TOKENIZER)
TEXTS = st.text(CHARACTERS, max_size=12)
TEXT = (
    "Stately, plump Buck Mulligan came from the stairhead:  \n\n  bearing 1,234 bowls (of lather) "
    'on which a "mirror" & a razor lay crossed... {"name": "Zoë", "age":42,"tags":["a\\n","—"]} '
    "don't 'tis  we'll\tindent\n    four\r\n🦆🦆 naïve café 東京に行く ::= != /* x */ http://a.b/c?d=e"
)


@pytest.fixture(scope="module", params=["smollm2_path", "gemma3_path"])
def real(request: pytest.FixtureRequest) -> Tokenizer:
    path: Path = request.getfixturevalue(request.param)
    return load_model(path).tokenizer


def as_text(token_ids: list[int]) -> str:
    return "".join(PIECES[token_id] for token_id in token_ids)


@given(st.lists(st.sampled_from(range(len(PIECES))), max_size=14))
def test_healed_tokens_are_those_of_the_text_after_every_token(added: list[int]) -> None:
    token_ids: list[int] = []
    text = ""
    for token_id in added:
        token_ids.append(token_id)
        text += PIECES[token_id]
        healed = CANONICALISER.heal(token_ids)
        if healed is not None:
            token_ids[healed.num_kept :] = healed.token_ids
        assert token_ids == TOKENIZER.encode(text)


@settings(max_examples=300)
@given(TEXTS, st.text(CHARACTERS, min_size=1, max_size=10), st.sets(st.sampled_from(CHARACTERS)))
def test_forced_tokens_are_those_of_every_longer_text(
    known: str, forced: str, following: set[str]
) -> None:
    token_ids = TOKENIZER.encode(known)
    next_bytes = frozenset(ord(character) for character in following)
    extension = CANONICALISER.extend(token_ids, forced.encode(), lambda _: next_bytes)
    if not following:
        assert extension is not None
        assert token_ids[: extension.num_kept] + extension.token_ids == TOKENIZER.encode(
            known + forced
        )
    if extension is None:
        return
    extended = token_ids[: extension.num_kept] + extension.token_ids
    assert (known + forced).startswith(as_text(extended))
    assert len(as_text(extended)) > len(known)
    for character in following:
        longer = TOKENIZER.encode(known + forced + character)
        assert longer[: len(extended)] == extended


def test_a_token_that_later_text_would_change_is_left_open() -> None:
    extension = CANONICALISER.extend([], b"cda", lambda _: frozenset(b"be"))
    assert extension == (0, [PIECES.index("cd")])
    extension = CANONICALISER.extend([], b"cda", lambda _: frozenset(b"e"))
    assert extension == (0, [PIECES.index("cd"), PIECES.index("a")])


class CountingTokenizer(PieceTokenizer):
    """Counts the characters that it tokenises."""

    num_characters = 0

    def encode(self, text: str, *, at_start: bool = True) -> list[int]:
        self.num_characters += len(text)
        return super().encode(text, at_start=at_start)


def test_healing_reads_the_end_of_the_text_alone() -> None:
    tokenizer = CountingTokenizer()
    canonicaliser = Canonicaliser(tokenizer)
    counts = []
    token_ids: list[int] = []
    for _ in range(2):
        tokenizer.num_characters = 0
        for index in range(500):
            token_ids.append(PIECES.index("eabcd"[index % 5]))
            healed = canonicaliser.heal(token_ids)
            if healed is not None:
                token_ids[healed.num_kept :] = healed.token_ids
        counts.append(tokenizer.num_characters)
    assert token_ids == TOKENIZER.encode("eabcd" * 200)
    assert counts[1] <= counts[0] + 40


def test_forced_text_is_read_a_few_times_only_however_many_tokens_may_follow() -> None:
    tokenizer = CountingTokenizer()
    canonicaliser = Canonicaliser(tokenizer)
    text = "abcd" * 100
    extension = canonicaliser.extend([], text.encode(), lambda _: frozenset(CHARACTERS.encode()))
    assert extension is not None
    assert extension.token_ids == TOKENIZER.encode(text)[: len(extension.token_ids)]
    assert tokenizer.num_characters < 2 * len(text)


class NoControlTokenizer(PieceTokenizer):
    """One whose end of text is spelled by a text and is no control token."""

    def token_bytes(self, token_id: int) -> bytes:
        return b"de}" if token_id == EOS_ID else super().token_bytes(token_id)

    def is_control(self, token_id: int) -> bool:
        return False

    def encode(self, text: str, *, at_start: bool = True) -> list[int]:
        first, found, rest = text.partition("de}")
        ids = super().encode(first)
        return [*ids, EOS_ID, *self.encode(rest)] if found else ids


def test_text_that_spells_an_end_of_text_is_left_as_it_was_chosen() -> None:
    canonicaliser = Canonicaliser(NoControlTokenizer())
    token_ids = [PIECES.index("de"), PIECES.index("}")]
    assert canonicaliser.heal(token_ids) is None
    assert canonicaliser.extend([], b"abde}", lambda _: frozenset()) is None


def test_extensions_are_bounded_in_tokens() -> None:
    known = Extensions(max_entries=3, max_tokens=10)
    known.put("a", (0, [1] * 6))
    known.put("b", (0, [1] * 4))
    known.put("a", (0, [2] * 6))
    assert known.get("b") is not None
    known.put("c", (0, [1] * 3))
    assert known.get("a") is None
    assert known.get("b") is not None
    known.put("d", (0, []))
    known.put("e", (0, []))
    assert known.get("b") is not None
    assert known.get("c") is None


def test_real_tokens_are_healed_after_every_token(real: Tokenizer) -> None:
    canonicaliser = Canonicaliser(real)
    by_bytes: dict[bytes, int] = {}
    for token_id in range(real.vocab_size):
        if not real.is_control(token_id):
            by_bytes.setdefault(real.token_bytes(token_id), token_id)
    data = TEXT.encode()
    rng = random.Random(5)
    for _ in range(10):
        token_ids: list[int] = []
        position = 0
        while position < len(data):
            lengths = [
                length for length in range(1, 12) if data[position : position + length] in by_bytes
            ]
            length = lengths[-1] if rng.random() < 0.5 else rng.choice(lengths)
            token_ids.append(by_bytes[data[position : position + length]])
            position = min(len(data), position + length)
            healed = canonicaliser.heal(token_ids)
            if healed is not None:
                token_ids[healed.num_kept :] = healed.token_ids
            assert canonicaliser.text_bytes(token_ids) == data[:position]
        assert token_ids == real.encode(TEXT, at_start=False)


def test_real_forced_tokens_stay_whatever_comes_after_them(real: Tokenizer) -> None:
    canonicaliser = Canonicaliser(real)
    rng = random.Random(6)
    printable = [chr(code) for code in range(32, 127)] + ["\n", "é"]
    next_bytes = frozenset(character.encode()[0] for character in printable)
    for _ in range(300):
        first = rng.randrange(len(TEXT) - 40)
        known = TEXT[first : first + rng.randrange(12)]
        forced = TEXT[first + len(known) : first + len(known) + rng.randrange(1, 20)]
        token_ids = real.encode(known, at_start=False)
        extension = canonicaliser.extend(token_ids, forced.encode(), lambda _: next_bytes)
        if extension is None:
            continue
        extended = token_ids[: extension.num_kept] + extension.token_ids
        for character in rng.sample(printable, 12):
            longer = real.encode(known + forced + character, at_start=False)
            assert longer[: len(extended)] == extended, (known, forced, character)


def test_text_inside_a_character_waits_for_the_rest_of_it(real: Tokenizer) -> None:
    canonicaliser = Canonicaliser(real)
    duck = real.encode("🦆", at_start=False)
    if len(duck) > 1:
        assert canonicaliser.heal(duck[:1]) is None
    extension = canonicaliser.extend([], "é🦆".encode()[:4], lambda _: frozenset(b"\xa6"))
    if extension is not None:
        assert "é".encode().startswith(canonicaliser.text_bytes(extension.token_ids))
