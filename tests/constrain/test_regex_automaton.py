"""Regular expressions through parser and native automaton mean what `re.fullmatch` says."""

from __future__ import annotations

import re

import pytest
from tests.constrain.regex_pairs import regex_cases
from tests.constrain.tiny_vocabulary import TinyTokenizer, spells

from espalier.constrain.automaton import AutomatonGrammar
from espalier.constrain.regex_parser import parse_regex
from espalier.errors import UserInputError

BYTES = TinyTokenizer([bytes([byte]) for byte in range(256)] + [b""], set(), {256})
NUM_REGEXES, NUM_TEXTS = 1_400, 20  # for each of four seeds: 112,000 pairs


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("seed", [21, 22, 23, 24])
def test_automaton_of_a_regex_has_the_texts_that_fullmatch_has(seed: int) -> None:
    num_refused = num_matches = 0
    for case in regex_cases(seed, NUM_REGEXES, NUM_TEXTS):
        expression = re.compile(case.regex)
        try:
            pattern = parse_regex(case.regex)
        except UserInputError as error:
            assert "anchor" in str(error)  # noqa: PT017
            num_refused += 1
            continue
        try:
            grammar = AutomatonGrammar(pattern, BYTES)
        except UserInputError as error:
            assert "cannot be met" in str(error)  # noqa: PT017
            assert not any(map(expression.fullmatch, case.texts)), case.regex
            continue
        for text in case.texts:
            matches = expression.fullmatch(text) is not None
            assert spells(grammar.matcher(), text) == matches, (case.regex, text)
            num_matches += matches
    assert num_refused < NUM_REGEXES / 100
    assert num_matches > NUM_REGEXES * NUM_TEXTS / 4
