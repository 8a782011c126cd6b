"""How benches print what they measured."""

from __future__ import annotations

import json

import pytest

from bench import report


def test_report_is_one_json_object_or_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(report, "commit_id", lambda: "abc")
    monkeypatch.setattr(report, "cpu_name", lambda: "a processor")
    result = {"model": "m", "step, ms": {"1 row": 1.5, "16 rows": {"fastest": 2}}}
    report.print_report(result, is_json=True)
    printed = capsys.readouterr().out
    assert printed.count("\n") == 1
    assert json.loads(printed) == {**result, "commit": "abc", "cpu": "a processor"}
    report.print_report(result, is_json=False)
    assert capsys.readouterr().out.splitlines() == [
        "model   m",
        "step, ms:",
        "  1 row  1.5",
        "  16 rows:",
        "    fastest  2",
        "commit  abc",
        "cpu     a processor",
    ]


def test_processor_and_commit_have_names() -> None:
    assert " x " in report.cpu_name()
    assert report.commit_id()
