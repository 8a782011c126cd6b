"""A plan as text for a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Sequence

from espalier.plan.counting import PartCounts
from espalier.plan.figures import ModelCost, PartPlan, PlanFigures

MAX_SHOWN_PARTS = 40
MAX_SHOWN_ROWS = 5
WIDTH = 80
_HEAD = ("part", "requests", "prompt", "computed", "hit rate", "forced", "output")


def plan_text(plan: PlanFigures) -> str:
    """The whole plan."""
    blocks = [_title(plan)]
    if plan.parts:
        blocks += [_table(plan), _sharing(plan), _prices(plan), _assumed(plan)]
    else:
        blocks.append(["The program makes no call of the model."])
    if plan.failed:
        blocks.append(_failed(plan))
    return "\n\n".join("\n".join(lines) for lines in blocks)


def _title(plan: PlanFigures) -> list[str]:
    size = "unlimited" if plan.cache_tokens is None else f"{plan.cache_tokens:,} tokens"
    rows = "1 row" if plan.rows == 1 else f"{plan.rows:,} rows"
    return _wrapped(
        [f"Plan of {plan.program} on {plan.model}: {rows}, cache {size}; no model was run."]
    )


def _table(plan: PlanFigures) -> list[str]:
    shown = plan.parts[:MAX_SHOWN_PARTS]
    rows: list[tuple[str, ...]] = [_HEAD]
    rows += [_row(_part_name(part, _files(plan)), part.counts) for part in shown]
    rest = plan.parts[MAX_SHOWN_PARTS:]
    if rest:
        counts = PartCounts()
        for part in rest:
            counts.add(part.counts)
        rows.append(_row(f"{len(rest)} more parts", counts))
    rows.append(_row("total", plan.total))
    lines = _aligned(rows)
    rule = "-" * max(map(len, lines))
    return [lines[0], rule, *lines[1:-1], rule, lines[-1]]


def _files(plan: PlanFigures) -> set[str]:
    return {part.place.rpartition(":")[0] for part in plan.parts if part.place}


def _part_name(part: PartPlan, files: set[str]) -> str:
    """Name and line; the file only where there are several."""
    if not part.place:
        return part.name
    file, _, line = part.place.rpartition(":")
    return (
        f"{_cut(part.name, 20)} ({file}:{line})"
        if len(files) > 1
        else (f"{_cut(part.name, 20)} (line {line})")
    )


def _row(name: str, counts: PartCounts) -> tuple[str, ...]:
    return (
        _cut(name, 34),
        f"{counts.requests:,}",
        f"{counts.prompt_tokens:,}",
        f"{counts.computed_tokens:,}",
        f"{counts.hit_rate:.1%}",
        f"{counts.forced_tokens:,}",
        f"{counts.generated_tokens:,}",
    )


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}\u2026"


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    gap = "  " if sum(widths) + 2 * len(widths) <= WIDTH else " "
    return [
        gap.join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]


def _sharing(plan: PlanFigures) -> list[str]:
    total = plan.total
    lines = [
        f"Hit rate {total.hit_rate:.1%}; no order and no cache has more than "
        f"{plan.optimal_hit_rate:.1%}.",
        f"The tree of all prompts has {plan.distinct_tokens:,} tokens; "
        f"{plan.distinct_tokens - plan.needed_tokens:,} of them are there as outputs already.",
    ]
    if plan.num_evicted:
        lines.append(
            f"The cache is too small for all: {plan.num_evicted:,} tokens are evicted. "
            f"Without a limit {plan.unlimited_computed_tokens:,} would be computed."
        )
    return _wrapped(lines)


def _prices(plan: PlanFigures) -> list[str]:
    costs, prices = plan.costs, plan.prices
    rows: list[tuple[str, ...]] = [
        ("price in " + prices.currency, "no sharing", "with cache", "saved")
    ]
    rows += [_cost_row(cost) for cost in costs]
    return [*_aligned(rows), *_wrapped([f"Prices as of {prices.date}, from {prices.source}."])]


def _cost_row(cost: ModelCost) -> tuple[str, ...]:
    saved = 1 - cost.shared / cost.unshared if cost.unshared else 0.0
    return (_cut(cost.model, 34), _money(cost.unshared), _money(cost.shared), f"{saved:.0%}")


def _money(amount: float) -> str:
    return f"{amount:,.2f}" if amount >= 1 else f"{amount:.6f}"


def _assumed(plan: PlanFigures) -> list[str]:
    by_kind: dict[str, list[str]] = {}
    for part in plan.parts:
        by_kind.setdefault(part.assumed, []).append(part.name)
    lines = []
    for kind, given in by_kind.items():
        names = list(dict.fromkeys(given))
        more = f" and {len(names) - 8} more" if len(names) > 8 else ""
        lines.append(f"Assumed: {kind} for {', '.join(names[:8])}{more}.")
    read = plan.read_names
    if read:
        more = f" and {len(read) - 8} more" if len(read) > 8 else ""
        lines.append(
            f"The program reads {', '.join(read[:8])}{more}: which calls follow may depend on "
            "what is assumed for them."
        )
    return _wrapped(lines)


def _failed(plan: PlanFigures) -> list[str]:
    shown = [f"row {failed.row}: {failed.error}" for failed in plan.failed[:MAX_SHOWN_ROWS]]
    more = len(plan.failed) - len(shown)
    count = "1 row" if len(plan.failed) == 1 else f"{len(plan.failed):,} rows"
    tail = [f"... and {more:,} more"] if more else []
    return _wrapped([f"{count} could not be planned to the end:", *shown, *tail])


def _wrapped(lines: Sequence[str]) -> list[str]:
    import textwrap

    return [
        part
        for line in lines
        for part in textwrap.wrap(line, WIDTH, subsequent_indent="  ") or [""]
    ]
