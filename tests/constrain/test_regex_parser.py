"""Regular expressions mean what `re.fullmatch` says; what is refused says what and where."""

from __future__ import annotations

import random
import re
import warnings
from collections.abc import Iterator

import pytest
from tests.constrain.regex_pairs import regex_cases

from espalier.constrain.dtype import DTYPES, dtype_pattern
from espalier.constrain.membership import is_member
from espalier.constrain.pattern import (
    ANY_CHARACTER,
    ANY_TEXT,
    EMPTY,
    NOTHING,
    Alternation,
    CharClass,
    Concat,
    Literal,
    Pattern,
    Repeat,
)
from espalier.constrain.regex_limits import MAX_DEPTH
from espalier.constrain.regex_parser import MAX_OPEN_GROUPS, MAX_REGEX_CHARS, parse_regex
from espalier.constrain.regex_quantifiers import MAX_REPEAT_COUNT
from espalier.errors import UserInputError

NUM_REGEXES, NUM_TEXTS = 1_400, 20  # for each of four seeds: 112,000 pairs
REASONS_OF_OUR_OWN = (
    "not supported",
    "too many anchors",
    "flags of the whole expression",  # what Python 3.10 still allows
)


@pytest.fixture(autouse=True)
def _no_warnings_of_python() -> Iterator[None]:
    # Of [[ and the like: their meaning is today's. Of flags in the middle, in Python 3.10.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


@pytest.mark.parametrize("seed", [11, 12, 13, 14])
def test_fullmatch_says_the_same_of_random_pairs(seed: int) -> None:
    num_refused = num_matches = 0
    for case in regex_cases(seed, NUM_REGEXES, NUM_TEXTS):
        try:
            pattern = parse_regex(case.regex)
        except UserInputError as error:
            assert "anchor" in str(error)  # noqa: PT017
            num_refused += 1
            continue
        expression = re.compile(case.regex)
        for text in case.texts:
            matches = expression.fullmatch(text) is not None
            assert is_member(pattern, text) == matches, (case.regex, text)
            num_matches += matches
    assert num_refused < NUM_REGEXES / 100
    assert num_matches > NUM_REGEXES * NUM_TEXTS / 4


def test_what_python_refuses_is_refused_and_the_rest_means_the_same() -> None:
    source = random.Random(7)
    pieces = [*"ab01-^$|*+?.(){}[]\\,:<>=!#&~ \n", "(?", "(?P<a>", "(?i)", "(?x)", "{2,", "[^"]
    pieces += [
        r"\b",
        r"\d",
        r"\Z",
        r"\x4",
        r"\u00",
        r"\12",
        r"\N{DIGIT ONE}",
        "(?m:",
        "(?-s:",
        "(?au)",
    ]
    num_accepted = 0
    for _ in range(30_000):
        regex = "".join(source.choices(pieces, k=source.randrange(1, 9)))
        try:
            expression: re.Pattern[str] | None = re.compile(regex)
        except (re.error, ValueError, OverflowError):
            expression = None
        try:
            pattern = parse_regex(regex)
        except UserInputError as error:
            reason = str(error)
            assert expression is None or any(own in reason for own in REASONS_OF_OUR_OWN), regex
            continue
        assert expression is not None, regex
        num_accepted += 1
        for _ in range(4):
            text = "".join(source.choices("aab01-^{},]\n ", k=source.randrange(4)))
            assert is_member(pattern, text) == bool(expression.fullmatch(text)), (regex, text)
    assert num_accepted > 5_000


CHARACTER = CharClass(((0, 9), (11, 0xD7FF), (0xE000, 0x10FFFF)))


