"""Tool calls in three styles: accepted and refused texts, triggers, control tokens."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.constrain.tiny_vocabulary import TinyTokenizer, allowed

from espalier.constrain.automaton import AutomatonGrammar
from espalier.constrain.compiler import GrammarCompiler
from espalier.constrain.control_text import with_control_text
from espalier.constrain.llguidance_grammar import LlguidanceGrammar
from espalier.constrain.llguidance_tool_calls import calls_grammar
from espalier.constrain.matcher import Grammar, Matcher
from espalier.constrain.tool_calls import (
    STYLES,
    _source,
    calls_pattern,
    parse_tool_calls,
    tool_calls_grammar,
)
from espalier.constraint import Constraint, ConstraintKind
from espalier.errors import CapacityError, UserInputError

CONTROLS = [b"<|python_tag|>", b"[TOOL_CALLS]", b"<other>"]
PIECES = [b"<end>", *(bytes([byte]) for byte in range(256)), *CONTROLS, b"<tool_call>", b'{"']
PYTHON_TAG, TOOL_CALLS, OTHER = 257, 258, 259
TOKENIZER = TinyTokenizer(PIECES, {0, PYTHON_TAG, TOOL_CALLS, OTHER}, {0})
BYTES_ONLY = TinyTokenizer(PIECES[:257], {0}, {0})

WEATHER = {
    "name": "get_weather",
    "description": "The weather of a place.",
    "parameters": {
        "type": "object",
        "properties": {
            "city": {"type": "string", "maxLength": 12},
            "unit": {"enum": ["C", "F"]},
        },
        "required": ["city"],
        "additionalProperties": False,
    },
}
NOW = {"name": "now", "parameters": {"properties": {}, "additionalProperties": False}}
TREE = {
    "name": "plant",
    "parameters": {
        "properties": {"branches": {"type": "array", "items": {"$ref": "#"}}},
        "required": ["branches"],
        "additionalProperties": False,
    },
}
ARGUMENTS = '{"city": "Rome", "unit": "C"}'


def request(style: str, tools: list[Any], **options: Any) -> str:
    return json.dumps({"style": style, "tools": tools, **options})


def is_accepted(grammar: Grammar, text: str) -> bool:
    matcher = grammar.matcher()
    return follows(matcher, text) and matcher.is_complete


def follows(matcher: Matcher, text: str) -> bool:
    """Goes on byte by byte, as far as the mask allows."""
    for byte in text.encode():
        if byte + 1 not in allowed(matcher):
            return False
        matcher.accept(byte + 1)
    return True


def call(style: str, name: str = "get_weather", arguments: str = ARGUMENTS) -> str:
    return f'{{"name": "{name}", "{STYLES[style].arguments}": {arguments}}}'


def outputs(style: str) -> dict[str, list[str]]:
    """Texts of a style by what they hold."""
    one, two = call(style), call(style, "now", "{}")
    if style == "hermes":
        opened = [f"<tool_call>\n{one}\n</tool_call>", f"<tool_call>\n{two}\n</tool_call>"]
        many = ["\n".join(opened), f"Two calls. {opened[0]}\n{opened[1]}\n{opened[0]}"]
    elif style == "mistral":
        opened = [f"[TOOL_CALLS] [{one}]", f"[TOOL_CALLS][{two}]"]
        many = [f"[TOOL_CALLS] [{one}, {two}]", f"Both: [TOOL_CALLS][{one}, {two}, {one}]"]
    else:
        opened = [one, two, f"<|python_tag|>{one}"]
        many = [f"{one}; {two}", f"So: <|python_tag|>{one}; {two}; {one}"]
    triggered = [text for text in opened if text[0] != "{"]
    return {
        "none": ["", "No call is needed.", "A { brace", "<tool [TOOL <|python\n", "\u00e9"],
        "one": [*opened, *(f"Let me see.\n{text}" for text in triggered)],
        "many": many,
        "wrong": [
            *(text[:-1] for text in opened),
            *(text.replace("Rome", "Rome, the capital") for text in triggered if "Rome" in text),
            *(text.replace("get_weather", "get_money") for text in triggered if "get" in text),
            *(text.replace(": ", ":") for text in triggered),
            *(text.replace('"city"', '"town"') for text in triggered if "city" in text),
            *(text + " and more" for text in triggered),
            STYLES[style].trigger,
            f"{STYLES[style].trigger} text",
        ],
    }


@pytest.mark.parametrize("style", list(STYLES))
@pytest.mark.parametrize("tools", [[WEATHER, NOW], [WEATHER, NOW, TREE]], ids=["own", "library"])
@pytest.mark.parametrize("at_least", [0, 1])
@pytest.mark.parametrize("parallel", [False, True])
def test_a_style_accepts_and_refuses(
    style: str, tools: list[Any], at_least: int, parallel: bool
) -> None:
    asked = request(style, tools, at_least=at_least, parallel=parallel)
    grammar = tool_calls_grammar(asked, TOKENIZER)
    assert isinstance(grammar, LlguidanceGrammar if TREE in tools else AutomatonGrammar)
    texts = outputs(style)
    expected = {"none": at_least == 0, "one": True, "many": parallel, "wrong": False}
    for kind, is_right in expected.items():
        for text in texts[kind]:
            assert is_accepted(grammar, text) == is_right, (kind, text)


@pytest.mark.parametrize("style", list(STYLES))
def test_a_recursive_schema_of_one_tool_constrains_its_calls(style: str) -> None:
    grammar = tool_calls_grammar(request(style, [NOW, TREE], at_least=1), TOKENIZER)
    right = call(style, "plant", '{"branches": [{"branches": []}, {"branches": []}]}')
    whole = next(text for text in outputs(style)["one"] if call(style) in text)
    assert is_accepted(grammar, whole.replace(call(style), right))
    for arguments in ("{}", '{"branches": [{}]}', '{"branches": [1]}', "[]"):
        wrong = whole.replace(call(style), call(style, "plant", arguments))
        assert not is_accepted(grammar, wrong), wrong


def test_recursion_that_the_library_does_not_enforce_nests_to_a_bound() -> None:
    """An open object: its further properties hold any value."""
    tool = {"name": "note", "parameters": {"properties": {"id": {"type": "integer"}}}}
    grammar = tool_calls_grammar(request("hermes", [tool], at_least=1), TOKENIZER)
    assert isinstance(grammar, AutomatonGrammar)
    for arguments, is_right in (
        ('{"id": 1, "more": [{"a": null}]}', True),
        ("{}", True),
        ('{"id": "1"}', False),
        ('{"id": 1, "more": [{"a": nul}]}', False),
    ):
        whole = f"<tool_call>\n{call('hermes', 'note', arguments)}\n</tool_call>"
        assert is_accepted(grammar, whole) == is_right, arguments


FRAGMENTS = st.sampled_from(
    ["<tool_call>", "\n", "<tool", "[TOOL_CALLS]", " [", "[", "]", "<|python_tag|>", "{", "}", " ",
     "a", "\n</tool_call>", '{"name": "now", "arguments": {}}', '{"name": "now", "parameters": {}}',
     "; ", ", ", "<|", "\u00e9"]
)  # fmt: skip


@pytest.mark.parametrize("style", list(STYLES))
@settings(max_examples=150, deadline=None)
@given(
    fragments=st.lists(FRAGMENTS, max_size=8),
    at_least=st.integers(0, 1),
    is_parallel=st.booleans(),
)
def test_both_ways_to_compile_have_one_language(
    style: str, fragments: list[str], at_least: int, is_parallel: bool
) -> None:
    calls = parse_tool_calls(request(style, [NOW], at_least=at_least, parallel=is_parallel))
    key = (style, at_least, is_parallel)
    if key not in COMPILED:
        COMPILED[key] = (
            AutomatonGrammar(calls_pattern(calls), BYTES_ONLY),
            calls_grammar(_source(calls), BYTES_ONLY),
        )
    own, library = (grammar.matcher() for grammar in COMPILED[key])
    for byte in "".join(fragments).encode():
        assert allowed(own) == allowed(library)
        assert own.is_complete == library.is_complete
        assert own.forced_bytes() == library.forced_bytes()
        if byte + 1 not in allowed(own):
            break
        own.accept(byte + 1)
        library.accept(byte + 1)


COMPILED: dict[tuple[str, int, bool], tuple[Grammar, Grammar]] = {}


@pytest.mark.parametrize("tools", [[NOW], [NOW, TREE]], ids=["own", "library"])
@pytest.mark.parametrize(
    ("style", "control", "others"),
    [("llama3", PYTHON_TAG, {TOOL_CALLS, OTHER}), ("mistral", TOOL_CALLS, {PYTHON_TAG, OTHER})],
)
def test_the_trigger_may_be_a_control_token(
    style: str, control: int, others: set[int], tools: list[Any]
) -> None:
    grammar = tool_calls_grammar(request(style, tools), TOKENIZER)
    matcher = grammar.matcher()
    assert follows(matcher, "Well, ")
    assert control in allowed(matcher)
    assert not allowed(matcher) & others
    matcher.accept(control)
    assert control not in allowed(matcher)
    assert not matcher.is_complete
    rest = call(style, "now", "{}")
    assert follows(matcher, rest if style == "llama3" else f" [{rest}]")
    assert matcher.must_stop
    matcher.rollback(len(rest) + (0 if style == "llama3" else 3) + 1)
    assert control in allowed(matcher)
    spelled = grammar.matcher()  # as text it opens calls as well
    assert follows(spelled, STYLES[style].trigger)
    assert not spelled.is_complete


def test_without_such_a_token_the_trigger_is_text() -> None:
    assert with_control_text(BYTES_ONLY, "<tool_call>") is BYTES_ONLY
    assert with_control_text(TOKENIZER, "<tool_call>") is TOKENIZER  # an ordinary token
    view = with_control_text(TOKENIZER, "[TOOL_CALLS]")
    assert with_control_text(TOKENIZER, "[TOOL_CALLS]") is view
    assert [i for i in range(261) if view.is_control(i)] == [0, PYTHON_TAG, OTHER]
    matcher = tool_calls_grammar(request("mistral", [NOW]), BYTES_ONLY).matcher()
    assert follows(matcher, "[TOOL_CALLS]")
    assert allowed(matcher) == {ord(" ") + 1, ord("[") + 1}


def test_what_is_forced_after_the_trigger_is_known() -> None:
    matcher = tool_calls_grammar(request("hermes", [WEATHER]), TOKENIZER).matcher()
    assert matcher.forced_bytes() == b""
    matcher.accept(PIECES.index(b"<tool_call>"))
    assert matcher.forced_bytes() == b'\n{"name": "get_weather", "arguments": {"city": "'


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "no JSON"),
        ("[]", "must be an object"),
        ('{"style": "hermes"}', "The tools are None"),
        (request("xml", [NOW]), "'hermes', 'llama3', 'mistral' are allowed"),
        (request("hermes", []), "a list of 1 to 256"),
        (request("hermes", [NOW] * 257), "a list of 1 to 256"),
        (request("hermes", [NOW, NOW]), "given twice"),
        (request("hermes", ["now"]), "A tool must be an object"),
        (request("hermes", [{"name": ""}]), "The name of a tool"),
        (request("hermes", [{"name": "f", "strict": True}]), "the key 'strict'"),
        (request("hermes", [{"name": "f", "parameters": []}]), "The parameters of the tool 'f'"),
        (request("hermes", [NOW], at_least=2), "at_least of tool calls is 2"),
        (request("hermes", [NOW], at_least=True), "at_least of tool calls is True"),
        (request("hermes", [NOW], parallel=1), "parallel of tool calls is 1"),
        (request("hermes", [NOW], trigger="<x>"), "the key 'trigger'"),
        (request("hermes", [{"name": "f", "parameters": {"frob": 1}}]), "tool 'f'.*'frob'"),
        (request("hermes", [{"name": "f", "parameters": {"type": "object", "enum": [1]}}]),
         "tool 'f'"),
    ],
)  # fmt: skip
def test_a_request_that_cannot_be_used_is_refused(text: str, told: str) -> None:
    with pytest.raises((UserInputError, CapacityError), match=told) as caught:
        tool_calls_grammar(text, BYTES_ONLY)
    assert len(str(caught.value)) < 700


def test_the_compiler_knows_tool_calls() -> None:
    compiler = GrammarCompiler(TOKENIZER, TOKENIZER.vocab_size)
    constraint = Constraint(ConstraintKind.TOOL_CALLS, request("hermes", [NOW], at_least=1))
    grammar = compiler.compile(constraint)
    assert is_accepted(grammar, f"<tool_call>\n{call('hermes', 'now', '{}')}\n</tool_call>")
    assert compiler.compile(constraint) is grammar
