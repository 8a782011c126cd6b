"""Search for stop expressions against trying every place with Python's `re`."""

from __future__ import annotations

import itertools
import re
import threading

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from tests.constrain.regex_pairs import regex_cases

from espalier.constrain import position_automaton as position_automaton_module
from espalier.constrain import regex_search as regex_search_module
from espalier.constrain.code_points import code_points
from espalier.constrain.pattern import CodePoints
from espalier.constrain.position_automaton import ACCEPT, MAX_LINKS, position_automaton
from espalier.constrain.regex_parser import parse_search_regex
from espalier.constrain.regex_search import RegexSearch, SearchAutomaton
from espalier.constrain.stop_regex import check_stop_regex, regex_search
from espalier.errors import CapacityError, SamplingError, UserInputError


def longest_match(regexes: tuple[str, ...], text: str) -> int:
    """Naive: length of the longest match that ends with the text, 0 for none."""
    for start in range(len(text)):
        if any(re.fullmatch(regex, text[start:]) for regex in regexes):
            return len(text) - start
    return 0


def test_every_step_finds_what_python_finds() -> None:
    num_checked = num_found = 0
    for case in regex_cases(seed=5, num_regexes=500, num_texts=6):
        try:
            pattern = parse_search_regex(case.regex)
        except UserInputError:
            continue  # an anchor
        if re.fullmatch(case.regex, ""):
            with pytest.raises(SamplingError, match="empty text"):
                regex_search((case.regex,))
            continue
        if not position_automaton(pattern).start:
            with pytest.raises(SamplingError, match="matches no text"):
                regex_search((case.regex,))
            assert not any(longest_match((case.regex,), text) for text in case.texts)
            continue
        for text in case.texts:
            search = regex_search((case.regex,))
            for end, character in enumerate(text, 1):
                length = search.step(character)
                assert length == longest_match((case.regex,), text[:end]), (case.regex, text)
                num_checked += 1
                num_found += length > 0
    assert num_checked > 2000
    assert num_found > 300


MAX_POSITIONS = 5
MAX_TEXT = 6
# Every text that a match can be which begins in a text of the test and ends as soon as it can.
LETTERS_UP_TO = [
    "".join(letters)
    for length in range(1, MAX_TEXT + MAX_POSITIONS + 1)
    for letters in itertools.product("ab", repeat=length)
]


def _larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}|{pair[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "{,2}"])).map(
            lambda pair: f"(?:{pair[0]}){pair[1]}"
        ),
    )


REGEXES = st.recursive(st.sampled_from(["a", "b", "[ab]", "ab", r"\ud800"]), _larger, max_leaves=5)


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(regex=REGEXES, text=st.text("abc", max_size=MAX_TEXT))
@example(regex="(?:ab?)*b", text="abab")
@example(regex="(?:(?:a|b?)+a)+", text="abba")
def test_what_may_become_a_match_is_held_back_and_nothing_else(regex: str, text: str) -> None:
    positions = position_automaton(parse_search_regex(regex))
    is_match = re.compile(regex).fullmatch
    assert (ACCEPT in positions.start) == bool(is_match(""))
    assume(ACCEPT not in positions.start and len(positions.kinds) <= MAX_POSITIONS)
    texts = list(filter(is_match, LETTERS_UP_TO))
    beginnings = {match[:length] for match in texts for length in range(1, len(match))}
    search = RegexSearch(SearchAutomaton(positions))
    for end, character in enumerate(text, 1):
        search.step(character)
        held = [end - start for start in range(end) if text[start:end] in beginnings]
        assert search.num_held == max(held, default=0)


def test_after_a_restart_nothing_of_the_text_before_counts() -> None:
    search = regex_search(("ab+c",))
    assert [search.step(character) for character in "abb"] == [0, 0, 0]
    assert search.num_held == 3
    search.restart()
    assert search.num_held == 0
    assert [search.step(character) for character in "cabc"] == [0, 0, 0, 3]


def test_matches_of_any_of_several_expressions_count() -> None:
    search = regex_search((r"\n+[A-Z]\w*:", "END"))
    assert [search.step(character) for character in "E\n\nQu1:"] == [0] * 6 + [6]
    search = regex_search((r"\n+[A-Z]\w*:", "END"))
    assert [search.step(character) for character in "\nEND"] == [0, 0, 0, 3]


@pytest.mark.parametrize(
    ("regex", "reason"),
    [
        ("a*", "matches the empty text"),
        ("x|", "matches the empty text"),
        (r"\ud800", "matches no text"),
        ("(", "position 0, the group is not closed"),
        ("^a", "position 0, an anchor"),
        ("a(b|c$)", "position 5, an anchor"),
        (r"a\Z", "position 1, an anchor"),
        (r"\bend", "position 0, .* word boundary"),
        ("a(?=b)", "position 1, .* look-ahead"),
        (r"(a)\1", "position 3"),
        ("a{3000}", f"more than {MAX_LINKS}"),
        ("(?:(?:(?:a{9}){9}){9}){9}", f"more than {MAX_LINKS}"),
        ("(?:a?){100}", f"more than {MAX_LINKS}"),
        (".{0,65536}a", f"more than {MAX_LINKS}"),
        ("a" * 20_000, "at most 16384"),
    ],
)
def test_an_expression_that_cannot_be_used_is_named_with_the_reason(
    regex: str, reason: str
) -> None:
    with pytest.raises(SamplingError, match=rf"(?s)stop_regex holds .*{reason}"):
        check_stop_regex(("fine", regex))


def test_expressions_have_one_limit_together() -> None:
    many = tuple(f"a{{{count}}}b" for count in range(900, 903))
    for regex in many:
        check_stop_regex((regex,))
    with pytest.raises(SamplingError, match=f"3 expressions: .*more than {MAX_LINKS}"):
        check_stop_regex(many)
    with pytest.raises(CapacityError):
        position_automaton(parse_search_regex("|".join(many)))


def test_what_is_remembered_is_bounded_and_forgetting_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(regex_search_module, "MAX_KEPT", 300)
    automaton = SearchAutomaton(position_automaton(parse_search_regex("a.{12}b")))
    text = "abbaababbbaabab" * 6
    search = RegexSearch(automaton)
    for end, character in enumerate(text, 1):
        assert search.step(character) == longest_match(("a.{12}b",), text[max(0, end - 14) : end])
        assert automaton.num_kept <= 300


def test_searches_in_many_threads_share_states() -> None:
    wrong = []

    def look(text: str) -> None:
        for _ in range(200):
            search = regex_search(("a[ab]{3}c",))
            found = [search.step(character) for character in text]
            if found != [
                longest_match(("a[ab]{3}c",), text[: end + 1]) for end in range(len(text))
            ]:
                wrong.append(text)

    threads = [
        threading.Thread(target=look, args=(text,)) for text in ("aabbc", "abcabbbc", "aaaac")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_class_that_is_repeated_is_worked_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def counting(ranges: tuple[tuple[int, int], ...]) -> CodePoints:
        made.append(ranges)
        return code_points(ranges)

    monkeypatch.setattr(position_automaton_module, "code_points", counting)
    assert len(position_automaton(parse_search_regex(r"\w{300}")).kinds) == 300
    assert len(made) == 1
