"""`stop_regex` in programs: where it may stand, what ends, and what is seen of a match."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.lang.appending import run

from espalier.backends.scripted import ScriptedBackend
from espalier.errors import GenerationError, SamplingError
from espalier.lang.api import assistant, gen, gen_int, gen_string, user
from espalier.lang.function import function
from espalier.lang.ir import SglExpr
from espalier.lang.state import ProgramState
from espalier.runtime import Engine
from espalier.types import SamplingParams

TEXT = "one two\n\nQuestion 12: three"
MATCH = r"\n+Question \d+:"


@pytest.mark.parametrize("stop_regex", [MATCH, [MATCH], ("never", MATCH), ["two3", MATCH]])
def test_the_text_ends_before_the_match_which_is_named(stop_regex: Any) -> None:
    state = run("p", gen("x", stop_regex=stop_regex), "q", backend=ScriptedBackend(TEXT))
    assert state["x"] == "one two"
    assert state.text() == "pone twoq"
    reason = state.get_meta_info("x")["finish_reason"]
    assert reason == {"type": "stop", "matched": "\n\nQuestion 12:"}


def test_a_run_sets_it_for_its_gens_and_a_gen_for_itself() -> None:
    backend = ScriptedBackend("ab12cd")
    state = run("p", gen("x"), gen("y", stop_regex="c."), backend=backend, stop_regex=r"\d")
    assert (state["x"], state["y"]) == ("ab", "ab12")
    assert [call.sampling.stop_regex for call in backend.calls if call.sampling] == [
        (r"\d",),
        ("c.",),
    ]

    @function
    def asks(s: ProgramState) -> None:
        s += "p" + gen("x")

    (batch,) = asks.run_batch([{}], backend=backend, stop_regex=["b.", "zzz"])
    assert batch["x"] == "a"


def test_the_match_that_is_complete_first_ends_the_text_and_the_longest_counts() -> None:
    def cut(text: str, **given: Any) -> tuple[Any, Any]:
        state = run("p", gen("x", **given), backend=ScriptedBackend(text))
        return state["x"], state.get_meta_info("x")["finish_reason"]["matched"]

    assert cut("abcd", stop_regex="abcd|bc") == ("a", "bc")
    assert cut("abcd", stop_regex=["d", "cd", "[b-d]+d"]) == ("a", "bcd")
    assert cut("a123", stop_regex=r"\d+") == ("a", "1")
    assert cut("a  b", stop_regex=r"\s+b", stop=" b") == ("a", "  b")
    assert cut("a. b", stop_regex="b", stop=". ") == ("a", ". ")
    assert cut("a  b", stop_regex=r"\s+b", include_stop=True) == ("a  b", "  b")


@pytest.mark.parametrize("make", [gen_int, gen_string])
def test_short_forms_take_it(make: Callable[..., SglExpr]) -> None:
    backend = ScriptedBackend("12|34")
    assert run("p", make("x", stop_regex=r"[|]\d"), backend=backend)["x"] == "12"


def test_each_sample_and_each_stream_ends_at_its_own_match() -> None:
    @function
    def sampling(s: ProgramState) -> None:
        s += "p" + gen("x", n=3, stop_regex=r" +\w+!")

    backend = ScriptedBackend([["a b c! d", "e   f!", "g h"]], latency_s=0.003)
    state = sampling.run(backend=backend, stream=True)
    assert ["".join(state.text_iter("x", sample=index)) for index in range(3)] == [
        "a b",
        "e",
        "g h",
    ]
    assert state["x"] == ["a b", "e", "g h"]
    reasons = [meta["finish_reason"].get("matched") for meta in state.get_meta_info("x")]
    assert reasons == [" c!", "   f!", None]


def test_it_works_in_messages_beside_the_stops_of_the_template() -> None:
    class Template:
        stop = ("</s>",)

        def opening(self, role: str, history: Any) -> str:
            return f"<{role}>"

        def closing(self, role: str, history: Any) -> str:
            return "</s>"

    backend = ScriptedBackend(["yes 1</s>", "yes</s> 2"], template=Template())
    parts = [
        user("q"),
        assistant(gen("x", stop_regex=r"\s\d")),
        assistant(gen("y", stop_regex="2")),
    ]
    state = run(*parts, backend=backend)
    assert (state["x"], state["y"]) == ("yes", "yes")
    assert state.get_meta_info("y")["finish_reason"]["matched"] == "</s>"


@pytest.mark.parametrize(
    "given",
    [
        "",
        [""],
        5,
        [5],
        "a*",
        "^a",
        "(",
        r"(?=a)",
        "a{9999}",
        ["a"] * 17,
        "a" * 5000,
        b"a",
        {"a": 1},
    ],
)
def test_what_cannot_be_used_raises_where_it_is_written(given: Any) -> None:
    backend = ScriptedBackend()
    with pytest.raises(SamplingError, match="stop_regex"):
        run("p", gen("x", stop_regex=given), backend=backend)
    with pytest.raises(SamplingError, match="stop_regex"):
        run("p", gen("x"), backend=backend, stop_regex=given)
    assert not backend.calls


def test_a_choice_has_no_use_for_it() -> None:
    with pytest.raises(ValueError, match="choices together with stop_regex"):
        gen("x", choices=["a"], stop_regex="b")


def test_a_value_that_it_cuts_says_so() -> None:
    backend = ScriptedBackend('{"a": 5}')
    state = run("p", gen("x", json_schema={}, stop_regex=r"\d"), backend=backend)
    with pytest.raises(GenerationError, match="the stop '5' may have ended it early"):
        _ = state["x"]
    assert state.text("x") == '{"a": '


def test_the_wire_format_takes_text_or_a_list() -> None:
    assert SamplingParams.from_wire({"stop_regex": "a+"}).stop_regex == ("a+",)
    assert SamplingParams.from_wire({"stop_regex": ["a", "b"]}).stop_regex == ("a", "b")
    assert SamplingParams.from_wire({"stop_regex": None}).stop_regex == ()


@pytest.fixture(scope="module")
def engine(smollm2_path: Path) -> Iterator[Engine]:
    with Engine(smollm2_path, max_total_tokens=4096) as engine:
        yield engine


def cut_naively(text: str, regex: str) -> str:
    """The text before the first match to be complete, of those the longest."""
    for end in range(1, len(text) + 1):
        for start in range(end):
            if re.fullmatch(regex, text[start:end]):
                return text[:start]
    return text


REGEXES = [r"[aeiou]\w* \w", r"\.\s+[A-Z]", r"\w+ing", r"(?i)the\s", r",? and|\n", r"\d{4,}"]


@pytest.mark.parametrize("regex", REGEXES)
def test_the_model_s_text_is_cut_as_the_whole_text_would_be(engine: Engine, regex: str) -> None:
    params: dict[str, Any] = {"max_new_tokens": 24, "ignore_eos": True, "sampling_seed": 5}
    for prompt in ("Once upon a time", "The list of cities:"):
        whole = engine.generate(prompt, params)["text"]
        expected = cut_naively(whole, regex)
        cut = params | {"stop_regex": regex}
        *seen, answer = engine.generate(prompt, cut, stream=True)
        assert all(expected.startswith(part["text"]) for part in seen)
        assert answer["text"] == expected == engine.generate(prompt, cut)["text"]
        reason = answer["meta_info"]["finish_reason"]
        if expected == whole:
            assert reason == {"type": "length", "length": 24}
        else:
            assert reason["type"] == "stop"
            assert whole.startswith(expected + reason["matched"])
            assert re.fullmatch(regex, reason["matched"])


def test_logprobs_are_of_the_tokens_up_to_the_match(engine: Engine) -> None:
    params = {"max_new_tokens": 40, "temperature": 0, "stop_regex": r",\s*6"}
    answer = engine.generate("Numbers: 1, 2, 3,", params, return_logprob=True)
    assert answer["text"] == " 4, 5"
    tokens = answer["meta_info"]["output_token_logprobs"]
    assert [entry[1] for entry in tokens] == answer["output_ids"]
    assert engine.tokenizer.decode(answer["output_ids"]) == " 4, 5, 6"


def test_a_form_is_cut_where_it_matches_with_and_without_jumps(
    smollm2_path: Path, engine: Engine
) -> None:
    params: dict[str, Any] = {
        "regex": r'\{"name": "[a-z]{3,8}", "number": \d{2}\}',
        "stop_regex": r'",\s"n',
        "max_new_tokens": 40,
        "temperature": 0,
    }
    with Engine(smollm2_path, max_total_tokens=4096, jump_forward=False) as slow:
        answers = [one.generate("JSON: ", params) for one in (engine, slow)]
    texts = [answer["text"] for answer in answers]
    assert texts[0] == texts[1]
    assert re.fullmatch(r'\{"name": "[a-z]{3,8}', texts[0])
    reasons = [answer["meta_info"]["finish_reason"] for answer in answers]
    assert reasons == [{"type": "stop", "matched": '", "n'}] * 2


def test_the_engine_refuses_what_cannot_be_used_and_goes_on(engine: Engine) -> None:
    for regex in ("a*", "^a", "("):
        with pytest.raises(SamplingError, match="stop_regex holds"):
            engine.generate("x", {"stop_regex": regex})
    assert json.dumps(engine.generate("x", {"max_new_tokens": 2})["meta_info"])
