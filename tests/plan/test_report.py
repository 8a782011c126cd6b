"""The HTML report: bounded, escaped, self-contained, and opened in a real browser."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.report.browser import dom_of

import espalier as sgl
from espalier import gen, select
from espalier.errors import UserInputError
from espalier.plan.model import PlannedModel
from espalier.plan.plan import Plan
from espalier.plan.report import plan_page
from espalier.plan.tree_outline import (
    MAX_DRAWN_NODES,
    MAX_LEAVES,
    DrawnNode,
    Outline,
    count_requests,
)

NASTY = '</title><script>alert(1)</script> & "quotes" \x00 \U0001f600'


@sgl.function
def fork_and_judge(s: sgl.ProgramState, text: str) -> None:
    s += f"A text that all judges read: {text}\n"
    forks = s.fork(3)
    forks += [f"Judge {number}:" for number in range(3)]
    forks += gen("comment", max_tokens=12, temperature=0)
    forks += " Mark:" + select("mark", choices=["good", "bad"])
    forks.join()
    s += "\nSummary:" + gen("summary", max_tokens=8)


def plan_of(tiny: PlannedModel, texts: Sequence[str]) -> Plan:
    return fork_and_judge.plan([[text] for text in texts], model=tiny)


def drawn(plan: Plan) -> DrawnNode:
    outline = Outline(count_requests(plan.records), plan.tokenizer.decode)
    return outline.draw(plan.tree)


def nodes_of(root: DrawnNode) -> list[DrawnNode]:
    found, stack = [], list(root.children)
    while stack:
        node = stack.pop()
        found.append(node)
        stack.extend(node.children)
    return found


@pytest.mark.parametrize("num_rows", [1, 2, 9, 40, 150])
def test_a_drawn_tree_is_bounded_and_holds_every_token(tiny: PlannedModel, num_rows: int) -> None:
    texts = [f"{number * 7919 % 1009} {'x' * (number % 5)}" for number in range(num_rows)]
    plan = plan_of(tiny, texts)
    nodes = nodes_of(drawn(plan))
    total = sum(len(node.ids) for node in plan.tree.nodes())
    assert sum(node.num_tokens for node in nodes) == total
    assert len(nodes) <= MAX_DRAWN_NODES + MAX_LEAVES
    assert sum(1 for node in nodes if not node.children) <= MAX_LEAVES
    if num_rows > 9:
        assert any(node.num_hidden for node in nodes)
        # Some rows are drawn to their end.
        assert any(not node.num_hidden and not node.children for node in nodes)


def test_a_deep_tree_is_drawn(tiny: PlannedModel) -> None:
    @sgl.function
    def long(s: sgl.ProgramState) -> None:
        for number in range(60):
            s += f"{number}:" + gen(f"v{number}", max_tokens=2)

    plan = long.plan([{}, {}], model=tiny)
    page = plan_page(plan)
    assert page.count('class="part"') == 40
    assert "20 more parts are in the table" in page
    assert "20 more parts" in str(plan)


def test_requests_through_a_place_are_counted_once_each(tiny: PlannedModel) -> None:
    root = drawn(plan_of(tiny, ["one", "one"]))
    (first,) = root.children
    # Per row three comments, three marks and a summary; the two rows are the same.
    assert first.num_requests == 14


def test_the_page_asks_nothing_of_the_network_and_escapes_text(tiny: PlannedModel) -> None:
    page = plan_page(plan_of(tiny, [NASTY]))
    assert "<script>alert" not in page
    assert "\x00" not in page
    assert not re.search(r"https?://|src=|@import|url\(", page.replace("url(#tip)", ""))


def test_a_report_that_cannot_be_written_is_refused(tiny: PlannedModel, tmp_path: Path) -> None:
    with pytest.raises(UserInputError, match="cannot be written"):
        plan_of(tiny, ["x"]).write_report(tmp_path / "missing" / "plan.html")


def test_a_plan_without_calls_has_a_page(tiny: PlannedModel) -> None:
    @sgl.function
    def silent(s: sgl.ProgramState) -> None:
        s += "nothing"

    assert "makes no call" in plan_page(silent.plan(model=tiny))


def test_a_browser_draws_the_page(tiny: PlannedModel, tmp_path: Path) -> None:
    path = tmp_path / "plan.html"
    plan_of(tiny, ["one", "two", NASTY]).write_report(path)
    dom = dom_of(path, tmp_path)
    assert dom.count('class="part"') == 3
    assert {kind for kind in ("shared", "single", "output") if f'<g class="{kind}"' in dom} == {
        "shared", "single", "output",
    }  # fmt: skip
    assert "alert(1)" in dom  # as text, in the tree
    assert "<script>alert" not in dom
