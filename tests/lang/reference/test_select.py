from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest

from espalier.backends.scripted import ScriptedBackend
from espalier.errors import GenerationError, UserInputError
from espalier.lang.api import select
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
