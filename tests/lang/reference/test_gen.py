"""Lines T-10 to T-17 of the compatibility target: `gen`. Of reasoning: test_reasoning."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from pydantic import BaseModel
from tests.lang.appending import run

from espalier.backends.scripted import ScriptedBackend
from espalier.constrain.compiler import compiler_of
from espalier.constraint import Constraint, ConstraintKind
from espalier.errors import GenerationError, SamplingError, UserInputError
from espalier.lang.api import gen, gen_int, gen_string
from espalier.lang.function import function
from espalier.lang.ir import SglGen
from espalier.lang.state import ProgramState
from espalier.runtime import Engine

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


class Person(BaseModel):
    name: str
    age: int


@dataclass
class Point:
    x: int
    y: int


@pytest.fixture(scope="module")
def engine(smollm2_path: Path) -> Iterator[Engine]:
    with Engine(smollm2_path, max_total_tokens=8192) as engine:
        yield engine


# The reference's order of positional arguments (section 3).
ARGUMENTS = [
    *("name", "max_tokens", "min_tokens", "n", "stop", "stop_token_ids", "stop_regex"),
    *("temperature", "top_p", "top_k", "min_p", "frequency_penalty", "presence_penalty"),
    *("ignore_eos", "return_logprob", "logprob_start_len", "top_logprobs_num"),
    *("return_text_in_logprobs", "dtype", "choices", "choices_method", "regex", "json_schema"),
]
NOT_OF_SHORT_FORMS = {"min_tokens", *ARGUMENTS[-5:]}


def test_arguments_come_in_the_reference_order() -> None:
    for primitive in (gen, gen_int, gen_string):
        positional = [
            name
            for name, parameter in inspect.signature(primitive).parameters.items()
            if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        ]
        skipped = set() if primitive is gen else NOT_OF_SHORT_FORMS
        assert positional == [name for name in ARGUMENTS if name not in skipped]


def test_t10_n_samples_are_a_list_and_the_first_is_appended() -> None:
    backend = ScriptedBackend([["a", "b", "c"]])
    state = run("p", gen("x", n=3), backend=backend)
    assert state["x"] == ["a", "b", "c"]
    assert state.text() == "pa"
    assert [meta["completion_tokens"] for meta in state.get_meta_info("x")] == [1, 1, 1]


def test_t10_n_samples_work_in_a_fork() -> None:
    @function
    def program(s: ProgramState) -> None:
        s += "p"
        forks = s.fork(2)
        forks += gen("x", n=2)
        forks.join()

    state = program.run(backend=ScriptedBackend(lambda call: ["a", "b"]))
    assert state["x"] == [["a", "b"], ["a", "b"]]
    assert len(state.get_meta_info("x")[1]) == 2


@pytest.mark.parametrize(
    "arguments",
    [
        {"choices": []},
        {"choices": ["a", "a"]},
        {"choices": ["a", ""]},
        {"choices": "ab"},
        {"choices": ["a"], "max_tokens": 3},
        {"choices": ["a"], "dtype": int},
        {"choices": ["a"], "stop": "\n"},
        {"choices": ["a"], "return_logprob": True},
        {"choices_method": lambda **_: None},
        {"dtype": list},
        {"dtype": "complex"},
        {"name": 3},
    ],
)
def test_t11_contradicting_arguments_raise_value_error_at_the_call(
    arguments: dict[str, Any],
) -> None:
    with pytest.raises(ValueError, match=r"allowed|leave") as caught:
        gen(**{"name": "x", **arguments})
    assert isinstance(caught.value, UserInputError)


@pytest.mark.parametrize("stop", [None, "x", ["x", "y"]])
@pytest.mark.parametrize("dtype", [int, "int", float, "float"])
def test_t12_numbers_stop_at_spaces_and_lines_besides_the_given_stops(
    dtype: Any, stop: Any
) -> None:
    backend = ScriptedBackend("42 is it")
    state = run("p", gen("x", dtype=dtype, stop=stop), backend=backend)
    assert state["x"] == "42"
    sampling = backend.calls[0].sampling
    assert sampling is not None
    assert sampling.stop == (*((stop,) if isinstance(stop, str) else stop or ()), " ", "\n")
    name = dtype if isinstance(dtype, str) else dtype.__name__
    assert backend.calls[0].constraint == Constraint(ConstraintKind.DTYPE, name)


def test_t12_dtype_str_and_bool_add_no_stop() -> None:
    backend = ScriptedBackend('"a b"')
    assert run("p", gen_string("x"), backend=backend)["x"] == '"a b"'
    run("p", gen("x", dtype=bool), backend=backend).sync()
    assert [call.sampling.stop for call in backend.calls if call.sampling] == [(), ()]


def test_t16_include_stop_keeps_the_stop() -> None:
    backend = ScriptedBackend("one. two")
    assert run("p", gen("x", stop="."), backend=backend).text() == "pone"
    assert run("p", gen("x", stop=".", include_stop=True), backend=backend).text() == "pone."


def test_t17_unnamed_gens_set_no_named_variable_and_are_waited_for() -> None:
    backend = ScriptedBackend([" 1", " 2", " 3"], latency_s=0.002)
    state = run("p", gen(), gen("x"), gen(), backend=backend)
    assert state.text() == "p 1 2 3"
    assert state["x"] == " 2"


def test_max_tokens_is_a_bound_and_the_result_says_so() -> None:
    state = run("p", gen("x", max_tokens=2), backend=ScriptedBackend("a b c d"))
    assert state["x"] == "a b"
    assert state.get_meta_info("x")["finish_reason"] == {"type": "length", "length": 2}


def test_t13_a_dict_gives_the_parsed_value_and_json_text_the_text() -> None:
    backend = ScriptedBackend('{"a":5}')
    state = run("p", gen("x", json_schema=SCHEMA), backend=backend)
    assert state["x"] == {"a": 5}
    assert state.text("x") == '{"a":5}'
    assert state.text() == 'p{"a":5}'
    call = backend.calls[0]
    assert call.constraint is not None
    assert json.loads(call.constraint.text) == SCHEMA
    state = run("p", gen("x", json_schema=json.dumps(SCHEMA)), backend=backend)
    assert state["x"] == '{"a":5}'


def test_t13_a_model_or_type_gives_a_value_of_it() -> None:
    backend = ScriptedBackend('{"name":"Ada","age":36}')
    state = run("p", gen("x", json_schema=Person), backend=backend)
    assert state["x"] == Person(name="Ada", age=36)
    backend = ScriptedBackend('[{"x":1,"y":2}]')
    state = run("p", gen("x", json_schema=list[Point]), backend=backend)
    assert state["x"] == [Point(1, 2)]
    assert state.text("x") == '[{"x":1,"y":2}]'


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"regex": "a", "dtype": int}, "dtype and regex"),
        ({"regex": "a", "json_schema": {}}, "regex and json_schema"),
        ({"choices": ["a"], "regex": "a"}, "choices together with regex"),
        ({"choices": ["a"], "json_schema": "{}"}, "json_schema"),
        ({"whitespace": "pretty"}, "whitespace without json_schema"),
        ({"json_schema": {}, "whitespace": "wide"}, "'compact', 'spaced', 'pretty'"),
        ({"exact": True}, "exact"),
        ({"exact": True, "regex": "a", "dtype": int}, "exact"),
        ({"exact": True, "regex": "a+"}, "more than 64 texts"),
        ({"regex": 5}, "the regex is 5"),
        ({"json_schema": {"a": object()}}, "is no JSON"),
        ({"json_schema": 5}, "json_schema is 5"),
        ({"json_schema": lambda: 1}, "a function"),
        ({"tool_calls": 5}, "tool_calls is 5"),
    ],
)
def test_t11_forms_that_contradict_raise_at_the_call(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UserInputError, match=message):
        gen("x", **given)


def test_t10_each_sample_streams_for_itself() -> None:
    @function
    def sampling(s: ProgramState) -> None:
        s += "p" + gen("x", n=2)

    backend = ScriptedBackend([["a b c", "d e"]], latency_s=0.005)
    state = sampling.run(stream=True, backend=backend)
    assert "".join(state.text_iter("x", sample=1)) == "d e"
    assert "".join(state.text_iter("x")) == "a b c"
    assert "".join(state.text_iter()) == "pa b c"


def test_t10_the_first_of_n_samples_is_that_of_one_and_all_stream(engine: Engine) -> None:
    @function
    def sampling(s: ProgramState, count: int) -> None:
        s += "A word:" + gen("x", n=count, max_tokens=4, seed=3)

    one = sampling.run(count=1, backend=engine)["x"]
    state = sampling.run(count=3, backend=engine, stream=True)
    pieces = ["".join(state.text_iter("x", sample=index)) for index in range(3)]
    assert state["x"] == pieces
    assert pieces[0] == one
    assert len(set(pieces)) > 1
    assert state.text() == "A word:" + one
    assert [meta["completion_tokens"] for meta in state.get_meta_info("x")] == [4, 4, 4]


@pytest.mark.parametrize("stop", [None, ".", [".", ";"]])
@pytest.mark.parametrize(("dtype", "kind"), [(int, int), ("int", int), (float, float)])
def test_t12_numbers_of_the_model_parse(engine: Engine, dtype: Any, kind: type, stop: Any) -> None:
    @function
    def counting(s: ProgramState) -> None:
        s += "2 + 2 = " + gen("x", dtype=dtype, stop=stop, max_tokens=8)

    for seed in range(4):
        kind(counting.run(backend=engine, seed=seed)["x"])


def test_t12_bools_and_strings_of_the_model_parse_and_end(engine: Engine) -> None:
    @function
    def answering(s: ProgramState) -> None:
        s += "Is water wet? " + gen("yes", dtype=bool)
        s += '\nIn JSON, the colours are "red", "green" and ' + gen("colour", dtype=str)

    for seed in range(3):
        state = answering.run(backend=engine, seed=seed, max_new_tokens=100)
        assert state["yes"] in ("True", "False")
        if state.get_meta_info("colour")["finish_reason"]["type"] == "stop":
            assert isinstance(json.loads(state["colour"]), str)
    state = answering.run(backend=engine, temperature=0)
    assert isinstance(json.loads(state["colour"]), str)
    assert state.get_meta_info("colour")["finish_reason"] == {"type": "stop"}


@pytest.mark.parametrize(
    "text",
    ["", "plain", 'say "no"', "back\\slash, a\ttab, a\nline", "\u00e9 \u4e2d \U0001f600", "\x00/"],
)
@pytest.mark.parametrize("is_ascii", [True, False])
def test_t12_any_json_string_is_admitted_and_then_must_end(
    engine: Engine, text: str, is_ascii: bool
) -> None:
    constraint = Constraint(ConstraintKind.DTYPE, "str")
    matcher = compiler_of(engine.tokenizer, engine.tokenizer.vocab_size).compile(constraint)
    state = matcher.matcher()
    for token_id in engine.tokenizer.encode(json.dumps(text, ensure_ascii=is_ascii)):
        assert not state.must_stop
        state.accept(token_id)
    assert state.must_stop


def schemas() -> list[Any]:
    return [json.dumps(SCHEMA), SCHEMA, Person, list[Point]]


@pytest.mark.parametrize("schema", schemas(), ids=["text", "dict", "model", "type"])
def test_t13_outputs_of_the_model_validate(engine: Engine, schema: Any) -> None:
    expression = gen("x", json_schema=schema, max_tokens=120)
    assert isinstance(expression, SglGen)
    assert expression.form is not None
    told = json.loads(expression.form.constraint.text)

    @function
    def program(s: ProgramState) -> None:
        s += "As JSON: " + expression

    num_whole = 0
    for seed in range(4):
        state = program.run(backend=engine, seed=seed)
        if state.get_meta_info("x")["finish_reason"]["type"] == "stop":
            num_whole += 1
            jsonschema.validate(json.loads(state.text("x")), told)
            assert state["x"] is not None
    assert num_whole > 0


@pytest.mark.parametrize("as_text", [True, False])
def test_t13_an_unsupported_keyword_raises_before_any_token_with_its_path(
    engine: Engine, as_text: bool
) -> None:
    schema: Any = {"properties": {"tags": {"items": {"type": "string", "frobnicate": 1}}}}
    given = json.dumps(schema) if as_text else schema

    @function
    def program(s: ProgramState) -> None:
        s += "p" + gen("x", json_schema=given)

    state = program.run(backend=engine)
    with pytest.raises(GenerationError, match="frobnicate") as raised:
        _ = state["x"]
    assert "/properties/tags/items" in str(raised.value)
    assert isinstance(raised.value.__cause__, UserInputError)
    assert state.usage().computed_tokens == state.usage().generated_tokens == 0


LONG_FORMS: list[dict[str, Any]] = [
    {},
    {"regex": "[ab]{50}"},
    {"regex": "(?:north|south){40,} pole"},
    {"dtype": str},
    {"json_schema": {"type": "array", "items": {"type": "string"}, "minItems": 9}},
    {"json_schema": Person},
    {"ebnf": 'root ::= "- " [a-z]{40} "\\n"'},
    {"lark": 'start: "x" "y"{60}'},
    {"tool_calls": {"tools": [{"name": "f", "parameters": {}}], "style": "hermes"}},
]


@pytest.mark.parametrize("max_tokens", [1, 7])
def test_t14_max_tokens_is_hard_in_every_form(engine: Engine, max_tokens: int) -> None:
    @function
    def program(s: ProgramState, form: dict[str, Any]) -> None:
        s += "It is: " + gen("x", max_tokens=max_tokens, ignore_eos=not form, **form)

    for form in LONG_FORMS:
        state = program.run(form=form, backend=engine)
        meta = state.get_meta_info("x")
        assert meta["completion_tokens"] <= max_tokens, form
        if meta["finish_reason"]["type"] != "stop":
            assert meta["finish_reason"] == {"type": "length", "length": max_tokens}, form
            assert meta["completion_tokens"] == max_tokens
        else:
            assert form.get("tool_calls"), form  # free text may end before


def test_t14_the_engine_survives_any_regex(engine: Engine) -> None:
    odd = ["(", "a{1000000}", "(a|a)*b", "((a*)*)*b", "(.*a.*b.*){20}c", "[ab]*a[ab]{20}", "a$b"]

    @function
    def program(s: ProgramState, arguments: dict[str, Any]) -> None:
        s += "p" + gen("x", max_tokens=6, **arguments)

    items = [{"arguments": {name: regex}} for regex in odd for name in ("regex", "stop_regex")]
    states = program.run_batch(items, backend=engine, on_error="return")
    for state, item in zip(states, items, strict=True):
        error = state.error()
        if error is None:
            assert state.get_meta_info("x")["completion_tokens"] <= 6
        else:
            assert isinstance(error, (GenerationError, SamplingError)), item
    assert program.run(arguments={"ignore_eos": True}, backend=engine)["x"]


def test_t15_a_seed_gives_the_same_in_any_company_and_cache_state(engine: Engine) -> None:
    @function
    def program(s: ProgramState, topic: str, seed: int | None) -> None:
        s += f"A story about {topic}:" + gen("x", max_tokens=10, seed=seed, ignore_eos=True)

    def told(**arguments: Any) -> str:
        return str(program.run(**arguments, backend=engine)["x"])

    engine.flush_cache()
    alone = told(topic="a cat", seed=11)
    assert told(topic="a cat", seed=11) == alone  # all of the prompt is cached
    assert told(topic="a cat", seed=12) != alone
    items: list[dict[str, Any]] = [
        {"topic": topic, "seed": seed}
        for seed in (11, 5, None)
        for topic in ("a cat", "a cat and dogs", "the sea")
    ]
    for _ in range(2):
        states = program.run_batch(items, backend=engine)
        assert states[0]["x"] == alone
        engine.flush_cache()


def test_t16_a_kept_stop_is_text_of_the_state_and_of_the_next_prompt(engine: Engine) -> None:
    @function
    def program(s: ProgramState, kept: bool) -> None:
        s += "Numbers: 1, 2, 3," + gen("x", stop=", 6", include_stop=kept, max_tokens=20)

    without, with_stop = (
        program.run(kept=kept, backend=engine, temperature=0) for kept in (False, True)
    )
    assert with_stop["x"] == without["x"] + ", 6"
    assert with_stop.text() == without.text() + ", 6"
    for state in (without, with_stop):
        assert state.get_meta_info("x")["finish_reason"] == {"type": "stop", "matched": ", 6"}


def test_t17_an_error_of_an_unnamed_gen_is_told() -> None:
    backend = ScriptedBackend([" 1", ValueError("no"), " 3"], latency_s=0.002)
    state = run("p", gen("x"), gen(), backend=backend)
    assert state["x"] == " 1"
    with pytest.raises(GenerationError, match="no"):
        state.text()
    state = run("p", gen(), gen(), backend=ScriptedBackend([" 1", " 2"], latency_s=0.01))
    state.sync()
    assert state.text() == "p 1 2"
