"""What becomes of a schema and of its instances."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from tests.conformance.json_suite import Case, Instance
from tests.conformance.spellings import spellings

from espalier.constrain.pattern import Pattern
from espalier.constrain.schema import NotRegular, check_schema, schema_pattern
from espalier.constrain.schema.naive_match import matches
from espalier.errors import UserInputError

MAX_RECURSION = 2  # where a schema nests without end, the tests look at this much of it


@dataclass(slots=True)
class Verdict:
    """How a schema is handled, and what happened to its instances.

    Attributes:
        handling: "pattern"; "bounded" for one that nests without end and is a pattern only up to
            MAX_RECURSION; "no value" for one that allows nothing; else the refused keyword.
        false_accepts: invalid instances that were accepted.
        false_rejects: valid instances that were not, with the reason why.
    """

    handling: str
    false_accepts: list[str] = field(default_factory=list)
    false_rejects: dict[str, str] = field(default_factory=dict)


def judged(case: Case) -> Verdict:
    """Compiles a case's schema and tries its instances."""
    verdict = Verdict("pattern")
    try:
        checked = check_schema(case.schema)
        try:
            pattern = schema_pattern(checked)
        except NotRegular:
            verdict.handling = "bounded"
            pattern = schema_pattern(checked, max_recursion=MAX_RECURSION)
    except NotRegular as error:
        return Verdict(f"not regular: {error.keyword}")
    except UserInputError as error:
        return Verdict(_refused_keyword(str(error)))
    for instance in case.instances:
        _try(instance, case, pattern, verdict)
    return verdict


def _try(instance: Instance, case: Case, pattern: Pattern, verdict: Verdict) -> None:
    accepted = any(matches(pattern, text) for text in spellings(instance.data))
    if accepted and not instance.valid:
        verdict.false_accepts.append(instance.description)
    if instance.valid and not accepted:
        reason = next((name for name, holds in REASONS.items() if holds(case, instance)), "?")
        verdict.false_rejects[instance.description] = reason


def _refused_keyword(message: str) -> str:
    if "allows no value" in message:
        return "no value"
    found = re.match(r"JSON schema: '([^']+)'", message)
    assert found, message
    return found[1]


def _has_whole_decimal(value: Any) -> bool:
    if isinstance(value, list):
        return any(map(_has_whole_decimal, value))
    return isinstance(value, Decimal) and value % 1 == 0


def _depth(value: Any) -> int:
    items = value.values() if isinstance(value, dict) else value
    return 1 + max(map(_depth, items), default=0) if isinstance(value, (dict, list)) else 0


# Why a valid instance may be rejected, and whether that can be so.
REASONS: dict[str, Callable[[Case, Instance], bool]] = {
    "a format is asserted": lambda case, _: case.file == "format.json",
    "only some texts of the format": lambda case, _: "/format/" in case.file,
    "an integer with a point": lambda _, instance: _has_whole_decimal(instance.data),
    "deeper than the bound": lambda _, instance: _depth(instance.data) > MAX_RECURSION,
}
