from __future__ import annotations

from typing import Any

import pytest
from tests.lang.appending import run

from espalier.backends.scripted import ScriptedBackend
from espalier.constraint import Constraint, ConstraintKind
from espalier.errors import SamplingError
from espalier.lang.api import gen, gen_int
from espalier.lang.function import function
from espalier.lang.ir import SglGen, SglSelect
from espalier.lang.state import ProgramState
from espalier.types import TextSegment, TokenSegment


def test_gen_with_choices_is_a_select() -> None:
    expression = gen("x", choices=["a", "b"], temperature=0.5)
    assert isinstance(expression, SglSelect)
    assert (expression.choices, expression.temperature) == (("a", "b"), 0.5)


def test_gen_int_passes_all_of_its_arguments() -> None:
    given: dict[str, Any] = {
        "max_tokens": 5,
        "n": 2,
        "stop": "x",
        "stop_token_ids": [3],
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 7,
        "min_p": 0.1,
        "frequency_penalty": 0.2,
        "presence_penalty": 0.3,
        "ignore_eos": True,
        "seed": 4,
        "repetition_penalty": 1.1,
        "logit_bias": {1: 2.0},
        "include_stop": True,
    }
    expression = gen_int("x", **given)
    assert isinstance(expression, SglGen)
    assert expression.form is not None
    assert expression.form.constraint == Constraint(ConstraintKind.DTYPE, "int")
    assert dict(expression.sampling) == {
        "max_new_tokens": 5,
        "no_stop_trim": True,
        "sampling_seed": 4,
        **{k: v for k, v in given.items() if k not in ("max_tokens", "include_stop", "seed")},
    }


def test_contradicting_token_counts_raise_where_they_are_appended() -> None:
    backend = ScriptedBackend()
    with pytest.raises(SamplingError, match="min_new_tokens"):
        run("p", gen("x", min_tokens=200), backend=backend)
    run("p", gen("x", min_tokens=200), max_new_tokens=300, backend=backend).sync()


@pytest.mark.parametrize(
    "arguments",
    [
        {"temperature": -1},
        {"top_p": 2},
        {"stop": ""},
        {"n": 0},
        {"max_tokens": -1},
        {"seed": 1.5},
        {"stop_token_ids": ["a"]},
        {"top_logprobs_num": 2},
        {"return_logprob": True, "top_logprobs_num": -1},
    ],
)
def test_sampling_values_out_of_range_raise_where_they_are_appended(
    arguments: dict[str, Any],
) -> None:
    backend = ScriptedBackend()
    with pytest.raises(SamplingError):
        run("p", gen("x", **arguments), backend=backend)
    assert not backend.calls


def test_expressions_are_values_that_may_be_appended_again() -> None:
    backend = ScriptedBackend([" 1", " 2"])
    expression = "q" + gen("x") + "\n"
    assert run(expression, [expression, "end"], backend=backend).text() == "q 1\nq 2\nend"


def test_the_prompt_keeps_generated_tokens_and_marks_who_wrote_the_text() -> None:
    backend = ScriptedBackend(["a b", "c"])
    run("p", gen("x"), "q", gen("y"), backend=backend).sync()
    assert backend.calls[1].prompt == (
        TextSegment("p", allow_special=True),
        TokenSegment((0, 1), "a b"),
        TextSegment("q", allow_special=True),
    )


def test_generated_text_without_ids_never_spells_control_tokens() -> None:
    backend = ScriptedBackend(["<|end|>", "c"], gives_token_ids=False)
    run("p", gen("x"), gen("y"), backend=backend).sync()
    assert backend.calls[1].prompt[1] == TextSegment("<|end|>", allow_special=False)


@pytest.mark.parametrize("value", [None, 3, print, object()])
def test_appending_something_else_raises_value_error(value: object) -> None:
    with pytest.raises(ValueError, match="appended to a state"):
        run(value, backend=ScriptedBackend())


def test_nothing_of_a_wrong_list_is_appended() -> None:
    @function
    def program(s: ProgramState) -> None:
        with pytest.raises(ValueError, match="None was appended"):
            s += ["a", gen("x"), None]

    backend = ScriptedBackend()
    state = program.run(backend=backend)
    assert state.text() == ""
    assert "x" not in state
