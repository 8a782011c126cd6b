"""A schema after its check: the nouns that reading, expanding and building share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

KINDS = ("null", "boolean", "number", "string", "array", "object")


class Node:
    """One schema or subschema: its keywords with values in their checked form.

    Subschemas are Nodes; a reference is one of `applied`, as allOf's are. `never`: the schema
    `false`. A Node without keywords allows everything. Compared by identity.
    """

    __slots__ = ("keywords", "negation", "never", "parent", "token")

    def __init__(self, parent: Node | None, token: str) -> None:
        self.parent = parent
        self.token = token
        self.keywords: dict[str, Any] = {}
        self.never = False
        self.negation = Negation(self)

    @property
    def path(self) -> str:
        """JSON pointer from the top of the document, "" for the top."""
        tokens: list[str] = []
        node: Node | None = self
        while node is not None and node.parent is not None:
            tokens.append(node.token)
            node = node.parent
        return "".join(f"/{token}" for token in reversed(tokens))

    @property
    def target(self) -> Node:
        """The schema that it refers to, if that is all it says; else itself."""
        node = self
        while len(node.keywords) == 1 and "$ref" in node.keywords:
            node = node.keywords["$ref"]
        return node

    @property
    def allows_all(self) -> bool:
        """It says nothing."""
        return not self.keywords and not self.never


@dataclass(frozen=True, slots=True, eq=False)
class Negation:
    """What a Node does not allow. There is one per Node."""

    node: Node = field(repr=False)


Goal = tuple["Node | Negation", ...]  # a value must satisfy all of them; () is any value

NEVER_NODE = Node(None, "")
NEVER_NODE.never = True
NEVER: Goal = (NEVER_NODE,)


def goal_of(*parts: Node | Negation) -> Goal:
    """The conjunction of parts, without those that say nothing."""
    return joined((), parts)


def joined(left: Goal, right: Goal) -> Goal:
    """Both goals at once; NEVER where one of them plainly is."""
    if not right:
        return left
    found: dict[Node | Negation, None] = dict.fromkeys(left)
    for part in right:
        if isinstance(part, Node):
            node = part.target
            if node.never:
                return NEVER
            if node.keywords:
                found[node] = None
        else:
            denied = part.node.target
            if denied.allows_all:
                return NEVER
            if not denied.never:
                found[denied.negation] = None
    if NEVER_NODE in found:
        return NEVER
    for part in found:
        if isinstance(part, Negation) and part.node in found:
            return NEVER
    return tuple(found)


@dataclass(frozen=True, slots=True)
class CheckedSchema:
    """A schema that was read and checked, with what its text said about itself.

    Attributes:
        root: the schema.
        document: the JSON value it was read from, floats as Decimal.
        draft: "draft-07" or "2020-12".
    """

    root: Node
    document: Any
    draft: str
