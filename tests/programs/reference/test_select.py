"""Lines T-20 to T-25 of the compatibility target: `select`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from espalier.backends.scripted import ScriptedBackend
from espalier.errors import GenerationError, UserInputError
from espalier.lang.api import assistant, select, user
from espalier.lang.calls import softmax_sample
from espalier.lang.choices import (
    ChoicesDecision,
    ChoicesMethod,
    greedy_token_selection,
    token_length_normalized,
    unconditional_likelihood_normalized,
)
from espalier.lang.function import function
from espalier.lang.state import ProgramState
from espalier.runtime import Engine


@pytest.fixture(scope="module")
def engine(smollm2_path: Path) -> Iterator[Engine]:
    with Engine(smollm2_path, max_total_tokens=8192) as engine:
        yield engine


def entries(*logprobs: float | None) -> list[tuple[float | None, int, None]]:
    return [(logprob, index, None) for index, logprob in enumerate(logprobs)]


# The reference's fixed vectors: three words of 1, 2 and 8 tokens.
WORDS = ["organ", "organism", "antidisestablishmentarianism"]
REFERENCE: dict[str, Any] = {
    "choices": WORDS,
    "normalized_prompt_logprobs": [-0.1, -0.2, -0.05],
    "input_token_logprobs": [
        entries(-0.1),
        entries(-0.1, -0.3),
        entries(-0.4, -0.25, -0.1, -0.01, -0.01, -0.01, -0.01, -0.01),
    ],
    "output_token_logprobs": [entries(-0.1)] * 3,
    "unconditional_token_logprobs": [
        entries(None),
        entries(None, -1.4),
        entries(None, -0.25, -0.1, -0.01, -0.01, -0.01, -0.01, -0.01),
    ],
}


def test_t21_token_length_normalized_decides_as_the_reference() -> None:
    assert token_length_normalized(**REFERENCE).decision == WORDS[2]


def test_t21_greedy_token_selection_decides_as_the_reference() -> None:
    decision = greedy_token_selection(**REFERENCE)
    assert decision.decision == "organ"
    assert decision.meta_info is not None
    matrix = decision.meta_info["greedy_logprob_matrix"]
    assert [len(row) for row in matrix] == [8, 8, 8]
    assert matrix[0] == [-0.1] * 8
    assert matrix[1] == pytest.approx([-0.1, -0.3] + [-0.2] * 6)


def test_t21_unconditional_likelihood_normalized_decides_as_the_reference() -> None:
    decision = unconditional_likelihood_normalized(**REFERENCE)
    assert decision.decision == "organism"
    assert decision.meta_info is not None
    scores = decision.meta_info["normalized_unconditional_prompt_logprobs"]
    assert scores == pytest.approx([-0.1, 0.5, -0.05], abs=0.01)


METHODS: list[ChoicesMethod] = [
    token_length_normalized,
    greedy_token_selection,
    unconditional_likelihood_normalized,
]


def decide(method: ChoicesMethod, *rows: Sequence[float]) -> str:
    means = [sum(row) / len(row) for row in rows]
    return method(
        choices=[str(index) for index in range(len(rows))],
        normalized_prompt_logprobs=means,
        input_token_logprobs=[entries(*row) for row in rows],
        output_token_logprobs=[[] for _ in rows],
        unconditional_token_logprobs=[entries(*[-1.0] * len(row)) for row in rows],
    ).decision


@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_t21_one_choice_ties_zeros_and_impossible_tokens_are_defined(
    method: ChoicesMethod,
) -> None:
    assert decide(method, [-3.0, -2.0]) == "0"
    assert decide(method, [-1.0, -1.0], [-1.0, -1.0]) == "0"
    assert decide(method, [-0.5, -0.5], [0.0, 0.0]) == "1"
    assert decide(method, [-math.inf, -0.1], [-5.0]) == "1"


def test_t21_logprobs_of_zero_count_in_the_mean() -> None:
    backend = ScriptedBackend("b")
    state = selecting(backend, ["a", "b"])
    assert state.get_meta_info("x")["normalized_prompt_logprobs"] == [-5.0, -0.1]


def test_unconditional_without_its_logprobs_raises() -> None:
    with pytest.raises(ValueError, match="unconditional_token_logprobs"):
        unconditional_likelihood_normalized(
            choices=["a"],
            normalized_prompt_logprobs=[-1.0],
            input_token_logprobs=[entries(-1.0)],
            output_token_logprobs=[[]],
        )


def selecting(backend: ScriptedBackend, choices: list[str], **options: Any) -> ProgramState:
    @function
    def program(s: ProgramState) -> None:
        s += "pick:" + select("x", choices, **options)

    return program.run(backend=backend)


@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_select_appends_the_choice_and_keeps_the_scores(method: ChoicesMethod) -> None:
    backend = ScriptedBackend("two words")
    state = selecting(backend, ["one", "two words"], choices_method=method)
    assert state["x"] == "two words"
    assert state.text() == "pick:two words"
    meta = state.get_meta_info("x")
    assert [len(row) for row in meta["input_token_logprobs"]] == [1, 2]
    assert meta["choices_method"] == repr(method)
    assert meta["prompt_tokens"] == 1


def test_t23_a_temperature_samples_from_the_scores_by_its_seed() -> None:
    backend = ScriptedBackend("a")
    drawn = [selecting(backend, ["a", "b"], temperature=5.0, seed=seed)["x"] for seed in range(200)]
    again = [selecting(backend, ["a", "b"], temperature=5.0, seed=seed)["x"] for seed in range(20)]
    assert again == drawn[:20]
    likely = 1 / (1 + math.exp((-5.0 + 0.1) / 5.0))
    assert abs(drawn.count("a") / 200 - likely) < 0.12


def test_t23_softmax_sampling_follows_its_distribution() -> None:
    counts = [0, 0, 0]
    for seed in range(6000):
        counts[softmax_sample([-1.0, -2.0, -math.inf], 0.5, seed)] += 1
    assert counts[2] == 0
    assert counts[0] / 6000 == pytest.approx(1 / (1 + math.exp(-2.0)), abs=0.02)
    assert softmax_sample([-math.inf, -math.inf], 1.0, 3) in (0, 1)


def test_t25_any_callable_with_the_keywords_is_a_method() -> None:
    seen: dict[str, Any] = {}

    def last(**given: Any) -> ChoicesDecision:
        seen.update(given)
        return ChoicesDecision(given["choices"][-1], {"mine": 1})

    state = selecting(ScriptedBackend("a"), ["a", "b"], choices_method=last)
    assert state["x"] == "b"
    assert state.get_meta_info("x")["mine"] == 1
    assert set(seen) == set(REFERENCE)
    assert seen["unconditional_token_logprobs"] is None


def test_t25_a_method_that_decides_for_no_choice_fails_the_select() -> None:
    state = selecting(
        ScriptedBackend("a"), ["a"], choices_method=lambda **_: ChoicesDecision("zzz")
    )
    with pytest.raises(GenerationError, match="'zzz', which is none of the choices"):
        _ = state["x"]


@pytest.mark.parametrize("choices", [None, [], "ab", ["a", "a"], ["a", 3], [""]])
def test_wrong_choices_raise_at_the_call(choices: Any) -> None:
    with pytest.raises(UserInputError, match="allowed"):
        select("x", choices)


@function
def picks(s: ProgramState, prompt: str, choices: list[str], method: ChoicesMethod) -> None:
    s += prompt
    s += select("x", choices, choices_method=method)


def picked(
    engine: Engine,
    prompt: str,
    choices: list[str],
    method: ChoicesMethod = token_length_normalized,
) -> ProgramState:
    return picks.run(prompt=prompt, choices=choices, method=method, backend=engine)


class BruteForce:
    """Probabilities from the whole next-token distribution of the model, place by place."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.known: dict[tuple[int, ...], list[float]] = {}
        tokenizer = engine.tokenizer
        ids = range(tokenizer.vocab_size)
        self.pieces = [b"" if tokenizer.is_control(i) else tokenizer.token_bytes(i) for i in ids]

    def next_logprobs(self, context: list[int]) -> list[float]:
        known = self.known.get(tuple(context))
        if known is not None:
            return known
        params = {"max_new_tokens": 1, "temperature": 0, "ignore_eos": True}
        answer = self.engine.generate(
            input_ids=context,
            sampling_params=params,
            return_logprob=True,
            top_logprobs_num=len(self.pieces),
        )
        (row,) = answer["meta_info"]["output_top_logprobs"]
        values = [-math.inf] * len(self.pieces)
        for value, token_id, _ in row:
            values[token_id] = value
        self.known[tuple(context)] = values
        return values

    def text_probability(self, context: list[int], data: bytes) -> float:
        """That the text goes on with these bytes, however they are cut into tokens."""
        if not data:
            return 1.0
        logprobs = self.next_logprobs(context)
        total = 0.0
        for token_id, piece in enumerate(self.pieces):
            if piece.startswith(data):
                total += math.exp(logprobs[token_id])
            elif piece and data.startswith(piece):
                rest = self.text_probability([*context, token_id], data[len(piece) :])
                total += math.exp(logprobs[token_id]) * rest
        return total

    def score(self, prompt: str, choice: str, others: list[str]) -> float:
        """log P(the choice | the text of the prompt), by the tokens of both together."""
        encode = self.engine.tokenizer.encode
        own, joined = encode(prompt), encode(prompt + choice)
        every = [own, *(encode(prompt + other) for other in others)]
        shared = 0
        while all(ids[: shared + 1] == own[: shared + 1] for ids in every) and shared < len(own):
            shared += 1
        together = sum(
            self.next_logprobs(joined[:index])[joined[index]]
            for index in range(shared, len(joined))
        )
        tail = b"".join(self.pieces[token_id] for token_id in own[shared:])
        return together - math.log(self.text_probability(own[:shared], tail))


