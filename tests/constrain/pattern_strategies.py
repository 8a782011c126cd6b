"""Small random patterns and vocabularies, for automata against their naive twin."""

from __future__ import annotations

from hypothesis import strategies as st
from tests.constrain.tiny_vocabulary import TinyTokenizer

from espalier.constrain.pattern import (
    ANY_CHARACTER,
    EMPTY,
    NOTHING,
    Alternation,
    Both,
    CharClass,
    Concat,
    Literal,
    Pattern,
    Repeat,
    Without,
)

E_ACUTE, GRIN, HAN = "\u00e9", "\U0001f600", "\u4e2d"

# Ends of text first and last, a control token whose text could match, an empty token, two tokens of
# the same bytes, parts of characters, characters with more behind them, a byte that no text has.
PIECES = [b"<end>", b"a", b"b", b"1", b"ab", b"ba", b"aab", b"ab", b"<ab>", b"", b"a1-", b"\xc3",
          b"\xa9", b"\xa9a", E_ACUTE.encode(), b"\xff", GRIN.encode(), GRIN.encode()[:2],
          GRIN.encode()[2:] + b"b", HAN.encode()[1:], b"\xe4", b"aaaaaaaa", b"\xf0\x9f",
          b"<eot>"]  # fmt: skip
TINY = TinyTokenizer(PIECES, control={8}, eos_ids={0, 23})

# Every byte, so that every text can be spelled, and some longer ones.
COMPLETE = TinyTokenizer(
    [bytes([byte]) for byte in range(256)] + PIECES[1:-1] + [b"<end>"],
    control={263},
    eos_ids={256 + len(PIECES) - 2},
)

CLASSES = [
    ANY_CHARACTER,
    CharClass(()),
    CharClass(((0x61, 0x62),)),
    CharClass(((0x61, 0x61), (0xE9, 0xE9))),
    CharClass(((0xE0, 0x4E2D),)),
    CharClass(((0x0, 0x60), (0x63, 0x10FFFF))),
    CharClass(((0x1F600, 0x1F64F),)),
    CharClass(((0xD800, 0xDFFF),)),
    CharClass(((0x7F, 0x80), (0x7FF, 0x800), (0xFFFF, 0x10000))),
    CharClass(((0x31, 0x31), (0x4E00, 0x4EFF), (0x1F600, 0x10FFFF))),
]
LEAVES: list[Pattern] = [
    EMPTY, NOTHING, Literal("a"), Literal("ab"), Literal("b1"), Literal(E_ACUTE),
    Literal(GRIN + "b"), Literal("a" * 9), Concat(()), Literal("\ud800"), *CLASSES,
]  # fmt: skip


def _composites(inner: st.SearchStrategy[Pattern]) -> st.SearchStrategy[Pattern]:
    parts = st.lists(inner, min_size=1, max_size=3).map(tuple)
    bounds = st.tuples(st.integers(0, 3), st.one_of(st.none(), st.integers(0, 12)))
    return st.one_of(
        parts.map(Concat),
        parts.map(Concat),
        parts.map(Alternation),
        st.tuples(inner, bounds).map(lambda pair: Repeat(pair[0], *pair[1])),
        st.tuples(inner, bounds).map(lambda pair: Repeat(pair[0], *pair[1])),
        st.tuples(inner, inner).map(lambda pair: Both(*pair)),
        st.tuples(inner, inner).map(lambda pair: Without(*pair)),
        inner.map(lambda part: Concat((part, Literal("-"), part))),
    )


def patterns(max_leaves: int = 6) -> st.SearchStrategy[Pattern]:
    """Patterns of every kind, some with no text."""
    return st.recursive(st.sampled_from(LEAVES), _composites, max_leaves=max_leaves)


def json_string(low: int, high: int | None) -> Pattern:
    """A JSON string of so many characters."""
    plain = CharClass(((0x20, 0x21), (0x23, 0x5B), (0x5D, 0x10FFFF)))
    hex_digit = CharClass(((0x30, 0x39), (0x41, 0x46), (0x61, 0x66)))
    escaped = Alternation((CharClass(((0x22, 0x22), (0x5C, 0x5C), (0x6E, 0x6E))),
                           Concat((Literal("u"), Repeat(hex_digit, 4, 4)))))  # fmt: skip
    character = Alternation((plain, Concat((Literal("\\"), escaped))))
    return Concat((Literal('"'), Repeat(character, low, high), Literal('"')))
