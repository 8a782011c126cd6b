"""Plans of examples against what the engine counts on the default model, within 2 %."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.plan.accuracy import CASES, compare, table

import espalier as sgl


@pytest.mark.parametrize("program", ["capital", "extract"])
def test_a_plan_predicts_computed_tokens(smollm2_path: Path, program: str) -> None:
    case = next(case for case in CASES if case.program == program)
    with sgl.Engine(smollm2_path, max_total_tokens=8192) as engine:
        row = compare(case, engine, smollm2_path)
    assert abs(row.error) <= 0.02, table([row])
    assert row.planned_prompt_tokens == row.prompt_tokens
