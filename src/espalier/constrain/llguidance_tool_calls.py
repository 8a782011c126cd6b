"""Tool calls by the llguidance library, for arguments whose schemas are no patterns.

Owns the spelling in the library's Lark. Which texts are calls is said by CallsSource.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from espalier.constrain.llguidance_grammar import LlguidanceGrammar
from espalier.constrain.llguidance_json import json_source
from espalier.constrain.matcher import MatcherTokenizer
from espalier.constraint import JsonWhitespace


@dataclass(frozen=True, slots=True)
class CallsSource:
    """Outputs with calls: free text, trigger, an opening, calls with `between`, the closing.

    Attributes:
        calls: of each tool the text before its arguments, their schema and the text after them.
        may_have_none: free text alone is an output too.
        starts_bare: outputs may begin with what follows the trigger, and then free text does not
            begin with "{".
    """

    trigger: str
    openings: tuple[str, ...]
    closing: str
    between: str
    calls: tuple[tuple[str, str, str], ...]
    is_parallel: bool
    may_have_none: bool
    starts_bare: bool


def calls_grammar(
    source: CallsSource, tokenizer: MatcherTokenizer, vocab_size: int | None = None
) -> LlguidanceGrammar:
    """The grammar of the outputs. Raises as LlguidanceGrammar."""
    return LlguidanceGrammar(_lark(source), tokenizer, vocab_size, what="The tool calls")


def _lark(source: CallsSource) -> str:
    # The head ends at the first trigger, and no other free text holds one.
    trigger = _regex(source.trigger)
    outputs = ["head calls"]
    if source.starts_bare:
        outputs.append("calls")
    if source.may_have_none:
        outputs += ['""', "FREE"]
    bare = r" & ~/[ \t\r\n]*\{(?s:.*)/" if source.starts_bare else ""
    openings = " | ".join(f"{_quoted(opening)} list" for opening in source.openings)
    more = f" ({_quoted(source.between)} call)*" if source.is_parallel else ""
    lines = [
        f"start: {' | '.join(outputs)}",
        "head[lazy]: HEAD",
        f"HEAD: /(?s:.*){trigger}/{bare}",
        f"FREE: /(?s:.+)/ & ~/(?s:.*){trigger}(?s:.*)/{bare}",
        f"calls: ({openings}) {_quoted(source.closing)}",
        f"list: call{more}",
        f"call: {' | '.join(f'call_{index}' for index in range(len(source.calls)))}",
    ]
    for index, (before, schema, after) in enumerate(source.calls):
        lines.append(f"call_{index}: {_quoted(before)} arguments_{index} {_quoted(after)}")
        lines.append(f"arguments_{index}: {json_source(schema, JsonWhitespace.SPACED)}")
    return "\n".join(lines)


def _quoted(text: str) -> str:
    return json.dumps(text)


def _regex(text: str) -> str:
    return "".join(f"\\x{{{ord(letter):x}}}" for letter in text)