@pytest.mark.parametrize(
    ("prompt", "choices"),
    [
        ("The capital of France is", [" Paris", " Lyon", " Rome"]),
        ("The capital of France is ", ["Paris", "Lyon"]),  # the prompt's last token is a space
        ("I like te", ["a", "nnis"]),  # the border lies inside a token
        ("It is un", ["likely", "like", "likely to rain"]),  # a choice begins another
        ("One, two,\n", [" three", "three", "\nthree"]),
        ("Caf\u00e9", ["s", " \U0001f600", "\u00e9"]),
    ],
)
def test_t20_scores_are_the_probabilities_of_exactly_the_choice(
    engine: Engine, prompt: str, choices: list[str]
) -> None:
    naive = BruteForce(engine)
    meta = picked(engine, prompt, choices).get_meta_info("x")
    scores = [sum(entry[0] for entry in row) for row in meta["input_token_logprobs"]]
    expected = [naive.score(prompt, choice, choices) for choice in choices]
    assert scores == pytest.approx(expected, abs=1e-3)
    means = [
        score / len(row) for score, row in zip(scores, meta["input_token_logprobs"], strict=True)
    ]
    assert meta["normalized_prompt_logprobs"] == pytest.approx(means)


@pytest.mark.parametrize("method", METHODS, ids=repr)
@pytest.mark.parametrize(
    ("prompt", "choices"),
    [
        ("", ["Once", "xqzt", "The end"]),
        ("", ["a"]),
        ("It is", [" so"]),
        ("The word is ", ["table", "qxzjw", "\u00e9\u00e9\u00e9\u00e9\u00e9"]),
    ],
    ids=["empty prompt", "empty prompt and one choice", "one choice", "equal lengths of text"],
)
def test_t21_every_prompt_and_every_choice_is_defined_on_the_model(
    engine: Engine, prompt: str, choices: list[str], method: ChoicesMethod
) -> None:
    state = picked(engine, prompt, choices, method)
    assert state["x"] in choices
    assert state.text() == prompt + state["x"]
    meta = state.get_meta_info("x")
    assert all(math.isfinite(score) for score in meta["normalized_prompt_logprobs"])
    if len(choices) > 2:
        assert len({len(row) for row in meta["input_token_logprobs"]}) > 1
    if method is token_length_normalized:
        scores = meta["normalized_prompt_logprobs"]
        assert state["x"] == choices[scores.index(max(scores))]


