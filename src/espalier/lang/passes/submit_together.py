"""Submits generations that do not depend on each other at the same time.

An interpreted program waits in each line that uses a variable and in each join; what the lines
after it submit waits with it, whether it depends on the value or not.

Proof obligation: text, messages and variables stay as they were. A state carries out its operations
in the order in which they are submitted, whenever that is, and a use of a variable becomes an
operation that appends the variable's value at its place. The key that a call's randomness comes
from is its place in its state and the place of the state among the forks, which do not change. What
a line would have raised is raised at the end of the body, in the order of the lines
(lang/execution.py); what is submitted after such a line has no effect on what can be read then, as
an error of the body cancels the run in both cases.
"""

from __future__ import annotations

from dataclasses import replace

from espalier.lang.abstract import SglDeferred
from espalier.lang.graph import AppendNode, AskNode, Graph, JoinNode
from espalier.lang.passes.note import Note, Passed

NAME = "submit together"


def submit_together(graph: Graph) -> Passed:
    """The graph without waits between its nodes."""
    if not graph.waits:
        return Passed(graph)
    num_waits = 0
    for node in graph.nodes:
        if isinstance(node, (JoinNode, AskNode)):
            num_waits += 1
        elif isinstance(node, AppendNode) and not isinstance(node.expr, SglDeferred):
            num_waits += any(True for _ in node.used())
    notes = (Note(NAME, f"{num_waits} waits between calls were removed"),) if num_waits else ()
    return Passed(replace(graph, waits=False), notes)
