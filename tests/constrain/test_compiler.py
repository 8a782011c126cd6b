"""One entry for every kind: what is shared, what is dropped, and that nobody waits for others."""

from __future__ import annotations

import gc
import json
import threading
import weakref
from collections.abc import Callable

import pytest
from tests.constrain.tiny_vocabulary import TinyTokenizer, allowed

from espalier.constrain import compiler as compiler_module
from espalier.constrain.compiler import MAX_CONSTRAINT_BYTES, GrammarCompiler, compiler_of
from espalier.constrain.matcher import Grammar, Matcher, MatcherTokenizer
from espalier.constraint import Constraint, ConstraintKind
from espalier.errors import CapacityError, EspalierError, UserInputError

PIECES = [b"<end>", *(bytes([byte]) for byte in range(32, 127)), b"\n", b"true", b'{"']


def tiny() -> TinyTokenizer:
    return TinyTokenizer(PIECES, {0}, {0})


class StubGrammar:
    """Holds a given number of bytes."""

    def __init__(self, num_bytes: int) -> None:
        self.num_bytes = num_bytes

    def matcher(self) -> Matcher:
        raise NotImplementedError


def regex(text: str) -> Constraint:
    return Constraint(ConstraintKind.REGEX, text)


def is_accepted(grammar: Grammar, text: str) -> bool:
    """Byte by byte, as far as the mask allows."""
    matcher = grammar.matcher()
    for byte in text.encode():
        token_id = PIECES.index(bytes([byte]))
        if token_id not in allowed(matcher):
            return False
        matcher.accept(token_id)
    return matcher.is_complete


@pytest.mark.parametrize(
    ("kind", "text", "accepted", "refused"),
    [
        (ConstraintKind.DTYPE, "bool", ["True", "False"], ["true", "", "Truex"]),
        (ConstraintKind.REGEX, "a+(b|c)", ["ab", "aac"], ["a", "b", "abc"]),
        (ConstraintKind.CHOICES, '["a", "ab", "x.z"]', ["a", "ab", "x.z"], ["", "b", "xyz"]),
        (
            ConstraintKind.JSON_SCHEMA,
            '{"type": "array", "items": {"type": "boolean"}, "minItems": 1}',
            ["[true]", "[true,false]"],
            ["[]", "[true, false]", "true"],
        ),
        (ConstraintKind.EBNF, 'root ::= "(" root? ")"', ["()", "(())"], ["", "(()"]),
        (ConstraintKind.LARK, 'start: "(" start? ")"', ["()", "(())"], ["", "(()"]),
    ],
)
def test_every_kind_accepts_and_refuses(
    kind: ConstraintKind, text: str, accepted: list[str], refused: list[str]
) -> None:
    tokenizer = tiny()
    grammar = GrammarCompiler(tokenizer, tokenizer.vocab_size).compile(Constraint(kind, text))
    assert [is_accepted(grammar, item) for item in accepted] == [True] * len(accepted)
    assert [is_accepted(grammar, item) for item in refused] == [False] * len(refused)
    assert grammar.num_bytes > 0


@pytest.mark.parametrize(
    ("constraint", "told"),
    [
        (Constraint(ConstraintKind.DTYPE, "complex"), "dtype is 'complex'"),
        (Constraint(ConstraintKind.REGEX, "(a"), "regular expression"),
        (Constraint(ConstraintKind.CHOICES, "[]"), "empty"),
        (Constraint(ConstraintKind.CHOICES, '["a", 1]'), "a list of texts"),
        (Constraint(ConstraintKind.CHOICES, "[" * 100_000), "no JSON"),
        (Constraint(ConstraintKind.JSON_SCHEMA, "{"), "not valid JSON"),
        (Constraint(ConstraintKind.LARK, ""), "empty"),
        (Constraint(ConstraintKind.REGEX, "\ud800"), "lone surrogate"),
        (Constraint(ConstraintKind.REGEX, "a" * (MAX_CONSTRAINT_BYTES + 1)), "1048577 bytes"),
    ],
)
def test_what_cannot_be_compiled_is_refused_and_counted(constraint: Constraint, told: str) -> None:
    tokenizer = tiny()
    compiler = GrammarCompiler(tokenizer, tokenizer.vocab_size)
    for _ in range(2):  # errors are not cached
        with pytest.raises(EspalierError, match=told) as caught:
            compiler.compile(constraint)
        assert len(str(caught.value)) < 600
    assert compiler.cached(constraint) is None
    statistics = compiler.statistics()
    assert (statistics.num_misses, statistics.num_failures) == (2, 2)
    assert statistics.num_grammars == 0


def test_the_second_request_pays_no_compilation() -> None:
    tokenizer = tiny()
    compiler = GrammarCompiler(tokenizer, tokenizer.vocab_size)
    assert compiler.cached(regex("ab")) is None
    grammar = compiler.compile(regex("ab"))
    assert compiler.compile(regex("ab")) is grammar
    assert compiler.cached(regex("ab")) is grammar
    statistics = compiler.statistics()
    assert (statistics.num_hits, statistics.num_misses, statistics.num_failures) == (2, 1, 0)
    assert statistics.compile_s > 0
    assert statistics.num_bytes == grammar.num_bytes


