"""Price tables: the example, and files of a user's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import espalier as sgl
from espalier import gen
from espalier.errors import UserInputError
from espalier.plan.model import PlannedModel
from espalier.plan.prices import read_prices

TABLE = {
    "currency": "EUR",
    "date": "2030-01-02",
    "per_tokens": 1000,
    "models": {
        "big": {"input": 2, "cached_input": 0.5, "output": 8},
        "old": {"input": 1, "output": 1},
    },
}


def write(path: Path, value: Any) -> Path:
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return path


def test_the_example_has_models_and_a_date() -> None:
    table = read_prices()
    assert len(table.models) >= 3
    assert table.date.startswith("20")
    assert all(0 < model.cached_input <= model.input < model.output for model in table.models)


def test_a_plan_is_priced_by_computed_cached_and_generated_tokens(
    tmp_path: Path, tiny: PlannedModel
) -> None:
    @sgl.function
    def ask(s: sgl.ProgramState, number: int) -> None:
        s += "0123456789" + f"{number}" + gen("x", max_tokens=3)

    path = write(tmp_path / "prices.json", TABLE)
    plan = ask.plan([[1], [2]], model=tiny, prices=path)
    total = plan.total
    assert (total.prompt_tokens, total.computed_tokens, total.generated_tokens) == (22, 12, 6)
    big, old = plan.costs
    assert big.unshared == pytest.approx((22 * 2 + 6 * 8) / 1000)
    assert big.shared == pytest.approx((12 * 2 + 10 * 0.5 + 6 * 8) / 1000)
    assert old.unshared == old.shared == pytest.approx(28 / 1000)
    assert "price in EUR" in str(plan)
    assert "2030-01-02" in str(plan)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("{", "not JSON"),
        ([], "no price table"),
        ({"models": {}}, "0 models"),
        ({"models": {"m": {"input": 1}}}, "are needed"),
        ({"models": {"m": {"input": -1, "output": 1}}}, "a number from 0"),
        ({"models": {"m": {"input": True, "output": 1}}}, "a number from 0"),
        ({"models": {"m": {"input": 1, "output": 1, "imput": 2}}}, "'imput'"),
        ({"models": {"m": {"input": 1, "output": 1}}, "per_tokens": 0}, "more than 0"),
        ({"models": {"m": {"input": 1, "output": 1}}, "prices": 1}, "'prices'"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_tables_that_are_none_are_refused(tmp_path: Path, value: Any, told: str) -> None:
    with pytest.raises(UserInputError, match=told):
        read_prices(write(tmp_path / "prices.json", value))
