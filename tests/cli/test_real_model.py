"""The commands on the default model."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import Command

ROOT = Path(__file__).parents[2]


def test_run_essay_judge_reports_a_high_hit_rate(smollm2_path: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    done = subprocess.run(
        [
            sys.executable, "-c", "from espalier.cli.main import main; main()",
            "run", "--report", str(report), "--model", str(smollm2_path),
            "examples/essay_judge.py",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "The essay is clear" in done.stdout
    assert "\nGrade: A\n" in done.stdout
    assert done.stdout.endswith("Not judged: the essay is about cooking.\n")
    values = json.loads(report.read_text())
    assert values["hit_rate"] > 0.5
    assert values["programs"] == 2
    assert values["prompt_tokens"] == values["cached_tokens"] + values["computed_tokens"]
    assert re.search(r"\d cached \(\d\d\.\d%\)", done.stderr)


def test_generate_continues_a_prompt(command: Command, smollm2_path: Path) -> None:
    ended = command(
        "generate", "--model", str(smollm2_path), "--temperature", "0", "--max-new-tokens", "2",
        "The capital of France is",
    )  # fmt: skip
    assert (ended.status, ended.out) == (0, " Paris.\n"), ended.err
    assert "1 call in" in ended.err
    assert "generated  2 tokens" in ended.err


def test_chat_reuses_its_history(
    command: Command, smollm2_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    questions = "What is the capital of France?\nAnd of Japan?\n"
    monkeypatch.setattr(sys, "stdin", io.StringIO(questions))
    ended = command("chat", "--model", str(smollm2_path), "--temperature", "0")
    assert ended.out == "The capital of France is Paris.\nThe capital of Japan is Tokyo.\n"
    turns = re.findall(r"\[(\d+) of (\d+) prompt tokens cached", ended.err)
    first_prompt = int(turns[0][1])
    assert int(turns[1][0]) > first_prompt  # the first answer is cached as well as its prompt