@pytest.mark.parametrize(
    ("regex", "pattern"),
    [
        ("", EMPTY),
        ("abc", Literal("abc")),
        ("a(?:b)(c)d(?P<e>e)", Literal("abcde")),
        (r"\x41\u00e9\U0001F600\101\0\n\.\-\\", Literal("Aé😀A\0\n.-\\")),
        (r"\N{EM DASH}[\N{EM DASH}]", Literal("——")),
        ("[a]b", Literal("ab")),
        ("a|b|c", CharClass(((97, 99),))),
        ("b|a", Alternation((Literal("b"), Literal("a")))),
        ("ab|ab|c", Alternation((Literal("ab"), Literal("c")))),
        ("(?:a|(?:bc|d))", Alternation((Literal("a"), Literal("bc"), Literal("d")))),
        (".", CHARACTER),
        ("(?s).", ANY_CHARACTER),
        (r"(.|\n)*", ANY_TEXT),
        (r"[\s\S]*?", ANY_TEXT),
        ("ab*", Concat((Literal("a"), Repeat(Literal("b"), 0, None)))),
        ("(ab)*", Repeat(Literal("ab"), 0, None)),
        ("a{3}b{1}c{0}", Literal("aaab")),
        ("a{,2}", Repeat(Literal("a"), 0, 2)),
        ("a{,}", Repeat(Literal("a"), 0, None)),
        ("a{2,}?", Repeat(Literal("a"), 2, None)),
        ("((a*)+)?", Repeat(Literal("a"), 0, None)),
        ("(a+){3,}", Repeat(Literal("a"), 3, None)),
        ("(a|a)*", Repeat(Literal("a"), 0, None)),
        ("(a?){4}", Repeat(Literal("a"), 0, 4)),
        ("a{x}{2{2,1", Literal("a{x}{2{2,1")),
        ("{a}", Literal("{a}")),
        ("a]}", Literal("a]}")),
        ("[]-]", CharClass(((45, 45), (93, 93)))),
        (r"[\b\]a-c-]", CharClass(((8, 8), (45, 45), (93, 93), (97, 99)))),
        ("[^\x00-\U0010ffff]", NOTHING),
        ("a[^\\s\\S]", NOTHING),
        ("\ud800|a", Literal("a")),
        (r"[\ud800a]", Literal("a")),
        ("(?x) a  b # to the end \\\n still ( [\n c\\ d", Literal("abc d")),
        ("a(?#what (ever \\))b", Literal("ab")),
        ("(?i)a1", Concat((CharClass(((65, 65), (97, 97))), Literal("1")))),
        ("(?i:a)a", Concat((CharClass(((65, 65), (97, 97))), Literal("a")))),
        ("(?is)(?a)[k].", Concat((CharClass(((75, 75), (107, 107))), ANY_CHARACTER))),
        ("(?i)(?-i:a)(?u:1)", Literal("a1")),
        ("(?a)\\d", CharClass(((48, 57),))),
    ],
)
def test_regex_becomes_the_simplest_pattern(regex: str, pattern: Pattern) -> None:
    assert parse_regex(regex) == pattern


@pytest.mark.parametrize(
    ("regex", "pattern"),
    [
        ("^ab$", Literal("ab")),
        (r"\Aab\Z", Literal("ab")),
        ("^^ab$$", Literal("ab")),
        ("^a$|^bc$", Alternation((Literal("a"), Literal("bc")))),
        ("(^(a)$)", Literal("a")),
        ("a^b", NOTHING),
        ("a$b|c", Literal("c")),
        ("a*^b", Literal("b")),
        ("a*^b*", Repeat(Literal("b"), 0, None)),
        ("a$\n?", Alternation((Literal("a"), Literal("a\n")))),
        ("a\\Z\n?", Literal("a")),
        ("a$\n", Literal("a\n")),
        ("a$\nb", NOTHING),
        ("a$\n{2}", NOTHING),
        ("(?m)^a$\n^b$", Literal("a\nb")),
        ("(?m)a$b", NOTHING),
        ("(?m)^a$(?:\n^b$)*", Concat((Literal("a"), Repeat(Literal("\nb"), 0, None)))),
        ("(?m)\\Aa\n\\Ab", NOTHING),
        ("(?:^a)*", Repeat(Literal("a"), 0, 1)),
        ("(?:^|b){2}c", Concat((Repeat(Literal("b"), 0, 2), Literal("c")))),
    ],
)
def test_anchors_are_replaced_by_what_they_mean(regex: str, pattern: Pattern) -> None:
    found = parse_regex(regex)
    expression = re.compile(regex)
    for text in _texts_over("abc\n", 4):
        assert is_member(found, text) == bool(expression.fullmatch(text)), text
        assert is_member(pattern, text) == bool(expression.fullmatch(text)), text


QUANTIFIERS = ["*", "+", "?", "{2}", "{1,2}", "{2,}", "{,2}", "*?", "{0}"]


