"""Drawings of runs, read as a browser reads them, and opened in a real one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import espalier
from espalier.backends.scripted import Answer, ScriptedBackend, ScriptedCall
from espalier.errors import UserInputError
from espalier.lang.api import assistant, gen, select, user
from espalier.lang.function import function
from espalier.lang.recording import record_run
from espalier.lang.state import ProgramState
from espalier.report.drawing import MAX_LANES, Drawing
from espalier.report.record import GENERATED, Budget, CallRecord, Piece, RunRecord, StateRecord
from espalier.report.tables import variables
from espalier.report.texts import texts
from espalier.report.timeline import timeline
from espalier.report.view import RunView

from .browser import dom_of
from .test_page import HOSTILE, Reader

ANSWERS: dict[str, Answer] = {
    "Town": " Springfield",
    "ASSISTANT:": "Hello",
    "Sure?": "yes",
    "wrong": ValueError("no"),
}


@function
def towns(s: ProgramState, country: str = "Peru") -> None:
    s += user("Hi") + assistant(gen("hello"))
    s += f"Towns of {country}."
    forks = s.fork(3)
    forks += " Town:" + gen("town", max_tokens=4)
    forks.join()
    s += " Sure?" + select("sure", ["yes", "no"])
    s["note"] = {"a": 1}


@function
def failing(s: ProgramState) -> None:
    s += "Town" + gen("first") + " is wrong" + gen("second") + gen("third")
    s.sync()


def drawn(html: str) -> dict[str, int]:
    """How many of each thing a document shows."""
    classes = [attrs.get("class") or "" for _, attrs in Reader(html).tags]
    counts = dict.fromkeys(("call", "bar", "life", "fork", "join", "written", "state", "failed"), 0)
    for names in classes:
        for name in set(names.split()) & counts.keys():
            counts[name] += 1
    for origin in ("constant", "cached", "computed", "forced", "generated"):
        counts[origin] = sum(f"o-{origin}" in names.split() for names in classes) - 1  # the legend
    return counts


def towns_view() -> RunView:
    with record_run() as view:
        towns.run(backend=ScriptedBackend(ANSWERS, latency_s=0.002)).sync()
    return view


def test_a_drawing_has_a_bar_for_each_call_and_a_span_for_each_origin() -> None:
    counts = drawn(towns_view().html)
    assert counts["bar"] == counts["call"] == 5 + 1  # and the prompt that the forks share
    assert counts["life"] == counts["state"] == 4
    assert counts["fork"] == counts["join"] == 3
    assert counts["written"] == 5
    assert counts["generated"] == 5
    assert counts["computed"] == 5 + 1 + 3 + 1  # roles, towns, forks, the question
    assert counts["constant"] == counts["cached"] == counts["forced"] == 0


def test_a_drawing_tells_the_numbers_of_each_call() -> None:
    html = towns_view().html
    assert re.search(r"gen &#x27;town&#x27;\ntest_view.py:\d+ ", html)
    assert "generated 1 token, ended by stop" in html
    assert re.search(r"took [\d.]+ ms, first token after [\d.]+ ms", html)
    assert "-0.100  yes" in html
    assert "{&#x27;a&#x27;: 1}" in html
    assert "towns()" in html


def test_errors_stand_where_the_text_would_have_gone_on() -> None:
    with record_run() as view, pytest.raises(espalier.GenerationError):
        failing.run(backend=ScriptedBackend(ANSWERS))
    text = re.sub(r"<[^>]+>", "", view.html)
    assert "is wronggen &#x27;second&#x27; failed: ValueError: no" in text
    assert "gen &#x27;third&#x27; not run" in text
    assert '<p class="error" role="alert">failing(): GenerationError: gen' in view.html


def test_a_run_can_be_drawn_while_it_goes_on() -> None:
    views: list[str] = []

    def answer(call: ScriptedCall) -> str:
        views.append(view.html)
        return "x"

    with record_run() as view:
        failing.run(backend=ScriptedBackend(answer))
    assert "A program was still running when this was drawn." in views[1]
    assert drawn(views[1])["written"] == 1
    assert "still running" not in view.html


def test_an_empty_recording_says_so() -> None:
    with record_run() as view:
        pass
    assert "No program ran while this was recorded." in view.html
    assert repr(view) == "<RunView of 0 runs; .save(path) writes the page>"


def test_more_states_than_are_drawn_are_counted() -> None:
    @function
    def wide(s: ProgramState) -> None:
        s += "a"
        s.fork(MAX_LANES + 4)

    with record_run() as view:
        wide.run(backend=ScriptedBackend()).sync()
    assert drawn(view.html)["state"] == MAX_LANES
    assert "5 more states not drawn." in view.html


def test_runs_that_were_not_kept_are_counted() -> None:
    with record_run(max_runs=1) as view:
        towns.run_batch([{}] * 3, backend=ScriptedBackend(ANSWERS))
    assert "The first 1 runs are drawn; 2 more runs ran and were not recorded." in view.html


def shape(text: str) -> list[tuple[str, list[str]]]:
    """The elements of a drawing that shows a text everywhere, and the names of their attributes.

    Without those that depend on times: ticks and phases.
    """

    @function
    def shows(s: ProgramState, argument: str) -> None:
        s += text + gen(text)
        s[f"{text}2"] = text
        s += gen("fails")

    backend = ScriptedBackend([text, ValueError(text)], model_name=text)
    with record_run() as view:
        shows.run(text, backend=backend).error()
    tags = Reader(view.html).tags
    return [(tag, sorted(names)) for tag, names in tags if tag not in ("line", "rect", "text")]


@pytest.mark.parametrize("text", [*HOSTILE, "a\x00b\ud800c"])
def test_hostile_text_stays_text_wherever_it_comes_from(text: str) -> None:
    assert shape(text) == shape("plain")


def test_a_notebook_gets_a_frame_of_its_own() -> None:
    html = towns_view()._repr_html_()
    ((tag, attributes),) = Reader(html).tags
    assert tag == "iframe"
    assert attributes["sandbox"] == "allow-scripts"
    assert (attributes["srcdoc"] or "").startswith("<!DOCTYPE html>")


def test_a_page_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserInputError, match="cannot be written"):
        towns_view().save(tmp_path / "missing" / "run.html")


def test_a_browser_draws_it_without_errors(tmp_path: Path) -> None:
    view = towns_view()
    view.save(tmp_path / "run.html")
    dom = dom_of(tmp_path / "run.html", tmp_path)
    assert 'data-ready="1"' in dom
    assert "data-errors" not in dom
    assert drawn(dom) == drawn(view.html)
    assert "<title>gen" not in dom  # tooltips have taken their place
    assert dom.count('class="tip"') == 1
    assert re.search(r'<text [^>]*style="visibility: (visible|hidden);"[^>]*>town</text>', dom)


def test_a_browser_runs_nothing_that_a_text_holds(tmp_path: Path) -> None:
    attack = "</script></pre><script>document.documentElement.dataset.hit=1</script><img src=x>"

    @function
    def shows(s: ProgramState) -> None:
        s += attack + gen(attack) + gen("fails")

    with record_run() as view:
        shows.run(backend=ScriptedBackend([attack, ValueError(attack)]))
    view.save(tmp_path / "run.html")
    dom = dom_of(tmp_path / "run.html", tmp_path)
    assert 'data-ready="1"' in dom
    element = Reader(dom).tags[0]
    assert element[0] == "html"
    assert element[1].keys() == {"lang", "data-ready"}
    assert "<img" not in dom


def test_a_drawing_is_of_one_moment_of_a_run_that_goes_on() -> None:
    run = RunRecord("p()", "m", 0.0, Budget())
    state = StateRecord("main", None, 0.0)
    run.states.append(state)
    state.calls.append(CallRecord("gen", "first", None, 0.0))
    drawing = Drawing.of([run])
    later = CallRecord("gen", "later", None, 1.0, sent_at=1.0)
    state.calls.append(later)
    state.pieces.append(Piece(GENERATED, "text of later", later))
    run.states.append(StateRecord("0", state, 1.0))
    drawn = timeline(drawing) + texts(drawing) + variables(drawing)
    assert "first" in drawn
    assert "later" not in drawn
    again = Drawing.of([run])
    drawn = timeline(again) + texts(again) + variables(again)
    assert "text of later" in drawn
    assert "fork 0" in drawn
