"""Costs by context: prompts, the line through them, the report; no peer is started."""

from __future__ import annotations

import pytest
from bench.engine.context import NestedPrompts, costs_ms, parse_options, text_report
from bench.engine.line import line_fit
from bench.engine.summary import Comparison, Figure, Round
from bench.engine.workloads import Workload
from bench.peers.catalog import ESPALIER, SMOLLM2

CONTEXTS = [100.0, 1000.0, 2000.0, 4000.0, 8000.0]


def comparison(context: int, figure: Figure) -> Comparison:
    return Comparison(
        Workload(f"context-{context}", SMOLLM2, 1, context, 8, 0.0), {ESPALIER: figure}
    )


def test_nested_prompts_begin_alike_in_a_round() -> None:
    prompts = NestedPrompts(list(range(5000)))
    (short,), (long,) = prompts.cut("a", 2, 1, 50, 0), prompts.cut("b", 2, 1, 400, 0)
    assert long[:50] == short
    assert prompts.cut("a", 3, 1, 50, 0) != [short]


@pytest.mark.parametrize("length", [100, 101, 5000])
def test_text_that_is_too_short_is_refused(length: int) -> None:
    with pytest.raises(ValueError, match=f"the text has 100 tokens; over {length}"):
        NestedPrompts(list(range(100))).cut("a", 7, 1, length, 0)
    (longest,) = NestedPrompts(list(range(100))).cut("a", 7, 1, 99, 0)
    assert longest == list(range(99))


def test_line_fit_finds_a_cliff() -> None:
    line = line_fit(CONTEXTS, [5 + 0.002 * context for context in CONTEXTS])
    assert line is not None
    assert line.ms_per_1000_tokens == pytest.approx(2)
    assert line.ms_at_0 == pytest.approx(5)
    assert line.at(3000) == pytest.approx(11)
    assert line.largest_distance < 1e-9
    cliff = line_fit(CONTEXTS, [5.2, 7.0, 9.0, 13.0, 42.0])
    assert cliff is not None
    assert cliff.largest_distance > 0.2


@pytest.mark.parametrize("count", [0, 1, 2])
def test_few_points_make_no_line(count: int) -> None:
    assert line_fit(CONTEXTS[:count], [1.0] * count) is None


def test_report_has_costs_and_the_reasons_for_those_that_are_missing() -> None:
    comparisons = [
        comparison(1000, Figure((Round(200.0),))),
        comparison(2000, Figure(problem="out of memory")),
    ]
    lines = {ESPALIER: costs_ms(comparisons, ESPALIER)}
    assert lines == {ESPALIER: ([1000.0], [5.0])}
    text = text_report(lines, comparisons)
    assert "espalier      context   1000     5.00 ms per token" in text
    assert "context-2000, espalier: out of memory" in text
    assert "too few contexts for a line: 3 are needed" in text


def test_contexts_are_sorted_and_each_is_measured_once() -> None:
    assert parse_options(["--contexts", "4000, 128,4000"]).contexts == [128, 4000]


@pytest.mark.parametrize(
    ("option", "given"),
    [
        ("--rounds", "0"),
        ("--decode-tokens", "0"),
        ("--threads", "-2"),
        ("--contexts", ""),
        ("--contexts", "128,,256"),
        ("--contexts", "128;256"),
    ],
)
def test_odd_numbers_are_refused(
    option: str, given: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parse_options([f"{option}={given}"])
    assert "a whole number from 1 is allowed" in capsys.readouterr().err
