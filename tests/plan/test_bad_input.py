"""What a plan refuses, and what it goes on after."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.tiny_folder import write_tiny_folder

import espalier as sgl
from espalier import gen, select
from espalier.errors import (
    EspalierError,
    ModelNotFoundError,
    ProgramError,
)
from espalier.plan.model import PlannedModel


@sgl.function
def program(s: sgl.ProgramState, word: str) -> None:
    s += f"Say {word}:" + gen("answer", max_tokens=8) + select("mark", choices=["a", "b"])
    if word == "raise":
        raise RuntimeError("the program broke")
    if word == "read":
        int(s["answer"])


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"output_tokens": -1}, "the output length is -1"),
        ({"output_tokens": {"answer": [3, -2]}}, "'answer' is -2"),
        ({"output_tokens": {"answer": []}}, "empty"),
        ({"output_tokens": {"answer": "many"}}, "'many'"),
        ({"output_tokens": {"anser": 3}}, "its calls set answer, mark"),
        ({"output_tokens": {"mark": 3}}, "a selection and generates nothing"),
        ({"assume": {"anser": "x"}}, "its calls set answer, mark"),
        ({"assume": {"answer": 3}}, "text is allowed"),
        ({"assume": ["answer"]}, "a dict"),
        ({"cache_tokens": 0}, "cache_tokens is 0"),
        ({"cache_tokens": "all"}, "'all'"),
        ({"prices": "nowhere.json"}, "cannot be read"),
        ({"on_error": "ignore"}, "'raise' or 'return'"),
        ({"backend": object()}, "no place in a plan"),
        ({"stream": True}, "no place in a plan"),
        ({"trace": True}, "no place in a plan"),
    ],
)
def test_statements_that_make_no_sense_are_refused(
    tiny: PlannedModel, arguments: dict[str, Any], told: str
) -> None:
    with pytest.raises(EspalierError, match=told):
        program.plan([{"word": "x"}], model=tiny, **arguments)


def test_a_choice_that_there_is_not_is_refused(tiny: PlannedModel) -> None:
    with pytest.raises(ProgramError, match="none of its choices: 'a', 'b'"):
        program.plan([{"word": "x"}], model=tiny, assume={"mark": "c"})


def test_an_unknown_model_is_refused() -> None:
    with pytest.raises(ModelNotFoundError, match="no-such-model"):
        program.plan([{"word": "x"}], model="no-such-model")


def test_unknown_options_and_arguments_raise_type_errors(tiny: PlannedModel) -> None:
    with pytest.raises(TypeError, match="no option of a run"):
        program.plan([{"word": "x"}], model=tiny, colour="red")
    with pytest.raises(TypeError, match="item 1 of the batch"):
        program.plan([{"word": "x"}, {"words": "x"}], model=tiny)


def test_the_first_row_that_fails_is_raised_with_its_cause(tiny: PlannedModel) -> None:
    with pytest.raises(ProgramError, match="row 1 cannot be planned: RuntimeError") as caught:
        program.plan([{"word": "x"}, {"word": "raise"}], model=tiny)
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_a_read_that_fails_says_what_to_state(tiny: PlannedModel) -> None:
    with pytest.raises(ProgramError, match=r"reads answer: .* state them by assume"):
        program.plan([{"word": "read"}], model=tiny)
    plan = program.plan([{"word": "read"}], model=tiny, assume={"answer": "42"})
    assert not plan.failed


def test_other_rows_go_on(tiny: PlannedModel) -> None:
    rows: list[Any] = [{"word": "x"}, {"words": 1}, {"word": "raise"}, ["y"], 7]
    plan = program.plan(rows, model=tiny, on_error="return")
    assert [(failed.row, failed.error.split(":")[0]) for failed in plan.failed] == [
        (1, "TypeError"), (2, "RuntimeError"), (4, "UserInputError"),
    ]  # fmt: skip
    assert plan.rows == 5
    assert plan.parts[0].counts.requests == 3
    assert "3 rows could not be planned" in str(plan)


def test_what_the_engine_would_refuse_is_refused(tiny: PlannedModel) -> None:
    with pytest.raises(ProgramError, match="together the context holds 20"):
        program.plan([{"word": "a long word"}], model=tiny, cache_tokens=20)

    @sgl.function
    def empty(s: sgl.ProgramState) -> None:
        s += gen("x")

    with pytest.raises(ProgramError, match="the prompt is empty"):
        empty.plan(model=tiny)

    @sgl.function
    def unmatchable(s: sgl.ProgramState) -> None:
        s += "x" + gen("x", regex="a(")

    with pytest.raises(ProgramError, match="not closed"):
        unmatchable.plan(model=tiny)


def test_a_text_that_breaks_its_form_counts_as_free_text(tiny: PlannedModel) -> None:
    @sgl.function
    def formed(s: sgl.ProgramState) -> None:
        s += "x" + gen("x", regex="[0-9]{3}", max_tokens=8)

    plan = formed.plan(model=tiny, assume={"x": "four"})
    assert plan.parts[0].assumed == "stated text, which breaks the form"
    assert plan.total.generated_tokens == 5
    assert plan.total.forced_tokens == 0


def test_roles_without_a_template_are_plain_lines_as_in_a_run(tmp_path: Path) -> None:
    @sgl.function
    def chat(s: sgl.ProgramState) -> None:
        s += sgl.user("hi") + "x" + gen("y", max_tokens=2)

    folder = write_tiny_folder(tmp_path / "planned_without_template", chat_template=False)
    with pytest.warns(UserWarning, match="'USER:'"):
        plan = chat.plan(model=folder)
    assert plan.total.prompt_tokens == len("USER:hi\nx")


def test_inside_an_async_program_a_plan_would_block(tiny: PlannedModel) -> None:
    @sgl.function
    async def outer(s: sgl.ProgramState) -> None:
        program.plan([{"word": "x"}], model=tiny)

    with pytest.raises(ProgramError, match="blocks"):
        outer.run(backend=sgl.ScriptedBackend())
