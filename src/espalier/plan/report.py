"""A plan as one HTML page: figures, parts and their flow, the prefix tree, prices, assumptions."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from espalier.plan.counting import PartCounts
from espalier.plan.figures import PartPlan, PlanFigures
from espalier.plan.graph_drawing import MAX_DRAWN_PARTS, graph_svg
from espalier.plan.prefix_tree import Ids
from espalier.plan.tree_drawing import tree_svg
from espalier.plan.tree_outline import Outline, count_requests
from espalier.report.page import escape, page

MAX_TABLE_ROWS = 200
MAX_FAILED_ROWS = 20
_HEADS = ("Requests", "Prompt", "Cached", "Computed", "Hit rate", "Forced", "Output")


def plan_page(plan: PlanFigures) -> str:
    """The page; text of programs and models is escaped."""
    sections = [_header(plan), _cards(plan), _failed(plan)]
    if plan.parts:
        sections += [_parts(plan), _tree(plan), _prices(plan), _assumed(plan)]
    else:
        sections.append('<p class="note">The program makes no call of the model.</p>')
    title = f"Plan of {plan.program}"
    return page(title, "\n".join(filter(None, sections)), style=_style())


@cache
def _style() -> str:
    return files("espalier.plan").joinpath("plan.css").read_text(encoding="utf-8")


def _header(plan: PlanFigures) -> str:
    size = (
        "an unlimited cache"
        if plan.cache_tokens is None
        else (f"a cache of {plan.cache_tokens:,} tokens")
    )
    rows = "1 row" if plan.rows == 1 else f"{plan.rows:,} rows"
    return (
        f'<header class="top"><h1>Plan of {escape(plan.program)}</h1><p>{rows} on '
        f"{escape(plan.model)} with {size}. Tokens are the model's own; answers are assumed. "
        "No model was run.</p></header>"
    )


def _cards(plan: PlanFigures) -> str:
    total = plan.total
    cards = [
        (f"{total.requests:,}", "requests"),
        (f"{total.prompt_tokens:,}", "prompt tokens without sharing"),
        (f"{total.computed_tokens:,}", "computed with the cache"),
        (f"{total.hit_rate:.1%}", f"hit rate; {plan.optimal_hit_rate:.1%} is the most possible"),
        (f"{total.generated_tokens:,}", f"tokens of output, {total.forced_tokens:,} forced"),
    ]
    return (
        '<div class="cards">'
        + "".join(
            f'<div class="card"><b>{value}</b><span>{escape(name)}</span></div>'
            for value, name in cards
        )
        + "</div>"
    )


def _failed(plan: PlanFigures) -> str:
    if not plan.failed:
        return ""
    shown = plan.failed[:MAX_FAILED_ROWS]
    items = "<br>".join(escape(f"row {failed.row}: {failed.error}") for failed in shown)
    more = len(plan.failed) - len(shown)
    tail = f"<br>and {more:,} more" if more else ""
    return f'<p class="error">Not planned to the end: {items}{tail}</p>'


def _parts(plan: PlanFigures) -> str:
    picture = graph_svg(plan.parts, plan.counts)
    hidden = len(plan.parts) - MAX_DRAWN_PARTS
    note = f'<p class="soft">{hidden:,} more parts are in the table.</p>' if hidden > 0 else ""
    rows = [_row(part) for part in plan.parts[:MAX_TABLE_ROWS]]
    if len(plan.parts) > MAX_TABLE_ROWS:
        rest = len(plan.parts) - MAX_TABLE_ROWS
        rows.append(f'<tr><td colspan="9">and {rest:,} more parts</td></tr>')
    total = _cells("total", "", plan.total)
    heads = "".join(f'<th class="num">{head}</th>' for head in _HEADS)
    return (
        '<section class="panel"><h2>Parts of the program</h2><p class="soft">A part is a call by '
        "its variable and source line; an arrow leads to the part that goes on from it, with the "
        "number of requests. The bar is the share of its prompt that the cache holds; figures are "
        "computed of all prompt tokens.</p>"
        f'<div class="beside"><div class="scroll">{picture}{note}</div>'
        '<div class="scroll table"><table class="grid">'
        f"<tr><th>Variable</th><th>Line</th>{heads}</tr>{''.join(rows)}"
        f'<tr class="sum">{total}</tr></table></div></div></section>'
    )


def _row(part: PartPlan) -> str:
    return f"<tr>{_cells(part.name, part.place, part.counts)}</tr>"


def _cells(name: str, place: str, counts: PartCounts) -> str:
    figures = (
        f"{counts.requests:,}",
        f"{counts.prompt_tokens:,}",
        f"{counts.cached_tokens:,}",
        f"{counts.computed_tokens:,}",
        f"{counts.hit_rate:.1%}",
        f"{counts.forced_tokens:,}",
        f"{counts.generated_tokens:,}",
    )
    return f"<td>{escape(name)}</td><td>{escape(place)}</td>" + "".join(
        f'<td class="num">{figure}</td>' for figure in figures
    )


def _tree(plan: PlanFigures) -> str:
    def text_of(ids: Ids) -> str:
        return plan.tokenizer.decode(ids, skip_special_tokens=False)

    root = Outline(count_requests(plan.records), text_of).draw(plan.tree)
    keys = (
        ("shared", "prompt of several requests"),
        ("single", "prompt of one request"),
        ("output", "output of the model"),
        ("hidden", "branches that are not drawn"),
    )
    legend = "".join(f'<li><span class="key {kind}"></span>{name}</li>' for kind, name in keys)
    evicted = (
        f'<p class="note">The cache is too small for the tree: {plan.num_evicted:,} tokens are '
        f"evicted. Without a limit {plan.unlimited_computed_tokens:,} would be computed.</p>"
        if plan.num_evicted
        else ""
    )
    return (
        '<section class="panel"><h2>Prefix tree of all requests</h2><p class="soft">'
        f"{plan.distinct_tokens:,} tokens of prompts, each place once; "
        f"{plan.distinct_tokens - plan.needed_tokens:,} of them are there as outputs already. A "
        "box is a run of tokens: its number of tokens, the requests that have it in their prompt, "
        "its text. Wider is longer (by the square root), taller is shared by more.</p>"
        f'<ul class="legend">{legend}</ul><div class="scroll">{tree_svg(root)}</div>{evicted}'
        "</section>"
    )


def _prices(plan: PlanFigures) -> str:
    rows = "".join(
        f'<tr><td>{escape(cost.model)}</td><td class="num">{_money(cost.unshared)}</td>'
        f'<td class="num">{_money(cost.shared)}</td></tr>'
        for cost in plan.costs
    )
    prices = plan.prices
    return (
        f'<section class="panel"><h2>Price in {escape(prices.currency)}</h2>'
        '<div class="scroll"><table class="grid"><tr><th>Model</th>'
        '<th class="num">Nothing cached</th><th class="num">With the cache</th></tr>'
        f'{rows}</table></div><p class="note">Prices as of {escape(prices.date)}, from '
        f"{escape(prices.source)}. Token counts are those of {escape(plan.model)}.</p></section>"
    )


def _money(amount: float) -> str:
    return f"{amount:,.2f}" if amount >= 1 else f"{amount:.6f}"


def _assumed(plan: PlanFigures) -> str:
    items = "".join(
        f"<li><code>{escape(part.name)}</code>: {escape(part.assumed)}"
        + ("; the program reads it, so that what follows may depend on it" * part.is_read)
        + "</li>"
        for part in plan.parts[:MAX_TABLE_ROWS]
    )
    return (
        f'<section class="panel"><h2>Assumed answers</h2><ul class="plain">{items}</ul></section>'
    )
