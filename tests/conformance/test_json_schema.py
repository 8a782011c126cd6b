"""The official JSON Schema suite: nothing invalid is accepted; what is refused is committed.

`pytest --update tests/conformance` writes the expectations anew.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.json_suite import DRAFTS, cases
from tests.conformance.verdicts import HANDLINGS, NO_VALUE, Verdict, judged

EXPECTED = Path(__file__).parent / "expected"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("draft", DRAFTS)
def test_suite(draft: str, shared_data: Path, update_expected: bool) -> None:
    verdicts = [(case.file, case.description, judged(case)) for case in cases(shared_data, draft)]
    wrong = [(file, name, found.false_accepts) for file, name, found in verdicts
             if found.false_accepts]  # fmt: skip
    assert wrong == []
    unexplained = [(file, name) for file, name, found in verdicts
                   if "?" in found.false_rejects.values()]  # fmt: skip
    assert unexplained == []
    summary = _summary(verdicts)
    path = EXPECTED / f"{draft}.json"
    if update_expected:
        path.write_text(json.dumps(summary, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    assert summary == json.loads(path.read_text(encoding="utf-8")), "see --update"


def _summary(verdicts: list[tuple[str, str, Verdict]]) -> dict[str, Any]:
    handlings = Counter(
        found.handling if found.handling in HANDLINGS else "refused" for _, _, found in verdicts
    )
    files: dict[str, Any] = {}
    for file, name, found in verdicts:
        entry = files.setdefault(file, {})
        if found.handling in HANDLINGS and found.handling != NO_VALUE:
            entry[found.handling] = entry.get(found.handling, 0) + 1
        else:
            entry.setdefault("refused", {})[name] = found.handling
        for instance, reason in found.false_rejects.items():
            entry.setdefault("rejects", {}).setdefault(reason, []).append(f"{name}: {instance}")
    return {"num_schemas": len(verdicts), "handlings": dict(sorted(handlings.items())),
            "files": {file: entry for file, entry in files.items() if entry}}  # fmt: skip
