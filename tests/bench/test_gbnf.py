"""Grammars for llama.cpp against the regexes of the workloads, read by a library of its own."""

from __future__ import annotations

import random
import re
from functools import cache

import llguidance
import llguidance.gbnf_to_lark
import pytest
from bench.constrain.gbnf import CHARACTER_GBNF, CITY_GBNF, notations
from bench.constrain.workloads import CHARACTER_REGEX, CITY_REGEX, KINDS, works

CHARACTER = """{
    "name": "Gerda of\tE_9",
    "kind": "Elf",
    "birth": "Bond-born",
    "occupation": "court scribe",
    "sword": {
        "metal": "iron",
        "jewel": "ruby",
        "length in inches": 31.
    },
    "state of health": "Deceased",
    "heraldic beast": "boar",
    "deepest fear": "the sea"
}"""
CITY = """{
  "name": "Fenwick 3",
  "country": "Estmark",
  "latitude": -41.3,
  "population": 4238,
  "top 3 landmarks": ["old harbour", "city wall", "x"]
}"""


@cache
def byte_tokenizer() -> llguidance.LLTokenizer:
    return llguidance.LLTokenizer("byte")


def accepts(grammar: str, text: str) -> bool:
    matcher = llguidance.LLMatcher(byte_tokenizer(), llguidance.grammar_from("lark", grammar))
    taken = matcher.try_consume_tokens(byte_tokenizer().tokenize_str(text))
    return bool(taken == len(text.encode()) and matcher.is_accepting())


@pytest.mark.parametrize(
    ("regex", "gbnf", "text"),
    [(CHARACTER_REGEX, CHARACTER_GBNF, CHARACTER), (CITY_REGEX, CITY_GBNF, CITY)],
)
def test_grammar_is_the_regex_in_ascii(regex: str, gbnf: str, text: str) -> None:
    grammar = llguidance.gbnf_to_lark.gbnf_to_lark(gbnf)
    assert re.fullmatch(regex, text)
    assert accepts(grammar, text)
    source = random.Random(0)
    seen = {True: 0, False: 0}
    for _ in range(400):
        place = source.randrange(len(text))
        new = source.choice(["", "", source.choice('Aa0_ \t\n.,"-]}'), text[place] * 9])
        changed = text[:place] + new + text[place + 1 :]
        is_match = re.fullmatch(regex, changed) is not None
        assert accepts(grammar, changed) == is_match, changed
        seen[is_match] += 1
    assert min(seen.values()) > 20


def test_every_regex_of_the_workloads_has_a_grammar() -> None:
    for kind in KINDS:
        for work in works(kind, 3):
            form = notations(work)
            assert ("gbnf" in form) == ("regex" in form)
            assert set(work.form) <= set(form)
