"""From schema text to checked Nodes: drafts, spellings, unknown keywords, references.

Knows which keywords there are and what they may hold; what they mean is for `expand`.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urljoin

from espalier.constrain.schema.document import read_document
from espalier.constrain.schema.keywords import (
    ANNOTATIONS,
    ASSERTED_IN_DRAFT_7,
    DEFINITIONS,
    DRAFT_7,
    DRAFT_2020,
    NOT_IN_DRAFT_7,
    ONE_SCHEMA,
    SCHEMA_LISTS,
    SCHEMA_MAPS,
    SCHEMA_URIS,
    VALUE_READERS,
    names_list,
    parsed_pattern,
)
from espalier.constrain.schema.node import CheckedSchema, Node
from espalier.constrain.schema.references import References, check_progress
from espalier.constrain.schema.refusal import malformed, refusal
from espalier.errors import UserInputError, shown


def check_schema(schema: str | dict[str, Any] | bool) -> CheckedSchema:
    """Reads a schema of draft 2020-12 or draft 7, as `$schema` says; 2020-12 where it does not.

    The older spellings (`definitions`, `items` as a list, `dependencies`) are read in both.
    Raises UserInputError, which names the keyword and its place, for whatever cannot be read:
    unknown keywords (but those that begin with `x-`), values that a keyword may not have,
    references that lead nowhere, out of the document, or in a circle.
    """
    document = read_document(schema)
    if not isinstance(document, (dict, bool)):
        raise UserInputError(
            f"The JSON schema is {shown(document)}; an object, true or false is allowed."
        )
    draft = _draft_of(document)
    reader = _Reader(document, draft)
    root = reader.read(document, None, "", "")
    reader.references.resolve()
    check_progress(reader.nodes)
    return CheckedSchema(root, document, draft)


def _draft_of(document: Any) -> str:
    given = document.get("$schema") if isinstance(document, dict) else None
    if given is None:
        return DRAFT_2020
    draft = SCHEMA_URIS.get(given.rstrip("#")) if isinstance(given, str) else None
    if draft is None:
        raise malformed("$schema", "", given, "the URI of draft 2020-12 or of draft 7")
    return draft


_IDENTIFIERS = frozenset(("$id", "$anchor", "$dynamicAnchor"))


class _Reader:
    """Reads one document, depth first."""

    def __init__(self, document: Any, draft: str) -> None:
        self._is_draft_7 = draft == DRAFT_7
        self.references = References(document)
        self.nodes: list[Node] = []

    def read(self, raw: Any, parent: Node | None, token: str, base: str) -> Node:
        """The Node of a schema that stands at `token` below `parent`; `base` is its base URI."""
        node = Node(parent, token)
        if raw is True or raw is False:
            node.never = raw is False
            return node
        if type(raw) is not dict:
            assert parent is not None
            raise malformed(token.split("/", 1)[0], parent.path, raw, "a schema")
        self.nodes.append(node)
        self.references.note_schema(raw, node)
        if self._is_draft_7 and "$ref" in raw:
            # By draft 7, what stands beside a reference is ignored.
            raw = {key: raw[key] for key in raw if key == "$ref" or key in DEFINITIONS}
        else:
            base = self._identified(raw, node, base)
        for keyword, value in raw.items():
            self._read_keyword(keyword, value, raw, node, base)
        return node

    def _read_keyword(
        self, keyword: str, value: Any, raw: dict[str, Any], node: Node, base: str
    ) -> None:
        if self._is_draft_7 and keyword in ASSERTED_IN_DRAFT_7:
            raise refusal(keyword, node.path, "draft 7 lets it assert, which is not supported")
        reader = VALUE_READERS.get(keyword)
        if self._is_draft_7 and keyword in NOT_IN_DRAFT_7:
            raise refusal(keyword, node.path, "it is not a keyword of draft 7, which is named")
        if reader is not None:
            node.keywords[keyword] = reader(value, node)
        elif keyword in ONE_SCHEMA:
            node.keywords[keyword] = self.read(value, node, keyword, base)
        elif keyword in SCHEMA_LISTS:
            node.keywords[keyword] = self._list(keyword, value, node, base)
        elif keyword in SCHEMA_MAPS or keyword in DEFINITIONS:
            self._map(keyword, value, node, base)
        elif keyword == "const":
            node.keywords["const"] = [value]
        elif keyword in ("$ref", "$dynamicRef"):
            node.keywords[keyword] = None  # keeps its place until it is resolved
            self.references.note_reference(keyword, value, node, base)
        elif keyword == "items":
            self._items(value, raw, node, base)
        elif keyword == "additionalItems":
            self._additional_items(raw, node, base)
        elif keyword == "dependencies":
            self._dependencies(value, node, base)
        elif keyword not in ANNOTATIONS and not keyword.startswith("x-"):
            self._check_identifier(keyword, value, node)

    def _identified(self, raw: dict[str, Any], node: Node, base: str) -> str:
        """The base URI inside a schema, whose identifiers are noted."""
        if _IDENTIFIERS.isdisjoint(raw):
            return base
        given = raw.get("$id")
        if isinstance(given, str):
            if given.startswith("#"):
                if not self._is_draft_7:
                    raise refusal("$id", node.path, "a fragment is not allowed in it")
                self.references.note_anchor(base, given[1:], node)
            else:
                base = urljoin(base, given).rstrip("#")
                self.references.note_resource(base, raw, node)
        for keyword in ("$anchor", "$dynamicAnchor"):
            name = raw.get(keyword)
            if isinstance(name, str):
                self.references.note_anchor(base, name, node, keyword == "$dynamicAnchor")
        return base

    def _check_identifier(self, keyword: str, value: Any, node: Node) -> None:
        if keyword in ("$id", "$anchor", "$dynamicAnchor"):
            if not isinstance(value, str):
                raise malformed(keyword, node.path, value, "a string")
        elif keyword == "$schema":
            if _draft_of({"$schema": value}) != (DRAFT_7 if self._is_draft_7 else DRAFT_2020):
                raise refusal(keyword, node.path, "a part of the schema is of another draft")
        else:
            raise refusal(
                keyword,
                node.path,
                "it is not a keyword of the draft, and ignoring it could allow what it forbids; "
                "remove it, or let its name begin with x-",
            )

    def _list(self, keyword: str, value: Any, node: Node, base: str) -> list[Node]:
        if not isinstance(value, list) or not value:
            raise malformed(keyword, node.path, value, "a list of one or more schemas")
        return [self._child(item, node, keyword, base, value, i)
                for i, item in enumerate(value)]  # fmt: skip

    def _child(  # noqa: PLR0917
        self, raw: Any, node: Node, keyword: str, base: str, holder: Any, key: Any
    ) -> Node:
        """The Node of a schema that `holder`, the keyword's value, has at `key`."""
        token = f"{keyword}/{escaped(str(key))}"
        child = self.read(raw, node, token, base)
        if type(raw) is bool:
            self.references.note_boolean(holder, key, child)
        return child

    def _map(self, keyword: str, value: Any, node: Node, base: str) -> None:
        if type(value) is not dict:
            raise malformed(keyword, node.path, value, "an object of schemas")
        children = {
            name: self._child(item, node, keyword, base, value, name)
            for name, item in value.items()
        }
        if keyword == "patternProperties":
            node.keywords[keyword] = [
                (parsed_pattern(keyword, source, node), child) for source, child in children.items()
            ]
        elif keyword not in DEFINITIONS:
            node.keywords[keyword] = {**node.keywords.get(keyword, {}), **children}

    def _items(self, value: Any, raw: dict[str, Any], node: Node, base: str) -> None:
        if not isinstance(value, list):
            node.keywords["items"] = self._child_of_object(value, "items", raw, node, base)
            return
        if "prefixItems" in raw:
            raise refusal("items", node.path, "a list is not allowed beside prefixItems")
        if not value and not self._is_draft_7:
            raise malformed("items", node.path, value, "a schema")
        node.keywords["prefixItems"] = [
            self._child(item, node, "items", base, value, i) for i, item in enumerate(value)
        ]
        if "additionalItems" in raw:
            child = self._child_of_object(
                raw["additionalItems"], "additionalItems", raw, node, base
            )
            node.keywords["items"] = child

    def _child_of_object(
        self, value: Any, keyword: str, raw: dict[str, Any], node: Node, base: str
    ) -> Node:
        child = self.read(value, node, keyword, base)
        if type(value) is bool:
            self.references.note_boolean(raw, keyword, child)
        return child

    def _additional_items(self, raw: dict[str, Any], node: Node, base: str) -> None:
        """Beside `items` as a list it was read there; else draft 7 has it assert nothing."""
        if isinstance(raw.get("items"), list):
            return
        if not self._is_draft_7:
            raise refusal("additionalItems", node.path, "it needs items as a list")
        self._child_of_object(raw["additionalItems"], "additionalItems", raw, node, base)

    def _dependencies(self, value: Any, node: Node, base: str) -> None:
        if type(value) is not dict:
            raise malformed("dependencies", node.path, value, "an object of schemas or names")
        required = {
            name: names_list("dependencies", item, node)
            for name, item in value.items()
            if isinstance(item, list)
        }
        schemas = {
            name: self._child(item, node, "dependencies", base, value, name)
            for name, item in value.items()
            if not isinstance(item, list)
        }
        for keyword, found in (("dependentRequired", required), ("dependentSchemas", schemas)):
            if found and keyword in node.keywords:
                raise refusal("dependencies", node.path, f"{keyword} stands beside it")
            if found:
                node.keywords[keyword] = found


def escaped(name: str) -> str:
    """A name as a token of a JSON pointer."""
    return name.replace("~", "~0").replace("/", "~1")
