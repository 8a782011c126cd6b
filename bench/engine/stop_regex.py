"""Processor time that a character of output costs where stop expressions are looked for.

    python bench/engine/stop_regex.py
    python bench/engine/stop_regex.py --characters 2000 --json

"first" is a text whose states are new, "again" the same text once they are known; medians in
microseconds. The last expression is near the limit, and every place of its text begins a match.
Stop strings, by their own automaton, stand beside them.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

if __package__ in (None, ""):
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from bench.report import print_report

from espalier.constrain.position_automaton import position_automaton
from espalier.constrain.regex_parser import parse_search_regex
from espalier.constrain.regex_search import RegexSearch, SearchAutomaton
from espalier.engine.stop_search import StopSearch
from espalier.types import SamplingParams

PROSE = "The quick brown fox, 42 years old, jumps over the lazy dog.\nIt is \u00e9tonnant. "
CASES = {
    r"\n+[A-Z]\w*:": PROSE,
    r"(?:\w+ )+END": PROSE,
    "|".join(f"word{index}" for index in range(200)): PROSE,
    "a.{1000}b": "a",
}


def character_us(search: RegexSearch | StopSearch, text: str) -> float:
    """Processor time of one character, in microseconds."""
    started = time.process_time()
    for character in text:
        if search.step(character):
            raise ValueError("a stop ends the text of the bench")
    return (time.process_time() - started) / len(text) * 1e6


def regex_times(regex: str, text: str, num_rounds: int) -> dict[str, float]:
    first, again = [], []
    positions = position_automaton(parse_search_regex(regex))
    for _ in range(num_rounds):
        automaton = SearchAutomaton(positions)
        first.append(character_us(RegexSearch(automaton), text))
        again.append(character_us(RegexSearch(automaton), text))
    return {
        name: round(statistics.median(times), 2)
        for name, times in (("first", first), ("again", again))
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--characters", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    size, rounds = options.characters, options.rounds
    strings = SamplingParams(stop=("\n\n", "END", "</s>"))
    prose = (PROSE * (size // len(PROSE) + 1))[:size]
    times = [character_us(StopSearch(strings), prose) for _ in range(rounds)]
    results: dict[str, object] = {"stop strings": round(statistics.median(times), 2)}
    for regex, piece in CASES.items():
        text = (piece * (size // len(piece) + 1))[:size]
        results[regex[:20]] = regex_times(regex, text, rounds)
    print_report(results, options.json)


if __name__ == "__main__":
    main()