@pytest.mark.parametrize("outer", QUANTIFIERS)
def test_repeats_in_repeats_mean_what_fullmatch_says(outer: str) -> None:
    texts = list(_texts_over("ab", 5))
    for inner in QUANTIFIERS:
        bodies = [
            f"a{inner}",
            f"a{inner}|b",
            f"a{inner}b?",
            f"(?:a{inner}b{inner})?",
            f"a|b{inner}^",
        ]
        for body in bodies:
            regex = f"(?:{body}){outer}b?"
            try:
                pattern = parse_regex(regex)
            except UserInputError as error:
                assert "^" in body, regex
                assert "anchor" in str(error)  # noqa: PT017
                continue
            expression = re.compile(regex)
            for text in texts:
                assert is_member(pattern, text) == bool(expression.fullmatch(text)), (regex, text)


def _texts_over(alphabet: str, max_chars: int) -> Iterator[str]:
    texts = [""]
    for _ in range(max_chars):
        yield from texts
        texts = [text + character for text in texts for character in alphabet]


@pytest.mark.parametrize(
    ("regex", "position", "reason"),
    [
        # Not supported.
        ("a(?=b)", 1, "look-ahead, is not supported"),
        ("a(?!b)", 1, "look-ahead, is not supported"),
        ("(?<=a)b", 0, "look-behind, is not supported"),
        ("(?<!a)b", 0, "look-behind, is not supported"),
        (r"(a)b\1", 4, r"\1 is a back-reference, which is not supported"),
        (r"(a)\18", 3, r"\18 is a back-reference, which is not supported"),
        ("(?P<n>a)(?P=n)", 8, "a back-reference, is not supported"),
        ("(a)?(?(1)b|c)", 4, "a conditional, is not supported"),
        ("x(?>a*)", 1, "an atomic group, is not supported"),
        ("xa*+", 2, "a possessive quantifier, which is not supported"),
        ("xa{1,2}+", 2, "{1,2}+ is a possessive quantifier"),
        (r"\bword", 0, r"\b, a word boundary"),
        (r"a\B", 1, r"\B, a word boundary"),
        ("(?m)(?:^a\n?)*", 12, "an anchor that holds in some rounds"),
        # What Python refuses as well.
        ("a(b", 1, "the group is not closed"),
        ("a)b", 1, "no group for the ) to close"),
        ("a[bc", 1, "the [ is not closed"),
        ("[]", 0, "the [ is not closed"),
        ("*a", 0, "nothing for the * to repeat"),
        ("a|+", 2, "nothing for the + to repeat"),
        ("(?i)?", 4, "nothing for the ? to repeat"),
        ("^*", 1, "the * cannot repeat an anchor"),
        ("a**", 2, "the * follows another quantifier"),
        ("a{2}{3}", 4, "the { follows another quantifier"),
        ("a{3,2}", 1, "{3,2} has its counts in the wrong order"),
        ("a[z-b]", 2, "the range z-b ends before it begins"),
        (r"[\d-z]", 1, r"the range \d-z has a class as an end"),
        (r"[a-\w]", 1, r"the range a-\w has a class as an end"),
        (r"a\q", 1, r"\q is no escape"),
        (r"[\A]", 1, r"\A is no escape"),
        (r"[\8]", 1, r"\8 is no escape"),
        ("a\\", 1, "escapes nothing"),
        (r"\x4g", 0, r"\x4 needs 2 hexadecimal digits"),
        (r"\u12", 0, r"\u12 needs 4 hexadecimal digits"),
        (r"[a\U00110000]", 2, r"\U00110000 is above \U0010ffff"),
        (r"\400", 0, r"\400 is above \377"),
        (r"\N{NO SUCH THING}", 0, "'NO SUCH THING' is the name of no character"),
        (r"\Nx", 0, "needs the name of a character in braces"),
        ("(?P<1a>b)", 0, "'1a' cannot be the name of a group"),
        ("(?P<a", 0, "the name of the group is not closed"),
        ("(?P<a>b)(?P<a>c)", 8, "a second group has the name 'a'"),
        ("(?Px)", 0, "(?Px begins no kind of group"),
        ("(?*)", 0, "(?*) begins no kind of group"),
        ("(?", 0, "(? begins no kind of group"),
        ("(?#abc", 0, "the comment is not closed"),
        ("a(?i)b", 1, "flags of the whole expression stand at its beginning"),
        ("((?i)b)", 1, "flags of the whole expression stand at its beginning"),
        ("(?iy)b", 3, "'y' is no flag"),
        ("(?L)b", 2, "'L' is no flag"),
        ("(?au)b", 2, "the flags a and u exclude each other"),
        ("(?a)(?u)b", 4, "the flags a and u exclude each other"),
        ("(?i-i:b)", 2, "a flag is turned on and off at once"),
        ("(?-a:b)", 2, "the flags a and u cannot be turned off"),
        ("(?-:b)", 3, "a flag is missing after -"),
        ("(?i", 3, "the flags are not ended"),
        # Limits.
        ("a?$" * 102, 0, "101 anchors stand elsewhere than at the start or the end"),
        (f"a{{{MAX_REPEAT_COUNT + 1}}}", 1, f"{MAX_REPEAT_COUNT + 1} is above {MAX_REPEAT_COUNT}"),
        ("a{" + "9" * 5000 + "}", 1, "99999... is above"),
        ("(" * (MAX_OPEN_GROUPS + 1), MAX_OPEN_GROUPS, "groups are nested deeper"),
        ("(?:a|b" * 400 + ")*" * 400, 0, f"at most {MAX_DEPTH} are allowed"),
        ("(?:a|^" * 300 + ")" * 300, 0, "nested"),
    ],
)
def test_refused_regex_says_what_and_where(regex: str, position: int, reason: str) -> None:
    with pytest.raises(UserInputError) as caught:
        parse_regex(regex)
    message = str(caught.value)
    assert message.startswith("The regular expression '")
    assert f"cannot be used: at position {position}, " in message
    assert reason in message
    assert len(message) < 600