def test_t22_the_prompt_is_computed_once_and_so_is_what_choices_begin_with(
    engine: Engine,
) -> None:
    engine.flush_cache()
    prompt = "A long prompt about the weather and the sea. " * 8 + "It is"
    beginning = " one of the many long answers that begin alike, which is number"
    choices = [beginning + end for end in (" one", " two", " three", " four")]
    num_prompt = len(engine.tokenizer.encode(prompt))
    num_common = len(engine.tokenizer.encode(beginning))
    state = picked(engine, prompt, choices)
    usage = state.usage()
    assert usage.prompt_tokens == num_prompt + 4 * (num_common + 1)
    assert usage.cached_tokens == 3 * num_common
    assert usage.computed_tokens == num_prompt + num_common + 4
    again = picked(engine, prompt, choices)
    assert again.usage().cached_tokens >= num_prompt - 1 + 3 * num_common
    assert again["x"] == state["x"]
    assert again.get_meta_info("x")["cached_tokens"] == again.usage().cached_tokens
    assert again.usage().hit_rate > 0.8


def test_t23_a_temperature_samples_from_the_softmax_of_the_model_s_scores(engine: Engine) -> None:
    choices = [" cat", " dog", " cow"]

    @function
    def drawing(s: ProgramState, seed: int) -> None:
        s += "My favourite animal is the" + select("x", choices, temperature=2.0, seed=seed)

    states = drawing.run_batch([{"seed": seed} for seed in range(120)], backend=engine)
    scores = states[0].get_meta_info("x")["normalized_prompt_logprobs"]
    weights = [math.exp(score / 2.0) for score in scores]
    drawn = [state["x"] for state in states]
    for choice, weight in zip(choices, weights, strict=True):
        assert drawn.count(choice) / 120 == pytest.approx(weight / sum(weights), abs=0.15)
    assert [drawing.run(seed=seed, backend=engine)["x"] for seed in range(8)] == drawn[:8]


@pytest.mark.parametrize("method", METHODS, ids=repr)
def test_t24_a_choice_in_a_chat_is_scored_after_its_template_and_says_how(
    engine: Engine, method: ChoicesMethod
) -> None:
    @function
    def chatting(s: ProgramState) -> None:
        s += user("Is the sky blue? Answer yes or no.")
        s += assistant(select("x", ["Yes", "No", "Maybe"], choices_method=method))

    state = chatting.run(backend=engine)
    assert state.messages()[-1] == {"role": "assistant", "content": state["x"]}
    meta = state.get_meta_info("x")
    assert meta["choices_method"] == repr(method)
    assert (meta["completion_tokens"], meta["finish_reason"]) == (0, None)
    before = state.text()[: state.text().index("assistant\n") + len("assistant\n")]
    raw = picked(engine, before, ["Yes", "No", "Maybe"], method)
    scores = raw.get_meta_info("x")["normalized_prompt_logprobs"]
    assert meta["normalized_prompt_logprobs"] == pytest.approx(scores, abs=1e-4)
