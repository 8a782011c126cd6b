"""The JSON-Schema-Test-Suite as values: drafts, files, cases, instances."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

DRAFTS = {
    "draft2020-12": "https://json-schema.org/draft/2020-12/schema",
    "draft7": "http://json-schema.org/draft-07/schema#",
}


@dataclass(frozen=True, slots=True)
class Instance:
    """One value and whether the schema of its case allows it. Floats are Decimal."""

    description: str
    data: Any
    valid: bool


@dataclass(frozen=True, slots=True)
class Case:
    """One schema, as JSON text that names its draft, with instances."""

    file: str
    description: str
    schema: str
    instances: tuple[Instance, ...]


def cases(data_folder: Path, draft: str) -> Iterator[Case]:
    """All cases of a draft, optional ones too, in the order of files and in files."""
    folder = data_folder / "json-schema-test-suite" / "tests" / draft
    for path in sorted(folder.rglob("*.json")):
        name = path.relative_to(folder).as_posix()
        for raw in json.loads(path.read_text(encoding="utf-8"), parse_float=Decimal):
            schema = raw["schema"]
            if isinstance(schema, dict) and "$schema" not in schema:
                schema = {"$schema": DRAFTS[draft], **schema}
            instances = tuple(
                Instance(item["description"], item["data"], item["valid"]) for item in raw["tests"]
            )
            yield Case(name, raw["description"], json_text(schema), instances)


def json_text(value: Any) -> str:
    """A value as JSON text, Decimals with the digits that they have."""
    if isinstance(value, dict):
        members = (f"{json.dumps(name)}:{json_text(item)}" for name, item in value.items())
        return "{" + ",".join(members) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(json_text, value)) + "]"
    return str(value) if isinstance(value, Decimal) else json.dumps(value)
