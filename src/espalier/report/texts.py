"""The texts of runs, coloured by origin, with errors where the text would have gone on."""

from __future__ import annotations

from espalier.report.call_text import call_name, call_tip
from espalier.report.coverage import ORIGINS, Span
from espalier.report.drawing import Drawing, Lane
from espalier.report.figures import counted
from espalier.report.page import escape
from espalier.report.record import CANCELLED, FAILED, SHARED_PREFIX, TEMPLATE, CallRecord, Piece

_MAX_INHERITED = 90
_MEANING = {
    "constant": "program text that no call has sent to the model",
    "cached": "found in the cache by the first call that sent it",
    "computed": "computed by the first call that sent it",
    "forced": "written because a constraint left no choice",
    "generated": "chosen by the model",
}


def texts(drawing: Drawing) -> str:
    """The whole panel."""
    counts = dict.fromkeys(ORIGINS, 0)
    sections = [
        _state(drawing, lane, index, counts) for index, lane in enumerate(drawing.lanes, start=1)
    ]
    chips = "".join(
        f'<li><button type="button" class="chip" data-origin="{name}" aria-pressed="false" '
        f'title="{escape(_MEANING[name])}"><span class="o-{name}">{name}</span> '
        f'<span class="num soft">{counts[name]:,}</span></button></li>'
        for name in ORIGINS
    )
    approximate = any(coverage.is_approximate for coverage in drawing.coverage.values())
    note = _APPROXIMATE if approximate else ""
    return (
        '<section class="panel" aria-labelledby="texts"><h2 id="texts">Text by origin</h2>'
        f'<ul class="legend">{chips}<li class="soft unit">characters; '
        '<span class="s-template">template text</span> is set in italics</li></ul>'
        f"{note}{''.join(sections)}</section>"
    )


_APPROXIMATE = (
    '<p class="note">The backend tells how many tokens of a prompt were cached, not where they end '
    "in the text: borders between cached and computed are placed by proportion.</p>"
)


def _state(drawing: Drawing, lane: Lane, number: int, counts: dict[str, int]) -> str:
    state = lane.state
    calls = sum(call.kind != SHARED_PREFIX for call in state.calls)
    name = lane.run.title if lane.is_root else f"fork {state.name}"
    parts = [_inherited(lane)]
    for piece, spans in drawing.coverage[lane.run].spans(state):
        for span in spans:
            counts[span.origin] += len(span.text)
        parts.append(_piece(drawing, piece, spans, is_own=piece.call in state.calls))
    shown = {piece.call for piece in state.pieces}
    parts += [
        _without_text(drawing, call)
        for call in state.calls
        if call not in shown and call.kind != SHARED_PREFIX
    ]
    if state.is_cut:
        parts.append('<span class="missing">the rest was not recorded</span>')
    text = "".join(parts)
    error = lane.run.error if lane.is_root and len(drawing.runs) > 1 else None
    return (
        f'<section class="state{" root" if lane.is_root else ""}" id="state-{number}" '
        f'style="--depth:{min(lane.depth, 8)}"><h3>{escape(name)} '
        f'<span class="soft">{counted(calls, "call")}</span></h3>'
        f'<pre class="text">{text or _NO_TEXT}</pre>'
        + (f'<p class="error">{escape(error)}</p>' if error else "")
        + "</section>"
    )


_NO_TEXT = '<span class="missing">no text</span>'


def _inherited(lane: Lane) -> str:
    """The end of the text that a fork began with."""
    tail = ""
    for state, count in reversed(lane.state.inherited()):
        for piece in reversed(state.pieces[:count]):
            tail = piece.text + tail
            if len(tail) > _MAX_INHERITED:
                break
        if len(tail) > _MAX_INHERITED:
            break
    if not tail:
        return ""
    shown = tail if len(tail) <= _MAX_INHERITED else _last_words(tail)
    return (
        f'<span class="inherited" title="from the state it was forked from">{escape(shown)}</span>'
    )


def _last_words(text: str) -> str:
    """The end of a text, from the beginning of a line or of a word where one is near."""
    end = text[-_MAX_INHERITED:]
    for mark in ("\n", " "):
        at = end.find(mark)
        if 0 <= at < _MAX_INHERITED // 2:
            return "…" + end[at + 1 :].lstrip("\n")
    return f"…{end}"


def _piece(drawing: Drawing, piece: Piece, spans: list[Span], *, is_own: bool) -> str:
    template = " s-template" if piece.source == TEMPLATE else ""
    inner = "".join(
        f'<span class="o-{span.origin}{template}">{escape(span.text)}</span>' for span in spans
    )
    call = piece.call
    if call is None:
        return inner
    number = drawing.numbers.get(call)
    target = f' id="call-{number}"' if is_own else ""
    if not piece.text:
        inner = '<span class="missing">empty</span>'
    name = escape(call.variable or call.kind)
    error = ""
    if is_own and call.error is not None:
        error = f'<span class="failed">{escape(call.error)}</span>'
    return (
        f'<span class="written" tabindex="0"{target} data-call="{number}" data-name="{name}" '
        f'title="{escape(call_tip(call))}">{inner}</span>{error}'
    )


def _without_text(drawing: Drawing, call: CallRecord) -> str:
    """A call that wrote nothing: it failed, was cancelled, or had not ended."""
    number = drawing.numbers[call]
    status = "not run" if call.status == CANCELLED and call.sent_at is None else call.status
    told = f": {call.error}" if call.error and call.status == FAILED else ""
    return (
        f'<span class="failed {call.status}" tabindex="0" id="call-{number}" data-call="{number}" '
        f'title="{escape(call_tip(call))}">{escape(call_name(call))} {status}'
        f"{escape(told)}</span>"
    )
