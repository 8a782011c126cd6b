"""The timeline: a lane for each state, its calls as bars, forks and joins as lines between lanes.

Places are percentages of the width, so that the drawing fits every window without scaling its text.
"""

from __future__ import annotations

import math

from espalier.report.call_text import call_name, call_tip
from espalier.report.drawing import Drawing, Lane
from espalier.report.figures import counted, seconds
from espalier.report.page import escape
from espalier.report.record import CANCELLED, FAILED, SHARED_PREFIX, CallRecord, StateRecord

LANE_PX, BAR_PX, AXIS_PX = 26, 16, 24
_NUM_TICKS = 6


def timeline(drawing: Drawing) -> str:
    """The whole panel."""
    return _Timeline(drawing).panel()


class _Timeline:
    def __init__(self, drawing: Drawing) -> None:
        self.drawing = drawing
        self.span_s = max(drawing.end - drawing.begin, 1e-6) * 1.01
        self.row = {lane.state: index for index, lane in enumerate(drawing.lanes)}
        self.height = AXIS_PX + LANE_PX * len(drawing.lanes)

    def panel(self) -> str:
        drawing = self.drawing
        labels = "".join(self._label(lane) for lane in drawing.lanes)
        hidden = drawing.num_hidden_lanes
        note = f'<p class="note">{counted(hidden, "more state")} not drawn.</p>' if hidden else ""
        return (
            '<section class="panel" aria-labelledby="timeline"><h2 id="timeline">Timeline</h2>'
            f"{_KEY}"
            '<div class="timeline"><ul class="lanes">'
            f'{labels}</ul><svg class="chart" height="{self.height}" width="100%" role="group" '
            f'aria-label="Calls over {escape(seconds(self.span_s))}">'
            f"{self._axis()}{''.join(map(self._lane, drawing.lanes))}</svg></div>{note}</section>"
        )

    def _label(self, lane: Lane) -> str:
        name = lane.run.title if lane.is_root else f"fork {lane.state.name}"
        return (
            f'<li style="--depth:{min(lane.depth, 8)}"{" class=root" if lane.is_root else ""}>'
            f'<a href="#state-{self.row[lane.state] + 1}" title="{escape(name)}">'
            f"{escape(name)}</a></li>"
        )

    def _x(self, time: float) -> float:
        return min(100.0, max(0.0, 100 * (time - self.drawing.begin) / self.span_s))

    def _axis(self) -> str:
        step = _nice(self.span_s / _NUM_TICKS)
        parts = []
        for index in range(int(self.span_s / step) + 1):
            x = f"{100 * index * step / self.span_s:.3f}%"
            parts.append(f'<line class="grid" x1="{x}" x2="{x}" y1="{AXIS_PX - 4}" y2="100%"/>')
            if index * step < self.span_s * 0.9:
                text = "0" if index == 0 else seconds(index * step)
                parts.append(f'<text class="tick" x="{x}" y="12">{text}</text>')
        return "".join(parts)

    def _middle(self, state: StateRecord) -> float:
        return AXIS_PX + LANE_PX * self.row[state] + LANE_PX / 2

    def _lane(self, lane: Lane) -> str:
        state = lane.state
        ends = [time for call in state.calls for time in (call.ended_at,) if time is not None]
        end = state.joined_at or max(ends, default=state.created_at)
        if lane.is_root:
            end = max(end, lane.run.ended_at or end)
        y = self._middle(state)
        start_x, end_x = f"{self._x(state.created_at):.3f}%", f"{self._x(end):.3f}%"
        parts = [f'<line class="life" x1="{start_x}" x2="{end_x}" y1="{y}" y2="{y}"/>']
        if state.parent is not None and state.parent in self.row:
            top = self._middle(state.parent)
            parts.append(f'<line class="fork" x1="{start_x}" x2="{start_x}" y1="{top}" y2="{y}"/>')
            if state.joined_at is not None:
                line = f'<line class="join" x1="{end_x}" x2="{end_x}" y1="{top}" y2="{y}"/>'
                parts.append(line)
        parts += [self._bar(state, call) for call in state.calls]
        return "".join(parts)

    def _bar(self, state: StateRecord, call: CallRecord) -> str:
        begin = call.sent_at if call.sent_at is not None else call.submitted_at
        end = call.ended_at if call.ended_at is not None else self.drawing.end
        x, top = self._x(begin), self._middle(state) - BAR_PX / 2
        is_prefix = call.kind == SHARED_PREFIX
        kind = "prefix" if is_prefix else call.kind
        number = self.drawing.numbers[call]
        target = f"state-{self.row[state] + 1}" if is_prefix else f"call-{number}"
        start = (
            f'<a class="call {call.status} {escape(kind)}" href="#{target}" data-call="{number}" '
            f'aria-label="{escape(_spoken(call))}"><title>{escape(call_tip(call))}</title>'
        )
        if call.sent_at is None:
            mark = f'<circle cx="{x:.3f}%" cy="{top + BAR_PX / 2}" r="3.5"/>'
            return f"{start}{mark}</a>"
        name = "prefix" if is_prefix else (call.variable or call.kind)
        return (
            f'{start}<svg class="bar" x="{x:.3f}%" y="{top}" '
            f'width="{max(self._x(end) - x, 0.01):.3f}%" height="{BAR_PX}">'
            f'{_phases(call, begin, end)}<text x="{_queued_share(call, begin, end):.2f}%" dx="6" '
            f'y="12">{escape(name)}</text></svg>'
            f'<line class="edge" x1="{x:.3f}%" x2="{x:.3f}%" y1="{top}" y2="{top + BAR_PX}"/></a>'
        )


def _spoken(call: CallRecord) -> str:
    told = f"{call_name(call)}: {call.status}"
    if call.sent_at is None or call.ended_at is None:
        return told
    return f"{told}, {seconds(call.ended_at - call.sent_at)}"


def _phases(call: CallRecord, begin: float, end: float) -> str:
    """The bar in its phases: queued in the backend, prompt being computed, text being written."""
    if call.status in (FAILED, CANCELLED) or end <= begin:
        return '<rect class="whole" width="100%" height="100%"/>'
    queue_s = _queue_s(call)
    first = call.first_token_at
    writes = call.kind == "gen"
    edges = [
        ("queued", begin, min(begin + queue_s, end)),
        ("prefill", min(begin + queue_s, end), end if not writes else first or begin + queue_s),
        ("decode", end if not writes else first or begin + queue_s, end),
    ]
    return "".join(
        f'<rect class="{name}" x="{100 * (start - begin) / (end - begin):.2f}%" '
        f'width="{100 * (stop - start) / (end - begin):.2f}%" height="100%"/>'
        for name, start, stop in edges
        if stop > start
    )


def _queue_s(call: CallRecord) -> float:
    return 0.0 if call.usage is None else call.usage.queue_s or 0.0


def _queued_share(call: CallRecord, begin: float, end: float) -> float:
    return 0.0 if end <= begin else min(100.0, 100 * _queue_s(call) / (end - begin))


def _nice(value: float) -> float:
    """The least of 1, 2, 5 times a power of ten that is not below the value."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(power * step for step in (1, 2, 5, 10) if power * step >= value * 0.999)


_KEY = (
    '<ul class="legend key" aria-label="Phases of a call">'
    '<li><i class="swatch queued"></i>queued</li><li><i class="swatch prefill"></i>prompt</li>'
    '<li><i class="swatch decode"></i>writing</li><li><i class="swatch failed"></i>failed</li></ul>'
)
