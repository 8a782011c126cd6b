"""Where `$ref` and `$dynamicRef` lead: identifiers, anchors and JSON pointers of one document.

Fetches nothing: a reference out of the document is refused.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

from espalier.constrain.schema.node import Node
from espalier.constrain.schema.refusal import malformed, refusal
from espalier.errors import shown


class References:
    """Notes of one document while it is read; `resolve` then fills every reference in."""

    def __init__(self, document: Any) -> None:
        self._document = document
        self._nodes: dict[int, Node] = {}  # id of an object of the document -> its Node
        self._booleans: dict[tuple[int, Any], Node] = {}  # id of what holds it and its key there
        self._resources: dict[str, Any] = {"": document}
        self._anchors: dict[tuple[str, str], Node] = {}
        self._dynamic: dict[str, list[Node]] = {}
        self._pending: list[tuple[str, str, Node, str]] = []

    def note_schema(self, raw: dict[str, Any], node: Node) -> None:
        """A schema was read."""
        self._nodes[id(raw)] = node

    def note_boolean(self, holder: Any, key: Any, node: Node) -> None:
        """A schema that is a boolean was read."""
        self._booleans[id(holder), key] = node

    def note_resource(self, uri: str, raw: Any, node: Node) -> None:
        """A schema has a URI of its own."""
        if uri in self._resources and self._resources[uri] is not raw:
            raise refusal("$id", node.path, f"{shown(uri)} names another part already")
        self._resources[uri] = raw

    def note_anchor(self, base: str, name: str, node: Node, is_dynamic: bool = False) -> None:
        """A schema has a name of its own below a base URI."""
        if self._anchors.setdefault((base, name), node) is not node:
            raise refusal("$anchor", node.path, f"{shown(name)} names another part already")
        if is_dynamic:
            self._dynamic.setdefault(name, []).append(node)

    def note_reference(self, keyword: str, value: Any, node: Node, base: str) -> None:
        """A schema refers to another."""
        if not isinstance(value, str):
            raise malformed(keyword, node.path, value, "a URI reference as a string")
        self._pending.append((keyword, value, node, base))

    def resolve(self) -> None:
        """Fills in every reference, or raises UserInputError for one that leads nowhere."""
        for keyword, value, node, base in self._pending:
            try:
                url, fragment = urldefrag(urljoin(base, value))
            except ValueError:
                raise malformed(keyword, node.path, value, "a URI reference") from None
            if value.startswith("#"):
                url = base
            target = self._target(keyword, value, url, unquote(fragment), node)
            if keyword == "$dynamicRef" and len(self._dynamic.get(fragment, ())) > 1:
                raise refusal(keyword, node.path, f"several parts have the name {shown(fragment)}")
            node.keywords[keyword] = target

    def _target(self, keyword: str, value: str, url: str, fragment: str, node: Node) -> Node:
        if url not in self._resources:
            raise refusal(
                keyword,
                node.path,
                f"{shown(value)} leads out of the schema; only references inside it are followed",
            )
        if fragment and not fragment.startswith("/"):
            found = self._anchors.get((url, fragment))
        else:
            found = self._at_pointer(self._resources[url], fragment)
        if found is None:
            raise refusal(keyword, node.path, f"{shown(value)} leads to no schema")
        return found

    def _at_pointer(self, value: Any, pointer: str) -> Node | None:
        holder: Any = None
        key: Any = None
        for token in pointer.split("/")[1:]:
            holder, key = value, token.replace("~1", "/").replace("~0", "~")
            if isinstance(value, dict) and key in value:
                value = value[key]
            elif isinstance(value, list) and key.isdecimal() and int(key) < len(value):
                key = int(key)
                value = value[key]
            else:
                return None
        if isinstance(value, bool):
            return self._booleans.get((id(holder), key))
        return self._nodes.get(id(value))


MAX_CHAIN = 32  # schemas that apply each other to one value, as references to references do

_IN_PLACE = ("$ref", "$dynamicRef", "not", "if", "then", "else")
_IN_PLACE_LISTS = ("allOf", "anyOf", "oneOf")
IN_PLACE = frozenset((*_IN_PLACE, *_IN_PLACE_LISTS, "dependentSchemas"))


def in_place(node: Node) -> list[tuple[str, Node]]:
    """Subschemas that apply to the same value as the schema, by keyword."""
    keywords = node.keywords
    if IN_PLACE.isdisjoint(keywords):
        return []
    found = [(keyword, keywords[keyword]) for keyword in _IN_PLACE if keyword in keywords]
    for keyword in _IN_PLACE_LISTS:
        if keyword in keywords:
            found += [(keyword, child) for child in keywords[keyword]]
    for child in keywords.get("dependentSchemas", {}).values():
        found.append(("dependentSchemas", child))
    return found


def check_progress(nodes: list[Node]) -> None:
    """Raises UserInputError where a schema applies itself to the same value, for ever.

    Also where more than MAX_CHAIN schemas apply each other.
    """
    done: dict[Node, int] = {}  # how many schemas it applies one by the other
    for start in nodes:
        if start in done or IN_PLACE.isdisjoint(start.keywords):
            continue
        open_nodes = {start}
        trail = [(start, iter(in_place(start)))]
        while trail:
            node, children = trail[-1]
            step = next(children, None)
            if step is None:
                trail.pop()
                open_nodes.discard(node)
                applied = [child for _, child in in_place(node)]
                done[node] = 1 + max((done.get(child, 0) for child in applied), default=0)
                if done[node] > MAX_CHAIN:
                    raise refusal(
                        "$ref", node.path, f"more than {MAX_CHAIN} references follow each other"
                    )
                continue
            keyword, child = step
            if child in open_nodes:
                raise refusal(keyword, node.path, "it leads back to itself without any progress")
            if child not in done:
                open_nodes.add(child)
                trail.append((child, iter(in_place(child))))
