"""Tool calls as grammars: free text until the trigger, and a call of a known tool after it.

A constraint of kind TOOL_CALLS is a JSON object:
    {"style": "hermes" | "llama3" | "mistral",
     "tools": [{"name": TEXT, "parameters": SCHEMA, "description": TEXT}, ...],
     "at_least": 0 | 1, "parallel": true | false}
`parameters` is {} and `description` left out unless given; `at_least` is 0 and `parallel` false
unless given. The styles, as the models' chat templates write them (JSON with one space after
colons and commas):
    hermes   TEXT<tool_call>\\n{"name": "f", "arguments": {...}}\\n</tool_call>
             and with `parallel` more of them, each on a line of its own; also Qwen
    llama3   {"name": "f", "parameters": {...}}, at the start or after TEXT<|python_tag|>,
             and with `parallel` more of them after "; "
    mistral  TEXT[TOOL_CALLS] [{"name": "f", "arguments": {...}}], with `parallel` longer lists;
             the space may be missing
TEXT is any text without the trigger, and in llama3 none that begins with "{". With `at_least` 0 the
output may be TEXT alone. The trigger may be written as the control token that spells it.

Owns the request and the languages. Knows no automaton: schemas become patterns, or parts of a
grammar of the llguidance library where one of them does not.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from espalier.constrain.automaton import AutomatonGrammar
from espalier.constrain.control_text import with_control_text
from espalier.constrain.llguidance_tool_calls import CallsSource, calls_grammar
from espalier.constrain.matcher import Grammar, MatcherTokenizer
from espalier.constrain.pattern import (
    ANY_TEXT,
    Alternation,
    CharClass,
    Concat,
    Literal,
    Pattern,
    Repeat,
    Without,
)
from espalier.constrain.schema import (
    CheckedSchema,
    NotRegular,
    bounded_schema_pattern,
    check_schema,
    llguidance_enforces,
    schema_pattern,
)
from espalier.constraint import JsonWhitespace
from espalier.errors import CapacityError, UserInputError, shown

MAX_TOOLS = 256

SchemaPattern = Callable[[CheckedSchema, JsonWhitespace], Pattern]

_SPACE = Repeat(CharClass(((9, 10), (13, 13), (32, 32))), 0, None)


@dataclass(frozen=True, slots=True)
class CallStyle:
    """How a family of models writes calls.

    Attributes:
        trigger: what opens the calls.
        arguments: the name that arguments go by.
        opening, closing: around all calls of an output, after the trigger.
        before, after: around each call.
        between: before each further call.
        starts_bare: a call may be the whole output, without a trigger.
    """

    trigger: str
    arguments: str
    opening: tuple[str, ...] = ("",)
    closing: str = ""
    before: str = ""
    after: str = ""
    between: str = ""
    starts_bare: bool = False


STYLES = {
    "hermes": CallStyle(
        "<tool_call>", "arguments", before="\n", after="\n</tool_call>", between="\n<tool_call>"
    ),
    "llama3": CallStyle("<|python_tag|>", "parameters", between="; ", starts_bare=True),
    "mistral": CallStyle(
        "[TOOL_CALLS]", "arguments", opening=(" [", "["), closing="]", between=", "
    ),
}


@dataclass(frozen=True, slots=True)
class ToolCalls:
    """A request that was read. `tools`: names, and schemas of their arguments as JSON text."""

    style: CallStyle
    tools: tuple[tuple[str, str], ...]
    at_least: int
    is_parallel: bool


def tool_calls_grammar(
    text: str, tokenizer: MatcherTokenizer, vocab_size: int | None = None
) -> Grammar:
    """The grammar of a constraint of kind TOOL_CALLS.

    Raises UserInputError for a request that is not understood and for schemas that cannot be
    enforced, CapacityError for one beyond a limit.
    """
    calls = parse_tool_calls(text)
    tokenizer = with_control_text(tokenizer, calls.style.trigger)
    try:
        pattern = calls_pattern(calls)
    except NotRegular:
        if all(llguidance_enforces(check_schema(schema)) for _, schema in calls.tools):
            # What the library does not read may have a pattern up to a bound.
            with suppress(UserInputError, CapacityError):
                return calls_grammar(_source(calls), tokenizer, vocab_size)
        pattern = calls_pattern(calls, bounded_schema_pattern)
    return AutomatonGrammar(pattern, tokenizer, vocab_size)


def parse_tool_calls(text: str) -> ToolCalls:
    """Reads a request; raises UserInputError."""
    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserInputError(f"The tool calls are no JSON: {error}.") from None
    values = _members(given, {"style", "tools", "at_least", "parallel"}, "The tool calls")
    style = values.get("style")
    if not isinstance(style, str) or style not in STYLES:
        raise UserInputError(
            f"The style of tool calls is {shown(style)}; {', '.join(map(repr, STYLES))} are "
            "allowed."
        )
    at_least, is_parallel = values.get("at_least", 0), values.get("parallel", False)
    if isinstance(at_least, bool) or at_least not in (0, 1):
        raise UserInputError(f"at_least of tool calls is {shown(at_least)}; 0 and 1 are allowed.")
    if not isinstance(is_parallel, bool):
        raise UserInputError(
            f"parallel of tool calls is {shown(is_parallel)}; true and false are allowed."
        )
    tools = values.get("tools")
    if not isinstance(tools, list) or not 1 <= len(tools) <= MAX_TOOLS:
        raise UserInputError(
            f"The tools are {shown(tools)}; a list of 1 to {MAX_TOOLS} objects is allowed."
        )
    return ToolCalls(STYLES[style], _tools(tools), at_least, is_parallel)


def _tools(given: list[Any]) -> tuple[tuple[str, str], ...]:
    schemas: dict[str, str] = {}
    for tool in given:
        values = _members(tool, {"name", "parameters", "description"}, "A tool")
        name, parameters = values.get("name"), values.get("parameters", {})
        if not isinstance(name, str) or not name:
            raise UserInputError(f"The name of a tool is {shown(name)}; a text is allowed.")
        if name in schemas:
            raise UserInputError(f"The tool {name!r} is given twice; each name once is allowed.")
        if not isinstance(parameters, dict):
            raise UserInputError(
                f"The parameters of the tool {name!r} are {shown(parameters)}; a JSON schema of "
                "an object is allowed."
            )
        # Arguments are an object, also where the schema does not say so.
        schemas[name] = json.dumps({"type": "object", **parameters})
    return tuple(schemas.items())


def _members(value: Any, allowed: set[str], what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UserInputError(f"{what} must be an object; {shown(value)} is given.")
    unknown = sorted(set(value) - allowed)
    if unknown:
        raise UserInputError(
            f"{what} has the key {unknown[0]!r}; {', '.join(sorted(allowed))} are allowed."
        )
    return value


def calls_pattern(calls: ToolCalls, schema_pattern: SchemaPattern = schema_pattern) -> Pattern:
    """The outputs as a pattern. Raises as `schema_pattern`; a UserInputError names the tool."""
    style = calls.style
    arguments = [_arguments(name, schema, schema_pattern) for name, schema in calls.tools]
    call = Alternation(
        tuple(
            Concat((Literal(_call_start(style, name)), pattern, Literal("}" + style.after)))
            for (name, _), pattern in zip(calls.tools, arguments, strict=True)
        )
    )
    more = Concat((Literal(style.between), call))
    listed = Concat((call, Repeat(more, 0, None))) if calls.is_parallel else call
    opening = Alternation(tuple(map(Literal, style.opening)))
    after_trigger = Concat((opening, listed, Literal(style.closing)))
    outputs: list[Pattern] = [
        Concat((free_text(style), Literal(style.trigger), after_trigger)),
    ]
    if style.starts_bare:
        outputs.append(after_trigger)
    if calls.at_least == 0:
        outputs.append(free_text(style))
    return Alternation(tuple(outputs))


def free_text(style: CallStyle) -> Pattern:
    """Texts in which no call begins."""
    triggered = Concat((ANY_TEXT, Literal(style.trigger), ANY_TEXT))
    if not style.starts_bare:
        return Without(ANY_TEXT, triggered)
    bare = Concat((_SPACE, Literal("{"), ANY_TEXT))
    return Without(ANY_TEXT, Alternation((triggered, bare)))


def _arguments(name: str, schema: str, schema_pattern: SchemaPattern) -> Pattern:
    """What is wrong with a schema is said with the tool's name."""
    try:
        return schema_pattern(check_schema(schema), JsonWhitespace.SPACED)
    except UserInputError as error:
        raise UserInputError(f"The parameters of the tool {name!r}: {error}") from None


def _call_start(style: CallStyle, name: str) -> str:
    spelled = json.dumps(name, ensure_ascii=False)
    return f'{style.before}{{"name": {spelled}, "{style.arguments}": '


def _source(calls: ToolCalls) -> CallsSource:
    style = calls.style
    return CallsSource(
        trigger=style.trigger,
        openings=style.opening,
        closing=style.closing,
        between=style.between,
        calls=tuple(
            (_call_start(style, name), schema, "}" + style.after) for name, schema in calls.tools
        ),
        is_parallel=calls.is_parallel,
        may_have_none=calls.at_least == 0,
        starts_bare=style.starts_bare,
    )
