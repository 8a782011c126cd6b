"""JSON schemas by the llguidance library: for those that Espalier's own automaton cannot hold.

Owns the spelling of a schema and of whitespace for the library. Which keywords the library enforces
is not known here: a schema must have been checked before.
"""

from __future__ import annotations

import json

from espalier.constrain.llguidance_grammar import LlguidanceGrammar
from espalier.constrain.matcher import MatcherTokenizer
from espalier.constraint import JsonWhitespace
from espalier.errors import CapacityError, UnsupportedError, UserInputError

MAX_CHAIN = 2_000  # references and levels below each other; more would need more stack

_SEPARATORS = {JsonWhitespace.COMPACT: (",", ":"), JsonWhitespace.SPACED: (", ", ": ")}


def json_schema_grammar(
    text: str,
    whitespace: JsonWhitespace,
    tokenizer: MatcherTokenizer,
    vocab_size: int | None = None,
) -> LlguidanceGrammar:
    """JSON texts that a schema (as JSON text) allows, with exactly the given whitespace.

    Raises UserInputError for a schema that is no JSON or that nothing satisfies, UnsupportedError
    for keywords that the library does not know and for whitespace "pretty", CapacityError for a
    schema beyond the limits.
    """
    lark = f"start: {json_source(text, whitespace)}"
    return LlguidanceGrammar(lark, tokenizer, vocab_size, what="The JSON schema")


def json_source(text: str, whitespace: JsonWhitespace) -> str:
    """A schema as a part of the library's Lark. Raises as `json_schema_grammar`."""
    separators = _SEPARATORS.get(whitespace)
    if separators is None:
        raise UnsupportedError(
            "The JSON schema is recursive or too large for Espalier's own automaton, and then "
            "whitespace='pretty' is not supported, because the depth decides the indentation. "
            "Use whitespace='compact' or 'spaced', or bound the depth of the schema."
        )
    return f"%json {json.dumps(_with_separators(_parsed(text), separators))}"


def _parsed(text: str) -> dict[str, object]:
    try:
        schema = json.loads(text)
    except RecursionError:
        raise CapacityError("The JSON schema is nested too deeply. Use a flatter one.") from None
    except ValueError as error:
        raise UserInputError(f"The JSON schema is no JSON: {error}.") from None
    if schema is False:
        raise UserInputError("The JSON schema is false, which nothing satisfies.")
    if schema is True:
        schema = {}
    if not isinstance(schema, dict):
        raise UserInputError(
            f"The JSON schema is a {type(schema).__name__}; an object or true is allowed."
        )
    if "x-guidance" in schema:
        raise UnsupportedError(
            "The JSON schema has the key 'x-guidance', which is not supported. Leave it out and "
            "choose the whitespace beside the schema."
        )
    chain = _longest_chain(schema)
    if chain > MAX_CHAIN:
        raise CapacityError(
            f"The JSON schema's references and levels make chains of up to {chain}; at most "
            f"{MAX_CHAIN} are allowed. Use fewer references."
        )
    return schema


def _with_separators(schema: dict[str, object], separators: tuple[str, str]) -> dict[str, object]:
    item, key = separators
    spelling = {"whitespace_flexible": False, "item_separator": item, "key_separator": key}
    return {**schema, "x-guidance": spelling}


def _longest_chain(schema: object) -> int:
    """A bound of how deep the library recurses: every reference once, and the levels below it."""
    references: set[str] = set()
    deepest = 0
    stack: list[tuple[object, int]] = [(schema, 1)]
    while stack:
        value, depth = stack.pop()
        deepest = max(deepest, depth)
        if isinstance(value, dict):
            target = value.get("$ref")
            if isinstance(target, str):
                references.add(target)
            stack.extend((inner, depth + 1) for inner in value.values())
        elif isinstance(value, list):
            stack.extend((inner, depth + 1) for inner in value)
    return deepest + 2 * len(references)
