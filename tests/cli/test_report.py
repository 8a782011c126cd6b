"""The report's numbers and its two forms."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from espalier.cli.report import (
    check_output_path,
    make_report,
    print_report,
    report_lines,
    write_report,
)
from espalier.errors import UserInputError
from espalier.types import Usage

USAGE = Usage(
    calls=12,
    prompt_tokens=4000,
    cached_tokens=3000,
    forced_tokens=10,
    computed_tokens=1000,
    generated_tokens=250,
    ttft_sum_s=0.6,
    ttft_count=10,
)


def test_report_computes_rates() -> None:
    report = make_report(3, USAGE, 2.0, ["m"])
    assert report.hit_rate == 0.75
    assert report.ttft_ms == 60.0
    assert report.tokens_per_s == 125.0


def test_report_of_nothing_has_no_rates() -> None:
    report = make_report(0, Usage(), 0.0, [])
    assert (report.hit_rate, report.ttft_ms, report.tokens_per_s, report.model) == (
        0,
        None,
        0,
        None,
    )
    assert report_lines(report, None) == ["espalier: no program ran."]


def test_text_is_one_compact_block() -> None:
    assert report_lines(make_report(3, USAGE, 2.0, ["m", "n"]), 0.44) == [
        "espalier: 3 programs, 12 calls in 2.00 s on m, n; model ready in 0.4 s",
        "  prompt     4,000 tokens: 3,000 cached (75.0%), 1,000 computed",
        "  generated  250 tokens, 10 of them forced, 125.0 tokens/s, first token after 60 ms",
    ]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_terminal_gets_the_same_text_in_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    report = make_report(3, USAGE, 2.0, ["m"])
    plain, coloured = io.StringIO(), Terminal()
    print_report(report, None, plain)
    print_report(report, None, coloured)
    assert "\x1b[" not in plain.getvalue()
    assert "\x1b[" in coloured.getvalue()
    for line in plain.getvalue().splitlines():
        assert line.split(":")[0] in coloured.getvalue()


def test_report_is_written_as_json(tmp_path: Path) -> None:
    write_report(make_report(3, USAGE, 2.0, ["m"]), tmp_path / "r.json")
    values = json.loads((tmp_path / "r.json").read_text())
    assert values["cached_tokens"] == 3000
    assert len(values) == 12


def test_report_path_is_checked_before_the_run(tmp_path: Path) -> None:
    check_output_path("--report", None)
    check_output_path("--report", tmp_path / "r.json")
    for path in (tmp_path, tmp_path / "no" / "r.json"):
        with pytest.raises(UserInputError, match="cannot be written"):
            check_output_path("--report", path)
        with pytest.raises(UserInputError, match="cannot be written"):
            write_report(make_report(0, Usage(), 0.0, []), path)
