"""Limits on what a regular expression becomes: how deep, and how much of it when written out."""

from __future__ import annotations

from espalier.constrain.regex_fault import RegexFaultError
from espalier.constrain.regex_tree import Node, children

MAX_DEPTH = 250  # of patterns in patterns; whatever walks one may recurse
MAX_NODES = 50_000  # with parts that stand at several places counted at each


def check_limits(node: Node) -> None:
    """Raises RegexFaultError for a node that is too deep or too large."""
    depths: dict[int, int] = {}
    sizes: dict[int, int] = {}
    waiting = [node]
    while waiting:
        here = waiting[-1]
        inner = children(here)
        unknown = [child for child in inner if id(child) not in depths]
        if unknown:
            waiting.extend(unknown)
            continue
        waiting.pop()
        depths[id(here)] = 1 + max((depths[id(child)] for child in inner), default=0)
        sizes[id(here)] = 1 + sum(sizes[id(child)] for child in inner)
    if depths[id(node)] > MAX_DEPTH:
        raise RegexFaultError(
            f"repeats and alternatives are nested {depths[id(node)]} deep; at most {MAX_DEPTH} are "
            "allowed",
            0,
        )
    if sizes[id(node)] > MAX_NODES:
        raise RegexFaultError(
            f"telling apart where its anchors hold makes more than {MAX_NODES} parts of it; leave "
            "out anchors that change nothing",
            0,
        )