def test_equal_text_of_another_kind_or_whitespace_is_another_grammar() -> None:
    tokenizer = tiny()
    compiler = GrammarCompiler(tokenizer, tokenizer.vocab_size)
    schema = json.dumps({"type": "array", "items": {"type": "null"}, "minItems": 2})
    compact = compiler.compile(Constraint(ConstraintKind.JSON_SCHEMA, schema))
    spaced = compiler.compile(Constraint(ConstraintKind.JSON_SCHEMA, schema, "spaced"))  # type: ignore[arg-type]
    assert is_accepted(compact, "[null,null]")
    assert not is_accepted(compact, "[null, null]")
    assert is_accepted(spaced, "[null, null]")
    assert not is_accepted(spaced, "[null,null]")


def with_builder(monkeypatch: pytest.MonkeyPatch, build: Callable[[Constraint], Grammar]) -> None:
    def constraint_grammar(
        constraint: Constraint, tokenizer: MatcherTokenizer, vocab_size: int
    ) -> Grammar:
        return build(constraint)

    monkeypatch.setattr(compiler_module, "constraint_grammar", constraint_grammar)


def test_the_least_recently_used_grammars_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    with_builder(monkeypatch, lambda constraint: StubGrammar(len(constraint.text)))
    tokenizer = tiny()
    compiler = GrammarCompiler(tokenizer, 99, max_grammars=3, max_bytes=10)
    for text in ("a", "b", "c"):
        compiler.compile(regex(text))
    compiler.compile(regex("a"))
    compiler.compile(regex("d"))
    assert [text for text in "abcd" if compiler.cached(regex(text))] == ["a", "c", "d"]
    compiler.compile(regex("x" * 9))  # with one more there are ten bytes
    assert [text for text in "abcd" if compiler.cached(regex(text))] == ["d"]
    compiler.compile(regex("y" * 50))  # more than the bound: it alone stays
    assert compiler.statistics().num_grammars == 1
    assert compiler.cached(regex("y" * 50)) is not None


def test_one_constraint_is_compiled_once_and_others_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started, may_end = threading.Event(), threading.Event()
    built: list[str] = []

    def build(constraint: Constraint) -> Grammar:
        built.append(constraint.text)
        if constraint.text == "slow":
            started.set()
            assert may_end.wait(60)
        return StubGrammar(1)

    with_builder(monkeypatch, build)
    tokenizer = tiny()
    compiler = GrammarCompiler(tokenizer, 99)
    found: list[Grammar] = []
    threads = [
        threading.Thread(target=lambda: found.append(compiler.compile(regex("slow"))))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    assert started.wait(60)
    other = compiler.compile(regex("other"))  # ends while the slow one is being compiled
    assert compiler.cached(regex("slow")) is None
    may_end.set()
    for thread in threads:
        thread.join(60)
    assert built == ["slow", "other"]
    assert len(found) == 3
    assert found[0] is found[1] is found[2] is not other


def test_all_who_wait_get_the_error_and_the_next_compiles_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    may_end = threading.Event()
    fails = [True]

    def build(constraint: Constraint) -> Grammar:
        assert may_end.wait(60)
        if fails[0]:
            raise UserInputError("no such form")
        return StubGrammar(1)

    with_builder(monkeypatch, build)
    tokenizer = tiny()
    compiler = GrammarCompiler(tokenizer, 99)
    told: list[str] = []

    def compile_one() -> None:
        with pytest.raises(UserInputError) as caught:
            compiler.compile(regex("a"))
        told.append(str(caught.value))

    threads = [threading.Thread(target=compile_one) for _ in range(3)]
    for thread in threads:
        thread.start()
    may_end.set()
    for thread in threads:
        thread.join(60)
    assert told == ["no such form"] * 3
    fails[0] = False
    assert compiler.compile(regex("a")) is compiler.cached(regex("a"))


def test_compilers_are_shared_and_die_with_their_tokenizer() -> None:
    tokenizer = tiny()
    compiler = compiler_of(tokenizer, tokenizer.vocab_size)
    assert compiler_of(tokenizer, tokenizer.vocab_size) is compiler
    assert compiler_of(tokenizer, 128) is not compiler
    assert compiler_of(tiny(), tokenizer.vocab_size) is not compiler
    matcher = compiler.compile(regex("ab")).matcher()
    tokenizer_left, compiler_left = weakref.ref(tokenizer), weakref.ref(compiler)
    del tokenizer, compiler
    gc.collect()
    assert tokenizer_left() is None
    assert compiler_left() is None
    assert allowed(matcher) == {PIECES.index(b"a")}


def test_a_constraint_beyond_the_byte_limit_is_a_capacity_error() -> None:
    tokenizer = tiny()
    with pytest.raises(CapacityError, match="at most 1048576"):
        compiler_of(tokenizer, 99).compile(regex("\u00e9" * (MAX_CONSTRAINT_BYTES // 2 + 1)))
