"""Regular expressions that end a text where they match in it: what is allowed, and their search.

The meaning: docs/sampling.md. The dialect is that of `regex_parser`, without anchors.
"""

from __future__ import annotations

from functools import lru_cache

from espalier.constrain.pattern import Alternation
from espalier.constrain.position_automaton import ACCEPT, position_automaton
from espalier.constrain.regex_parser import parse_search_regex
from espalier.constrain.regex_search import RegexSearch, SearchAutomaton
from espalier.errors import CapacityError, SamplingError, UserInputError, shown


def regex_search(stop_regex: tuple[str, ...]) -> RegexSearch:
    """A search for the first match of any of some expressions, at the start of a text.

    Raises SamplingError for an expression that cannot be used.
    """
    return RegexSearch(_automaton(stop_regex))


def check_stop_regex(stop_regex: tuple[str, ...]) -> None:
    """Raises SamplingError for an expression that cannot be used."""
    _automaton(stop_regex)


@lru_cache(maxsize=32)
def _automaton(stop_regex: tuple[str, ...]) -> SearchAutomaton:
    patterns = []
    for regex in stop_regex:
        try:
            pattern = parse_search_regex(regex)
            start = position_automaton(pattern).start
        except (UserInputError, CapacityError) as error:
            raise SamplingError(f"stop_regex holds {shown(regex)}: {error}") from error
        if ACCEPT in start:
            raise SamplingError(
                f"stop_regex holds {shown(regex)}, which matches the empty text, so every output "
                "would be empty; make it match one character or more."
            )
        if not start:
            raise SamplingError(
                f"stop_regex holds {shown(regex)}, which matches no text; leave it out."
            )
        patterns.append(pattern)
    try:
        return SearchAutomaton(position_automaton(Alternation(tuple(patterns))))
    except CapacityError as error:
        raise SamplingError(f"stop_regex has {len(stop_regex)} expressions: {error}") from error
