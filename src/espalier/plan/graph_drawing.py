"""The parts of a program as an SVG picture: which call goes on from which, and what it shares.

Knows parts and their flow, and nothing of the tree.
"""

from __future__ import annotations

from collections.abc import Sequence

from espalier.backends.base import CallSite
from espalier.plan.counting import Counts
from espalier.plan.figures import PartPlan
from espalier.report.page import escape

MAX_DRAWN_PARTS = 40
BOX_WIDTH, BOX_HEIGHT = 208, 58
_GAP_X, _GAP_Y = 28, 38
_BAR = BOX_WIDTH - 24
MAX_COLUMNS = 5

Flow = tuple[int, int, int]  # (from part, to part, requests); part -1 is the start


def graph_svg(parts: Sequence[PartPlan], counts: Counts) -> str:
    """The picture of at most 40 parts; "" where there are none."""
    shown = parts[:MAX_DRAWN_PARTS]
    if not shown:
        return ""
    flows = _flows(list(counts.parts)[: len(shown)], counts)
    places = _places(len(shown), flows)
    right = max(x for x, _ in places) + BOX_WIDTH
    bottom = max(y for _, y in places) + BOX_HEIGHT
    lines = "".join(_arrow(flow, places) for flow in flows)
    boxes = "".join(_box(part, *place) for part, place in zip(shown, places, strict=True))
    width, height = right + 24, bottom + 4
    return (
        f'<svg class="graph" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'role="img" aria-label="Parts of the program"><defs><marker id="tip" viewBox="0 0 8 8" '
        'refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path d="M0 0L8 4L0 8z"/></marker></defs>{lines}{boxes}</svg>'
    )


def _flows(sites: list[CallSite | None], counts: Counts) -> list[Flow]:
    index = {site: number for number, site in enumerate(sites)}
    return [
        (-1 if before is None else index[before], index[after], number)
        for (before, after), number in sorted(
            counts.flow.items(), key=lambda item: (str(item[0][0]), str(item[0][1]))
        )
        if after in index and (before is None or before in index)
    ]


def _places(num_parts: int, flows: Sequence[Flow]) -> list[tuple[int, int]]:
    """Upper left corners: parts below those that they go on from."""
    levels = [0] * num_parts
    for part in range(num_parts):  # parts are in the order of their first request
        before = [levels[start] for start, end, _ in flows if end == part and 0 <= start < part]
        levels[part] = max(before) + 1 if before else 0
    places = []
    taken: dict[int, int] = {}
    row_of: dict[int, int] = {}
    num_rows = 0
    for level in sorted(set(levels)):
        row_of[level] = num_rows
        num_rows += -(-levels.count(level) // MAX_COLUMNS)
    for level in levels:
        number = taken.get(level, 0)
        taken[level] = number + 1
        row = row_of[level] + number // MAX_COLUMNS
        x = 12 + number % MAX_COLUMNS * (BOX_WIDTH + _GAP_X)
        places.append((x, 22 + row * (BOX_HEIGHT + _GAP_Y)))
    return places


def _arrow(flow: Flow, places: Sequence[tuple[int, int]]) -> str:
    start, end, number = flow
    x, y = places[end]
    x += BOX_WIDTH // 2
    title = f"<title>{number:,} requests</title>"
    label = f'<text class="flow" x="{x + 7}" y="{y - 6}">{number:,}</text>'
    if start < 0:
        return f'<g>{title}<path class="flow" d="M{x} {y - 20}V{y - 3}"/>{label}</g>'
    from_x, from_y = places[start]
    if start >= end:  # a loop: back to itself, or to a part above
        side = max(from_x, places[end][0]) + BOX_WIDTH
        to_y, out_y = y + BOX_HEIGHT // 2 - 10, from_y + BOX_HEIGHT // 2 + 10
        bow = side + 26
        path = f"M{from_x + BOX_WIDTH} {out_y}C{bow} {out_y} {bow} {to_y} {side + 3} {to_y}"
        return f'<g>{title}<path class="flow" d="{path}"/></g>'
    from_x, from_y = from_x + BOX_WIDTH // 2, from_y + BOX_HEIGHT
    middle = (from_y + y) // 2
    path = f"M{from_x} {from_y}C{from_x} {middle} {x} {middle} {x} {y - 3}"
    return f'<g>{title}<path class="flow" d="{path}"/>{label}</g>'


def _box(part: PartPlan, x: int, y: int) -> str:
    counts = part.counts
    share = counts.hit_rate
    hover = (
        f"{part.name} ({part.kind}) {part.place}\n{counts.requests:,} requests, "
        f"{counts.prompt_tokens:,} prompt tokens, {counts.cached_tokens:,} of them cached\n"
        f"{counts.generated_tokens:,} tokens of output, {counts.forced_tokens:,} of them forced\n"
        f"assumed: {part.assumed}"
    )
    name = part.name if len(part.name) <= 18 else f"{part.name[:17]}\u2026"
    line = part.place.rpartition(":")[2]
    where = f"{part.kind} \u00b7 line {line}" if line else part.kind
    counted = f"{counts.requests:,} \u00d7, {counts.computed_tokens:,} of {counts.prompt_tokens:,}"
    return (
        f'<g class="part"><title>{escape(hover)}</title>'
        f'<rect class="box" x="{x}" y="{y}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="6"/>'
        f'<text class="name" x="{x + 12}" y="{y + 19}">{escape(name)}</text>'
        f'<text class="soft" x="{x + BOX_WIDTH - 12}" y="{y + 19}" text-anchor="end">'
        f"{escape(where)}</text>"
        f'<text class="soft" x="{x + 12}" y="{y + 37}">{escape(counted)}</text>'
        f'<text class="soft" x="{x + BOX_WIDTH - 12}" y="{y + 37}" text-anchor="end">'
        f"{share:.0%}</text>"
        f'<rect class="rest" x="{x + 12}" y="{y + 45}" width="{_BAR}" height="5" rx="2.5"/>'
        f'<rect class="cached" x="{x + 12}" y="{y + 45}" width="{_BAR * share:.1f}" height="5" '
        'rx="2.5"/></g>'
    )
