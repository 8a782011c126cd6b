"""The prefix tree as an SVG picture: time runs to the right, what is shared is tall.

Knows the outline of a tree and nothing of plans.
"""

from __future__ import annotations

import math

from espalier.plan.tree_outline import DrawnNode
from espalier.report.page import escape

WIDTH = 1120
ROW_HEIGHT = 22
_GAP = 2
_CHARACTER = 6.7  # pixels of one, in the picture's font
_MIN_WIDTH = 9.0
_MIN_LABEL = 34.0


def tree_svg(root: DrawnNode) -> str:
    """The picture, of at most 56 rows; "" for a tree without tokens."""
    if not root.children:
        return ""
    longest = max(_length(node) for node in root.children)
    scale = WIDTH / longest
    boxes: list[str] = []
    y = 0.0
    for node in root.children:
        y = _draw(node, 0.0, y, scale, boxes)
    height = math.ceil(y)
    return (
        f'<svg class="tree" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img" aria-label="Prefix tree of all requests">{"".join(boxes)}</svg>'
    )


def _extent(node: DrawnNode) -> float:
    """Width of an edge before it is scaled: long edges are shortened, short ones can be seen."""
    return 4.0 if node.num_hidden else 1.5 + math.sqrt(node.num_tokens)


def _length(node: DrawnNode) -> float:
    """Width of the longest path from a node on."""
    longest = 0.0
    stack = [(node, 0.0)]
    while stack:
        item, before = stack.pop()
        total = before + _extent(item)
        longest = max(longest, total)
        stack += [(child, total) for child in item.children]
    return longest


def _draw(node: DrawnNode, x: float, y: float, scale: float, boxes: list[str]) -> float:
    """Draws a node with all below it; returns where the next one begins."""
    pending = [(node, x, False)]
    tops: list[float] = []
    bottom = y
    while pending:  # a post-order walk: a node is as tall as its children together
        item, left, is_done = pending.pop()
        if is_done:
            top = tops.pop()
            boxes.append(_box(item, left, top, _extent(item) * scale, bottom - top))
            continue
        tops.append(bottom)
        pending.append((item, left, True))
        right = left + _extent(item) * scale
        pending += [(child, right, False) for child in reversed(item.children)]
        if not item.children:
            bottom += ROW_HEIGHT
    return bottom


def _box(node: DrawnNode, x: float, y: float, width: float, height: float) -> str:
    width = max(width - _GAP, _MIN_WIDTH - _GAP)
    height -= _GAP
    return (
        f'<g class="{_kind(node)}"><title>{escape(_hover(node))}</title>'
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="3"/>'
        f"{_label(node, x, y, width, height)}</g>"
    )


def _kind(node: DrawnNode) -> str:
    if node.num_hidden:
        return "hidden"
    if node.is_generated:
        return "output"
    return "shared" if node.num_requests > 1 else "single"


def _hover(node: DrawnNode) -> str:
    tokens = _counted(node.num_tokens, "token")
    if node.num_hidden:
        return (
            f"{_counted(node.num_hidden, 'more branch', 'more branches')}: {tokens}, "
            f"{_counted(node.num_requests, 'request')}"
        )
    if node.is_generated:
        used = "kept for later prompts" if node.in_prompt else "in no later prompt"
        head = f"{tokens} of output, {used}"
    else:
        head = f"{tokens} in the prompts of {_counted(node.num_requests, 'request')}"
    return f"{head}\n\n{node.text}"


def _label(node: DrawnNode, x: float, y: float, width: float, height: float) -> str:
    """Counts and the beginning of the text, as far as there is room."""
    if width < _MIN_LABEL:
        return ""
    room = int((width - 10) / _CHARACTER)
    middle = y + height / 2
    if node.num_hidden:
        return _line(x, middle, _short(f"+{node.num_hidden:,} more", room), "count")
    counts = f"{node.num_tokens:,}"
    if node.num_requests > 1 and len(f"{counts} \u00d7{node.num_requests:,}") <= room:
        counts += f" \u00d7{node.num_requests:,}"
    text = " ".join(node.text.split())
    if height >= 2 * ROW_HEIGHT - _GAP:
        return _line(x, middle - 7, _short(counts, room), "count") + _line(
            x, middle + 8, _short(text, room), "text"
        )
    if len(counts) > room:
        return ""
    rest = room - len(counts) - 1
    words = f' <tspan class="text">{escape(_short(text, rest))}</tspan>' if rest >= 3 else ""
    return (
        f'<text x="{x + 5:.1f}" y="{middle + 4:.1f}"><tspan class="count">{escape(counts)}</tspan>'
        f"{words}</text>"
    )


def _line(x: float, y: float, text: str, kind: str) -> str:
    return f'<text class="{kind}" x="{x + 5:.1f}" y="{y + 4:.1f}">{escape(text)}</text>'


def _short(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: max(0, length - 1)]}\u2026"


def _counted(number: int, noun: str, nouns: str = "") -> str:
    return f"{number:,} {noun if number == 1 else nouns or noun + 's'}"
