"""Regular expressions for the llguidance library: grammars to test its matchers with."""

from __future__ import annotations

from llguidance import regex_to_lark

from espalier.constrain.llguidance_grammar import LlguidanceGrammar
from espalier.constrain.matcher import MatcherTokenizer
from espalier.errors import UserInputError, shown

MAX_REGEX_CHARS = 16_384


def regex_grammar(
    pattern: str, tokenizer: MatcherTokenizer, vocab_size: int | None = None
) -> LlguidanceGrammar:
    """Texts that `pattern` matches as a whole.

    The syntax is that of Rust's regex crate, near Python's: no look-around, no back-references, no
    word boundaries. `\\d`, `\\w` and `\\s` mean Unicode's classes, as in Python. `vocab_size` is
    the width of the model's logits where it exceeds the tokenizer's vocabulary. Raises
    UserInputError for a pattern that is too long, not understood, beyond the limits, or matched by
    no text.
    """
    if len(pattern) > MAX_REGEX_CHARS:
        raise UserInputError(
            f"The regular expression has {len(pattern)} characters; at most "
            f"{MAX_REGEX_CHARS} are allowed."
        )
    lark = f"start: /{regex_to_lark(pattern, '')}/"
    return LlguidanceGrammar(
        lark,
        tokenizer,
        vocab_size,
        what=f"The regular expression {shown(pattern)}",
        hint="Look-around, back-references and word boundaries are not supported.",
    )
