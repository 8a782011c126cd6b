"""The numbers of a page: the cards at its top, and the table of variables."""

from __future__ import annotations

from collections.abc import Iterator

from espalier.report.call_text import call_tip, source_line
from espalier.report.drawing import Drawing
from espalier.report.figures import counted, percent, place, seconds
from espalier.report.page import escape
from espalier.report.record import CANCELLED, FAILED, SHARED_PREFIX, CallRecord, VariableRecord

MAX_ROWS = 1_000
_MAX_SHOWN = 240


def cards(drawing: Drawing) -> str:
    """Time, calls, prompt tokens and what sharing saved, generated tokens."""
    usage, calls = drawing.usage, drawing.calls
    failed = sum(call.status == FAILED or bool(call.texts and call.error) for call in calls)
    cancelled = sum(call.status == CANCELLED for call in calls)
    bad = [f"{failed} failed"] * bool(failed) + [f"{cancelled} not run"] * bool(cancelled)
    first = f", first token after {seconds(usage.ttft_s)}" if usage.ttft_count else ""
    states = counted(len(drawing.lanes) + drawing.num_hidden_lanes, "state")
    runs = f"{counted(len(drawing.runs), 'run')}, " if len(drawing.runs) > 1 else ""
    saved = percent(usage.cached_tokens, usage.prompt_tokens)
    forced = f", {usage.forced_tokens:,} forced" if usage.forced_tokens else ""
    together = usage.call_sum_s / usage.wall_s if usage.wall_s else 0.0
    return (
        '<div class="cards">'
        + _card(seconds(drawing.end - drawing.begin), f"{runs}{states}")
        + _card(counted(len(calls), "call"), ", ".join(bad) or f"{together:.1f} at once on average")
        + _card(
            f"{usage.prompt_tokens:,}",
            f"prompt tokens: {usage.cached_tokens:,} cached, {usage.computed_tokens:,} computed",
            _meter(usage.cached_tokens, usage.computed_tokens),
        )
        + _card(saved, "of the prompt tokens saved by the cache")
        + _card(f"{usage.generated_tokens:,}", f"generated tokens{forced}{first}")
        + "</div>"
    )


def _card(figure: str, text: str, more: str = "") -> str:
    return f'<div class="card"><b>{escape(figure)}</b><span>{escape(text)}</span>{more}</div>'


def _meter(cached: int, computed: int) -> str:
    if not cached + computed:
        return ""
    share = 100 * cached / (cached + computed)
    return f'<i class="meter" aria-hidden="true"><i style="width:{share:.1f}%"></i></i>'


def variables(drawing: Drawing) -> str:
    """The panel of variables, in the order in which they were submitted or set."""
    rows = sorted(_rows(drawing), key=lambda row: row[0])
    if not rows:
        return ""
    left_out = len(rows) - MAX_ROWS
    note = f'<p class="note">{counted(left_out, "more row")} not shown.</p>' if left_out > 0 else ""
    body = "".join(row for _, row in rows[:MAX_ROWS])
    return (
        '<section class="panel" aria-labelledby="variables"><h2 id="variables">Variables</h2>'
        '<div class="scroll"><table class="grid"><thead><tr><th>Name<th>State<th>Value'
        '<th class="num">Cached<th class="num">Computed<th class="num">Written'
        '<th class="num">Time<th>Line</tr></thead>'
        f"<tbody>{body}</tbody></table></div>{note}</section>"
    )


def _rows(drawing: Drawing) -> Iterator[tuple[float, str]]:
    for index, lane in enumerate(drawing.lanes, start=1):
        name = "main" if lane.is_root else lane.state.name
        if len(drawing.runs) > 1:
            name = f"{lane.run.title[:24]} {'' if lane.is_root else lane.state.name}".rstrip()
        state = f'<a href="#state-{index}">{escape(name)}</a>'
        for call in lane.state.calls:
            if call.kind != SHARED_PREFIX:
                yield call.submitted_at, _call_row(call, drawing.numbers[call], state)
        for variable in lane.state.variables:
            yield variable.at, _set_row(variable, state)


def _call_row(call: CallRecord, number: int, state: str) -> str:
    name = escape(call.variable) if call.variable is not None else f"<i>{escape(call.kind)}</i>"
    usage = call.usage
    counts = (
        "<td><td><td>"
        if usage is None
        else "".join(
            f'<td class="num">{count:,}'
            for count in (usage.cached_tokens, usage.computed_tokens, usage.generated_tokens)
        )
    )
    took = None if call.ended_at is None or call.sent_at is None else call.ended_at - call.sent_at
    line = f'<td class="mono" title="{escape(source_line(call.location or ""))}">'
    return (
        f'<tr data-call="{number}"{" class=bad" if call.error else ""} '
        f'title="{escape(call_tip(call))}"><td class="mono"><a href="#call-{number}">{name}</a>'
        f"<td>{state}<td>{_value(call)}{counts}"
        f'<td class="num">{escape(seconds(took))}{line}{escape(place(call.location))}</tr>'
    )


def _value(call: CallRecord) -> str:
    error = "" if call.error is None else f'<span class="failed">{escape(_cut(call.error))}</span>'
    if call.status == CANCELLED:
        status = "not run" if call.sent_at is None else call.status
        return f'<span class="failed cancelled">{status}</span>'
    if not call.texts:
        return error or f'<span class="missing">{escape(call.status)}</span>'
    samples = "".join(f'<code class="value">{escape(_cut(text))}</code>' for text in call.texts)
    return samples + error


def _set_row(variable: VariableRecord, state: str) -> str:
    return (
        f'<tr><td class="mono">{escape(variable.name)}<td>{state}'
        f'<td><code class="value">{escape(_cut(variable.value))}</code>'
        f'<td><td><td><td class="num soft">{escape(variable.how)}<td></tr>'
    )


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 1]}…"
