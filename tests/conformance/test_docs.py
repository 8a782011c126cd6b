"""docs/json-schema.md says what the tests found; `--update` writes its generated parts."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.conformance.keyword_table import annotation_list, format_table, keyword_table

DOCS = Path(__file__).parents[2] / "docs" / "json-schema.md"
EXPECTED = Path(__file__).parent / "expected"


def test_generated_parts_are_current(update_expected: bool) -> None:
    expected = {path.stem: json.loads(path.read_text("utf-8")) for path in EXPECTED.glob("*.json")}
    text = DOCS.read_text("utf-8")
    current = text
    for name, part in {
        "keywords": keyword_table(expected),
        "formats": format_table(),
        "annotations": annotation_list(),
        "figures": _figures(expected),
    }.items():
        marker = f"<!-- {name} -->"
        pattern = re.compile(f"{marker}\n.*?{marker}", re.DOTALL)
        assert len(pattern.findall(current)) == 1, marker
        before, old, after = current.partition(pattern.findall(current)[0])
        assert old
        current = f"{before}{marker}\n{part}\n{marker}{after}"
    if update_expected:
        DOCS.write_text(current, "utf-8")
        text = current
    assert text == current, "run `pytest --update tests/conformance`"


def _figures(expected: dict[str, dict[str, object]]) -> str:
    lines = ["| draft | schemas | pattern | up to a bound | llguidance | no value | refused |"]
    lines.append("|---|---|---|---|---|---|---|")
    for draft in sorted(expected):
        handlings = expected[draft]["handlings"]
        assert isinstance(handlings, dict)
        names = ("pattern", "bounded pattern", "llguidance", "no value", "refused")
        cells = [draft, expected[draft]["num_schemas"], *(handlings.get(n, 0) for n in names)]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)
