"""EBNF grammars, token by token, against membership by definition."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.constrain.naive_grammar import NaiveGrammar
from tests.constrain.tiny_vocabulary import TinyTokenizer, allowed

from espalier.constrain.ebnf import ebnf_grammar, rules_pattern
from espalier.constrain.ebnf_parser import parse_ebnf
from espalier.constrain.ebnf_rules import checked_rules
from espalier.constrain.ebnf_tree import (
    Choice,
    Expression,
    OneOf,
    Rule,
    Rules,
    Sequence,
    Text,
    Times,
)
from espalier.constrain.llguidance_ebnf import rules_grammar
from espalier.constrain.matcher import Grammar, Matcher
from espalier.errors import CapacityError, EspalierError, UnsupportedError, UserInputError

PIECES = [b"<end>", b"a", b"b", b"c", b"ab", b"bc", b"aa", b"cab", b"\xc3", b"\xa9", b"", b"<eot>"]
ENDS = {0, 11}
TINY = TinyTokenizer(PIECES, set(), ENDS)
SINGLE = {0, 1, 2, 3}  # an end and the letters
BYTES = TinyTokenizer([b"<end>", *(bytes([byte]) for byte in range(256))], {0}, {0})

LEAVES: st.SearchStrategy[Expression] = st.one_of(
    st.sampled_from(["a", "b", "c", "ab", "ba", "abc", "", "aa"]).map(Text),
    st.sampled_from([((97, 98),), ((97, 97), (99, 99)), ((97, 99),)]).map(OneOf),
    st.sampled_from(["root", "x", "y"]).map(Rule),
)
EXPRESSIONS: st.SearchStrategy[Expression] = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: Sequence(tuple(parts))),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: Choice(tuple(parts))),
        st.tuples(inner, st.sampled_from([(0, None), (1, None), (0, 1), (2, 2), (1, 3)])).map(
            lambda pair: Times(pair[0], *pair[1])
        ),
    ),
    max_leaves=5,
)


def written(expression: Expression) -> str:
    """An expression as EBNF text."""
    if isinstance(expression, Rule):
        return expression.name
    if isinstance(expression, Text):
        return f'"{expression.text}"'
    if isinstance(expression, OneOf):
        return "[" + "".join(f"{chr(low)}-{chr(high)}" for low, high in expression.ranges) + "]"
    if isinstance(expression, Sequence):
        return "(" + " ".join(map(written, expression.parts)) + ")"
    if isinstance(expression, Choice):
        return "(" + " | ".join(map(written, expression.options)) + ")"
    counts = "" if expression.high is None else expression.high
    return f"{written(expression.inner)}{{{expression.low},{counts}}}"


def grammar_text(rules: Rules) -> str:
    return "\n".join(f"{name} ::= {written(body)}" for name, body in rules.items())


@pytest.mark.parametrize("by_library", [True, False])
@settings(max_examples=120, deadline=None)
@given(
    bodies=st.tuples(EXPRESSIONS, EXPRESSIONS, EXPRESSIONS),
    choices=st.lists(st.integers(0, 50), max_size=5),
)
def test_masks_equal_those_of_the_language(
    by_library: bool, bodies: tuple[Expression, Expression, Expression], choices: list[int]
) -> None:
    rules = dict(zip(("root", "x", "y"), bodies, strict=True))
    naive = NaiveGrammar(rules)
    if not naive.begins(""):
        with pytest.raises(UserInputError, match="no text"):
            ebnf_grammar(grammar_text(rules), TINY)
        return
    matcher = (library_grammar if by_library else ebnf_grammar)(grammar_text(rules), TINY).matcher()
    text = ""
    for choice in [*choices, 0]:
        tokens = {i for i in range(1, 8) if naive.begins(text + PIECES[i].decode())}
        is_complete = naive.has(text)
        assert allowed(matcher) == tokens | (ENDS if is_complete else set()), text
        assert matcher.is_complete == is_complete
        assert matcher.must_stop == (is_complete and not tokens)
        check_forced(matcher, allowed(matcher), text)
        if not tokens or len(text) > 8:
            break
        token_id = sorted(tokens)[choice % len(tokens)]
        matcher.accept(token_id)
        text += PIECES[token_id].decode()


def library_grammar(grammar: str, tokenizer: TinyTokenizer) -> Grammar:
    """As `ebnf_grammar`, without recursion too."""
    return rules_grammar(checked_rules(parse_ebnf(grammar), "root"), "root", tokenizer)


def check_forced(matcher: Matcher, tokens: set[int], text: str) -> None:
    """Forced bytes go on exactly as long as one letter may follow and the text may not end."""
    forced = matcher.forced_bytes().decode()
    assert allowed(matcher) == tokens
    for letter in forced[:10]:
        assert allowed(matcher) & SINGLE == {PIECES.index(letter.encode())}, text
        matcher.accept(PIECES.index(letter.encode()))
    if len(forced) <= 10:
        assert matcher.is_complete or len(allowed(matcher) & SINGLE) > 1, text
    matcher.rollback(min(len(forced), 10))
    assert allowed(matcher) == tokens


def is_accepted(grammar: Grammar, text: str) -> bool:
    matcher = grammar.matcher()
    for byte in text.encode():
        if byte + 1 not in allowed(matcher):
            return False
        matcher.accept(byte + 1)
    return matcher.is_complete


@pytest.mark.parametrize(
    ("grammar", "accepted", "refused"),
    [
        # A greedy lexer would lose all of these.
        ('root ::= [a-z]* "x"', ["x", "xx", "abx"], ["", "a", "xa"]),
        ('root ::= ("a" | "ab") ("c" | "bc") root?', ["abc", "ac", "abbc", "abcac"], ["ab"]),
        ('root ::= x "1" | "(" root ")"\nx ::= [a-z0-9]+', ["a1", "11", "(a11)"], ["1", "(a1"]),
        ('root ::= w w | "<" root ">"\nw ::= [ ]*', ["", " ", "  ", "< >"], ["<", "> "]),
        ('root ::= root "+" root | "n" | "n+n"', ["n", "n+n", "n+n+n"], ["", "n+", "nn"]),
        ('root ::= i "if" root | i\ni ::= [a-z]+', ["a", "if", "aif", "aifb", "iif"], ["", "1"]),
        # Syntax.
        ('root ::= "a\\"\\\\\\n\\x41\\u00e9\\U0001F600"', ['a"\\\nA\u00e9\U0001f600'], ["a"]),
        ("root ::= [^\\]a-c\\-x] [-z] [x-]", ["d--", "\nzx", "\u00e9zx"], ["]--", "---", "x--"]),
        ("root ::= . .", ["\n\U0001f600", "ab"], ["a", "abc"]),
        ('root::="a"b{2}|\n"c"# a comment\n\n  b ::= "b"{1,2} | "d"{0,} "e"',
         ["abb", "abbb", "adee", "c", "addeb"], ["ab", "cb"]),
        ("root ::=\n  a |\n  b\na ::= ( \"x\"\n | \"y\" )\nb ::= \"\"", ["x", "y", ""], ["xy"]),
        ('root ::= "a"{0} "b"{0,1}+', ["b", "", "bb"], ["a"]),
        ('root ::= factor("*" factor)*\nfactor ::= "1"', ["1", "1*1"], ["1*"]),
    ],
)  # fmt: skip
def test_a_grammar_accepts_and_refuses(
    grammar: str, accepted: list[str], refused: list[str]
) -> None:
    for compiled in (ebnf_grammar(grammar, BYTES), library_grammar(grammar, BYTES)):
        assert [is_accepted(compiled, text) for text in accepted] == [True] * len(accepted)
        assert [is_accepted(compiled, text) for text in refused] == [False] * len(refused)


@pytest.mark.parametrize(
    ("grammar", "error", "told"),
    [
        ("", UserInputError, "no rule 'root'"),
        ("root", UserInputError, "line 1, column 1"),
        ('start ::= "a"', UserInputError, "no rule 'root'"),
        ("root ::= other", UserInputError, "no rule 'other'"),
        ('root ::= "a"\nroot ::= "b"', UserInputError, "line 2, column 1: the rule 'root'"),
        ('root ::= "a', UserInputError, "closing quote"),
        ("root ::= [a", UserInputError, "closing bracket"),
        ("root ::= []", UserInputError, "no character"),
        ("root ::= [z-a]", UserInputError, "backwards"),
        ('root ::= ("a"', UserInputError, "closing parenthesis"),
        ('root ::= "a")', UserInputError, "a rule, `name ::= ...`"),
        ('root ::= "\\q"', UserInputError, r"escape \\q"),
        ('root ::= "\\ud800"', UserInputError, "surrogate"),
        ('root ::= "a"{3,1}', UserInputError, "no number between"),
        ('root ::= "a"{,}', UserInputError, "a count such as"),
        ('root ::= "a"{x}', UserInputError, "a count such as"),
        ('root ::= * "a"', UserInputError, "not expected"),
        ('root ::= "a"{99999}', CapacityError, "at most 10000"),
        ('root ::= "a" root', UserInputError, "has no text"),
        ("root ::= x | root\nx ::= y\ny ::= x", UserInputError, "has no text"),
        ('root ::= (="a") "b"', UnsupportedError, "lookahead"),
        ("root ::= <[12]>", UnsupportedError, "special tokens"),
        ("root ::= 'a'", UnsupportedError, "double quotes"),
        ("root ::= /a/", UnsupportedError, "regular expressions"),
        ("root ::= " + "(" * 60 + '"a"' + ")" * 60, UserInputError, "nested"),
        ('root ::= "a"' + "?" * 60, UserInputError, "repeats of repeats"),
        ("root ::= " + '"a" ' * 70_000, CapacityError, "characters"),
        ("root ::= [\u0430-\u044f]", UserInputError, "no text made of this model's tokens"),
    ],
)
def test_a_grammar_that_cannot_be_used_is_refused(
    grammar: str, error: type[EspalierError], told: str
) -> None:
    ascii_only = TinyTokenizer([b"<end>", *(bytes([byte]) for byte in range(128))], {0}, {0})
    with pytest.raises(error, match=told) as caught:
        ebnf_grammar(grammar, ascii_only)
    assert len(str(caught.value)) < 600
    assert "\n" not in str(caught.value)


def test_rules_without_texts_are_left_out_of_masks() -> None:
    """Otherwise a mask would lead into a rule that never ends."""
    matcher = ebnf_grammar('root ::= "a" | "b" endless\nendless ::= "c" endless', TINY).matcher()
    assert allowed(matcher) == {1}


def test_rules_without_recursion_are_a_pattern_unless_they_are_large() -> None:
    assert rules_pattern(checked_rules(parse_ebnf('root ::= x+\nx ::= "a" | [b]'), "root"))
    assert rules_pattern(checked_rules(parse_ebnf('root ::= "a" root?'), "root")) is None
    chain = "root ::= r0\n" + "\n".join(f"r{i} ::= r{i + 1}?" for i in range(300))
    assert rules_pattern(checked_rules(parse_ebnf(chain + '\nr300 ::= "a"'), "root")) is None


def test_large_grammars_compile_or_meet_a_limit() -> None:
    chain = 'root ::= r0 | "(" root ")"\n' + "\n".join(f"r{i} ::= r{i + 1}" for i in range(3000))
    assert allowed(ebnf_grammar(chain + '\nr3000 ::= "a"', BYTES).matcher())
    doubling = "root ::= r0\n" + "\n".join(f"r{i} ::= r{i + 1} r{i + 1}" for i in range(60))
    matcher = ebnf_grammar(doubling + '\nr60 ::= "a"', BYTES).matcher()
    assert matcher.forced_bytes() == b"a" * 4096


def test_checked_rules_keep_what_the_root_uses() -> None:
    rules: Rules = {"unused": Text("a"), "root": Rule("used"), "used": Text("b")}
    assert list(checked_rules(rules, "root")) == ["used", "root"]