def test_too_long_or_not_text_is_refused() -> None:
    assert parse_regex("a" * MAX_REGEX_CHARS) == Literal("a" * MAX_REGEX_CHARS)
    with pytest.raises(UserInputError, match="has 16385 characters; at most 16384 are allowed"):
        parse_regex("a" * (MAX_REGEX_CHARS + 1))
    with pytest.raises(UserInputError, match="is b'a'; text is allowed"):
        parse_regex(b"a")  # type: ignore[arg-type]


def test_a_thousand_groups_work() -> None:
    assert parse_regex("(" * 1000 + "a" + ")" * 1000) == Literal("a")
    assert parse_regex("(?:" * 1000 + "a" + ")*" * 1000) == Repeat(Literal("a"), 0, None)
    assert parse_regex("(^" * 1000 + "a" + "$)" * 1000) == Literal("a")


@pytest.mark.parametrize(
    "regex",
    [
        "a?^" * 5000,
        "a?$" * 5000,
        "(?m)" + "[a\n]?^" * 2500,
        "(?m)" + "[a\n]?$^" * 2000,
        "(?m)" + "(?:a$|\n|^)" * 1400,
        "(?m)" + "(?:a*|$|^)" * 1500,
        "(?:a?^" * 60 + ")?" * 60,
        r"[\w.]" * 3000,
        "(?i)" + "".join(f"[{chr(0x4E00 + index)}-\uffff]" for index in range(2500)),
        "|" * 16_000,
        "|".join("ab" * 4000),
        "((a{1,1000}){1,1000}){1,1000}",
    ],
    ids=lambda regex: regex[:20],
)
def test_hostile_regex_is_parsed_or_refused_within_bounds(regex: str) -> None:
    try:
        pattern = parse_regex(regex)
    except UserInputError as error:
        assert "anchors" in str(error)  # noqa: PT017
    else:
        assert isinstance(pattern, (Literal, CharClass, Concat, Alternation, Repeat))


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtype_patterns_are_taken(dtype: str) -> None:
    texts = {"int": "-12, and", "float": ".5e", "bool": "False", "str": '"a\\n\\ud83d\\ude00"'}
    regex = dtype_pattern(dtype)
    pattern = parse_regex(regex)
    for text in (*texts.values(), "", "-", "1.5", "1.5 \n.", '"\\ud83d"', "True|"):
        assert is_member(pattern, text) == bool(re.fullmatch(regex, text)), text
