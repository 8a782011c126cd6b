"""The examples' logic, with a scripted backend: what they ask, and what they do with answers."""

from __future__ import annotations

import json

import pytest

from espalier.backends.scripted import ScriptedBackend, ScriptedCall
from espalier.lang.config import set_default_backend

from .conftest import EXAMPLES, LoadExample


def scripted(*answers: str) -> ScriptedBackend:
    """Answers in turn; each call must follow the one before."""
    backend = ScriptedBackend(list(answers))
    set_default_backend(backend)
    return backend


def test_every_example_is_tested() -> None:
    names = {path.stem for path in EXAMPLES.glob("*.py")}
    assert names == {
        "quickstart", "essay_judge", "few_shot", "extract", "react_agent", "tree_of_thought",
        "multi_turn",
    }  # fmt: skip


def test_quickstart_prints_answer_and_choice(
    example: LoadExample, capsys: pytest.CaptureFixture[str]
) -> None:
    def answer(call: ScriptedCall) -> str:
        return "Arabic" if call.kind == "score" else "It is Cairo."

    set_default_backend(ScriptedBackend(answer))
    example("quickstart").main()
    assert capsys.readouterr().out == "It is Cairo. People speak Arabic.\n" * 4


def test_extract_reads_the_values_of_its_schema(
    example: LoadExample, capsys: pytest.CaptureFixture[str]
) -> None:
    orders = [
        {"product": "tea", "quantity": number, "customer": name}
        for number, name in ((1, "Ada"), (2, "Bo"), (3, "Cy"))
    ]
    backend = scripted(*map(json.dumps, orders))
    module = example("extract")
    module.main()
    assert capsys.readouterr().out == ("Ada wants 1 x tea\nBo wants 2 x tea\nCy wants 3 x tea\n")
    constraint = backend.calls[0].constraint
    assert constraint is not None
    assert json.loads(constraint.text) == module.ORDER


def test_essay_judge_branches_solves_and_merges(example: LoadExample) -> None:
    module = example("essay_judge")

    def answer(call: ScriptedCall) -> str:
        last = call.text.splitlines()[-1]
        for beginning, text in (
            ("The topic of the essay is", module.TOPIC),
            ('"The essay', " is fine"),
            ("The teacher finds", "good"),
            ("In short", " all is well"),
            ("Grade", "B"),
        ):
            if last.startswith(beginning):
                return text
        raise AssertionError(last)

    backend = ScriptedBackend(answer)
    set_default_backend(backend)
    state = module.judge(module.ESSAY, module.TOPIC)
    assert state["grade"] == "B"
    assert state["comment"] == [" is fine"] * 4
    assert "- style (good): The essay is fine.\n" in state.text()
    essay_calls = [call for call in backend.calls if module.ESSAY in call.text]
    assert len(essay_calls) == len(backend.calls) >= 1 + 4 * 2 + 2


def test_essay_judge_ends_early_off_the_topic(
    example: LoadExample, capsys: pytest.CaptureFixture[str]
) -> None:
    module = example("essay_judge")
    backend = scripted("cooking")
    module.show(module.judge(module.OTHER_ESSAY, module.TOPIC))
    assert capsys.readouterr().out == "Not judged: the essay is about cooking.\n"
    assert len(backend.calls) == 1


def test_few_shot_classifies_and_extracts(example: LoadExample) -> None:
    module = example("few_shot")
    backend = scripted(" music", " Ada ", " London", " 1815")
    assert module.classify("They sang.").ret_value == "music"
    assert module.extract("Ada Lovelace was born.").ret_value == {
        "Person": "Ada", "Place": "London", "Year": "1815",
    }  # fmt: skip
    assert backend.calls[-1].text.endswith("Person: Ada \nPlace: London\nYear:")
    assert backend.calls[0].text.startswith(module.CLASSIFY)


def test_multi_turn_asks_each_question_after_the_last_answer(
    example: LoadExample, capsys: pytest.CaptureFixture[str]
) -> None:
    module = example("multi_turn")
    backend = scripted("Paris.", "Tokyo.", "Cairo.", "Cairo does.")
    module.main()
    out = capsys.readouterr().out
    assert out.startswith(f"> {module.QUESTIONS[0]}\n  Paris.\n  [0 of ")
    assert "ASSISTANT:Paris.\nUSER:And of Japan?\nASSISTANT:Tokyo." in backend.calls[-1].text


def test_react_agent_runs_tools_between_calls(example: LoadExample) -> None:
    module = example("react_agent")
    backend = scripted(
        " I look.", "Lookup", "legs of a spider", " I multiply.", "Calculate", "6 * 8",
        " I know.", "Finish", "48 ",
    )  # fmt: skip
    state = module.answer("How many legs do 6 spiders have?")
    assert state.ret_value == "48"
    assert "\nResult: 8\nThought: I multiply.\n" in state.text()
    assert "\nInput: 6 * 8\nResult: 48\n" in backend.calls[-1].text


def test_react_agent_gives_up_after_its_last_step(example: LoadExample) -> None:
    module = example("react_agent")
    backend = scripted(*[" Hm.", "Calculate", "1 +"] * module.MAX_STEPS)
    state = module.answer("Why?")
    assert state.ret_value is None
    assert state.text().count("Result: not a calculation\n") == module.MAX_STEPS
    assert len(backend.calls) == 3 * module.MAX_STEPS


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("6 * 8", "48"),
        (" (2+3)*4 ", "20"),
        ("7 / 2", "3.5"),
        ("3 - 5", "-2"),
        ("1 / 0", "not a calculation"),
        ("2 ** 99", "not a calculation"),
        ("__import__('os')", "not a calculation"),
        ("six", "not a calculation"),
        ("", "not a calculation"),
        ("(" * 500, "not a calculation"),
    ],
)
def test_react_calculator_computes_numbers_only(
    example: LoadExample, expression: str, result: str
) -> None:
    assert example("react_agent").calculate(expression) == result


def test_tree_of_thought_forks_twice_and_votes(
    example: LoadExample, capsys: pytest.CaptureFixture[str]
) -> None:
    module = example("tree_of_thought")

    def answer(call: ScriptedCall) -> str:
        if call.kind == "score":
            return call.choices[0 if "poet" in call.text else 2]
        return " sailed away" if "One day" in call.text.splitlines()[-1] else " waited"

    backend = ScriptedBackend(answer)
    set_default_backend(backend)
    stories = module.storyteller.run(seed=1).ret_value
    assert stories[:2] == ["Once there was a fox who waited. One day she sailed away."] * 2
    assert len(stories) == 6
    module.main()
    out = capsys.readouterr().out
    assert out.endswith(f"Chosen: {stories[4]}\n")
    assert "a poet votes for 1\n" in out
