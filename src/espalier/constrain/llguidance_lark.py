"""Grammars that users write in llguidance's dialect of Lark, with what breaks a promise refused.

Owns which of the dialect's extensions are allowed. The dialect's meaning is the library's: its
lexer takes the longest terminal, so that a text which needs a shorter one is not in the language.
"""

from __future__ import annotations

import re

from espalier.constrain.llguidance_grammar import LlguidanceGrammar
from espalier.constrain.matcher import MatcherTokenizer
from espalier.errors import CapacityError, UnsupportedError, UserInputError

MAX_LARK_CHARS = 256 << 10
MAX_RULES = 8_000  # longer chains of rules would need more stack

# Strings, regexes and comments, in which nothing is syntax. A "/" that starts no comment starts a
# regex; neither strings nor regexes hold a line end.
_OPAQUE = re.compile(
    r'//[^\n]*|\#[^\n]*|"(?:[^"\\\n]|\\.)*"|/(?![/*])(?:[^/\\\n]|\\.)+/', re.DOTALL
)
_LOST = {
    "stop": "text that it hides would have to be taken back; use suffix= or lazy",
    "stop_capture": "captures are not returned",
    "max_tokens": "what may follow depends on the text alone; bound the terminal, as in /.{1,80}/",
    "temperature": "one generation has one temperature",
}
_ATTRIBUTE = re.compile(rf"[\[,]\s*({'|'.join(_LOST)})\s*=")
_OPTIONS = re.compile(r"%llguidance\s*\{([^}]*)\}?")


def lark_grammar(
    text: str, tokenizer: MatcherTokenizer, vocab_size: int | None = None
) -> LlguidanceGrammar:
    """Texts of the rule `start`.

    Raises UserInputError for a grammar that is not understood or that no text matches,
    UnsupportedError for special tokens and for `stop`, `max_tokens` and `temperature` of a rule,
    CapacityError for one beyond the limits.
    """
    _check(text)
    return LlguidanceGrammar(text, tokenizer, vocab_size, what="The Lark grammar")


def _check(text: str) -> None:
    if len(text) > MAX_LARK_CHARS:
        raise CapacityError(
            f"The Lark grammar has {len(text)} characters; at most {MAX_LARK_CHARS} are allowed."
        )
    options = [match for match in _OPTIONS.findall(text) if match.strip()]
    if options:
        raise UnsupportedError(
            f"The Lark grammar sets %llguidance {{{options[0][:80]}}}; only an empty object is "
            "allowed. Leave the options out."
        )
    syntax = _OPAQUE.sub('""', text)
    if syntax.count(":") > MAX_RULES:
        raise CapacityError(
            f"The Lark grammar has {syntax.count(':')} rules; at most {MAX_RULES} are allowed."
        )
    lost = _ATTRIBUTE.search(syntax)
    if lost:
        raise UnsupportedError(
            f"The Lark grammar gives a rule {lost[1]}=, which is not supported: {_LOST[lost[1]]}."
        )
    if "<" in syntax:
        start = syntax.index("<")
        raise UnsupportedError(
            f"The Lark grammar names the special token {syntax[start : start + 40]!r}; text alone "
            'is allowed. Write what the token spells as a string: "<name>".'
        )
    if not text.strip():
        raise UserInputError("The Lark grammar is empty; a rule `start` is needed.")
