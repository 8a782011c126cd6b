"""Schemas with texts that they allow and texts that they do not, from three sources.

`suite`: required cases of the JSON-Schema-Test-Suite, draft 2020-12. `functions`: signatures of the
Berkeley function-calling data, with its accepted answers. `records`: schema_templates.py. Texts
are compact JSON, members in the schema's order where that is known. The `jsonschema` package
decides what is valid, but for the suite, which says so itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.constrain.instances import InstanceMaker
from bench.constrain.schema_templates import realistic_schemas

_TYPES = {"dict": "object", "float": "number", "tuple": "array", "any": None, "String": "string"}
_PER_SCHEMA = 3  # valid values and invalid values


@dataclass(frozen=True)
class Case:
    """One schema.

    Attributes:
        source: "suite", "functions" or "records".
        name: what it is called there.
        schema: as JSON text.
        valid, invalid: JSON texts.
    """

    source: str
    name: str
    schema: str
    valid: list[str] = field(default_factory=list)
    invalid: list[str] = field(default_factory=list)


def compact(value: Any) -> str:
    """JSON without space between its parts."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def suite_cases(folder: Path) -> Iterator[Case]:
    """Groups of the test suite without references to other documents."""
    for path in sorted((folder / "tests" / "draft2020-12").glob("*.json")):
        for group in json.loads(path.read_text(encoding="utf-8")):
            schema = json.dumps(group["schema"])
            if "http://localhost" in schema:
                continue
            texts: dict[bool, list[str]] = {True: [], False: []}
            for test in group["tests"]:
                texts[test["valid"]].append(compact(test["data"]))
            name = f"{path.stem}: {group['description']}"
            yield Case("suite", name, schema, texts[True], texts[False])


def function_cases(folder: Path) -> Iterator[Case]:
    """Arguments of the functions of the Berkeley function-calling data, one call each."""
    for path in sorted(folder.glob("BFCL_v4_*.json")):
        answers = (folder / "possible_answer" / path.name).read_text(encoding="utf-8").splitlines()
        questions = path.read_text(encoding="utf-8").splitlines()
        for question, answer in zip(questions, answers, strict=True):
            asked, call = json.loads(question), json.loads(answer)["ground_truth"][0]
            ((function, arguments),) = call.items()
            signature = next(item for item in asked["function"] if item["name"] == function)
            schema = _as_schema(signature["parameters"])
            value = {
                name: _first(arguments[name], part)
                for name, part in schema["properties"].items()
                if arguments.get(name) and arguments[name][0] != ""
            }
            yield _checked("functions", asked["id"], schema, [value])


def record_cases(seed: int) -> Iterator[Case]:
    """Schemas of the bench's own, with random values."""
    for index, (name, schema) in enumerate(realistic_schemas().items()):
        maker = InstanceMaker(schema, seed + index)
        yield _checked("records", name, schema, [maker.make() for _ in range(_PER_SCHEMA)], maker)


def _checked(
    source: str,
    name: str,
    schema: dict[str, Any],
    values: list[Any],
    maker: InstanceMaker | None = None,
) -> Case:
    from jsonschema import Draft202012Validator

    validator = Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)
    case = Case(source, name, json.dumps(schema))
    damager = maker or InstanceMaker(schema, len(name))
    for value in values:
        if not validator.is_valid(value):
            continue
        case.valid.append(compact(value))
        damaged = (damager.damage(value) for _ in range(10))
        wrong = [compact(item) for item in damaged if not validator.is_valid(item)]
        case.invalid.extend(wrong[:_PER_SCHEMA])
    return case


def _as_schema(signature: dict[str, Any]) -> dict[str, Any]:
    """A signature with Python's names of types as a schema with closed objects."""
    made: dict[str, Any] = {}
    kind = signature.get("type")
    kind = _TYPES.get(str(kind), kind)
    if kind is not None:
        made["type"] = kind
    if "enum" in signature:
        made["enum"] = signature["enum"]
    if kind == "array" and "items" in signature:
        made["items"] = _as_schema(signature["items"])
    if kind == "object" and "properties" in signature:
        made["properties"] = {
            name: _as_schema(part) for name, part in signature["properties"].items()
        }
        made["required"] = signature.get("required", [])
        made["additionalProperties"] = False
    return made


def _first(accepted: list[Any], schema: dict[str, Any]) -> Any:
    """The first accepted answer; members of objects have lists of accepted ones in turn."""
    value = accepted[0]
    if schema.get("type") == "object" and isinstance(value, dict):
        parts = schema.get("properties", {})
        return {
            name: _first(value[name], parts[name])
            for name in parts
            if isinstance(value.get(name), list) and value[name] and value[name][0] != ""
        }
    return value
