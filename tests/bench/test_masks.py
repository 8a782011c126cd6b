"""The bench of masks: its schemas and values, the walk through texts, and its figures."""

from __future__ import annotations

import json
from typing import Any

import pytest
from bench.constrain.corpus import record_cases
from bench.constrain.mask_adapter import follow, measure_case
from bench.constrain.mask_summary import figures, summary, table

END = 9


class ListMatcher:
    """Allows the tokens of one text and then the end."""

    def __init__(self, token_ids: list[int]) -> None:
        self._left = [*token_ids, END]

    def fill(self) -> None:
        self.allowed = self._left[0]

    def allows(self, token_id: int) -> bool:
        return token_id == self.allowed

    def accept(self, token_id: int) -> None:
        assert token_id == self._left.pop(0)


class ListLibrary:
    """A schema is the JSON list of the tokens of its only text."""

    def start(self, vocabulary: dict[str, Any]) -> dict[str, Any]:
        return {}

    def compile(self, schema: str) -> Any:
        return json.loads(schema)

    def matcher(self, grammar: Any) -> ListMatcher:
        return ListMatcher(grammar)


def test_a_walk_times_each_mask_and_tells_whether_the_end_is_reached() -> None:
    times: list[int] = []
    assert follow(ListLibrary(), [1, 2], [1, 2], END, times)
    assert len(times) == 3
    assert not follow(ListLibrary(), [1, 2], [1], END, times)
    assert not follow(ListLibrary(), [1, 2], [1, 3, 4], END, times)
    assert len(times) == 7


def test_a_schema_is_measured_twice_and_a_refused_one_says_why() -> None:
    held: list[Any] = []
    case = {"schema": "[1, 2]", "valid": [[1, 2]], "invalid": [[1], [2, 2]]}
    result = measure_case(ListLibrary(), case, END, held)
    assert [len(times) for times in result["mask_ns"]] == [3, 3]
    assert result["valid_accepted"] == [True]
    assert result["invalid_accepted"] == [False, False]
    assert held == [[1, 2]]
    refused = measure_case(ListLibrary(), {**case, "schema": "["}, END, held)
    assert list(refused) == ["refused"]


def measured(mask_ns: int, valid: bool = True, invalid: bool = False) -> dict[str, Any]:
    return {
        "compile_ns": 2_000_000,
        "mask_ns": [[4 * mask_ns] * 3, [mask_ns] * 3],
        "valid_accepted": [valid],
        "invalid_accepted": [invalid, False],
    }


def test_figures_are_those_of_the_schemas_that_compiled() -> None:
    found = figures([measured(1_000), measured(3_000, invalid=True), {"refused": "why"}])
    assert found["schemas"] == 3
    assert found["compiled_percent"] == pytest.approx(66.67)
    assert found["invalid_accepted"] == 1
    assert found["invalid_accepted_percent"] == 25
    assert found["compile_ms_p50"] == 2
    assert (found["warm_us_mean"], found["cold_us_mean"]) == (2, 8)
    assert found["warm_us_p99_9"] == 3


def test_common_schemas_are_those_that_all_libraries_follow() -> None:
    results = {
        "llguidance": [measured(4_000), measured(100), {"refused": "why"}],
        "other": [measured(1_000), measured(900, valid=False), measured(500)],
    }
    found = summary(results, ["records", "suite", "suite"])
    assert found["common"]["other"]["schemas"] == 1
    assert found["of llguidance's, common"]["other"]["warm_us_mean"] == 0.25
    assert found["suite"]["llguidance"]["compiled_percent"] == 50
    assert "other" in table(found)


def test_records_have_valid_and_invalid_values() -> None:
    cases = list(record_cases(1))
    assert len({case.schema for case in cases}) == len(cases) == 64
    for case in cases:
        assert len(case.valid) == 3, case.name
        assert len(case.invalid) >= 3, case.name
    assert [case.valid for case in record_cases(1)] == [case.valid for case in cases]
