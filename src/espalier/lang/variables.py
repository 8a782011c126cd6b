"""The variables of a state: what has been submitted, what has been set, who waits for what.

Names are declared when their operation is submitted, so that a read knows at once whether it can
ever end.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from espalier.errors import BackendError
from espalier.lang.feed import Feed
from espalier.lang.promise import ErrorSource, Promise
from espalier.types import Usage


class Variable:
    """One value that a name stands for; a later operation of the same name makes another.

    Attributes:
        holds_reasoning: true for the reasoning that a call writes, false for what it is named
            after; None for a variable that no call sets.
        is_in_scope: its var_scope block is open, so that it cannot be read yet.
        kick: makes the state that will set it go on; None once it cannot be needed.
        meta: the meta_info of the call that set it: a dict, a list of them, or None.
        usage: what the call that set it cost (of a gathered one, all of its calls); None where no
            call did.
        feeds: its text as it comes, one for each sample; empty where nothing streams.
    """

    __slots__ = (
        "feeds",
        "holds_reasoning",
        "is_in_scope",
        "kick",
        "meta",
        "name",
        "promise",
        "texts",
        "usage",
    )

    def __init__(
        self, name: str | None, kick: Callable[[], None] | None, num_feeds: int = 0
    ) -> None:
        self.name = name
        self.holds_reasoning: bool | None = None
        self.is_in_scope = False
        self.kick = kick
        self.meta: Any = None
        self.usage: Usage | None = None
        self.texts: Any = None  # the text, or a list of them, where the value is another
        self.feeds = [Feed() for _ in range(num_feeds)]
        self.promise: Promise[Any] = Promise()

    @classmethod
    def set_to(cls, name: str, value: Any, meta: Any = None) -> Variable:
        """A variable that has its value already."""
        variable = cls(name, None)
        variable.meta = meta
        variable.promise = Promise.resolved(value)
        return variable

    @property
    def text(self) -> Any:
        """The text of the call that set it, or a list of texts; a value set by hand as text."""
        return str(self.promise.wait()) if self.texts is None else self.texts

    def ready(self) -> Promise[Any]:
        """The promise of the value, with the state told to go on."""
        kick = self.kick
        if not self.promise.done and kick is not None:
            kick()
        return self.promise

    def resolve(self, value: Any, meta: Any = None, texts: str | list[str] | None = None) -> None:
        """Sets the value and ends the feeds; `texts` is what it was read from, if anything."""
        self._end(value if texts is None else texts, meta)
        self.promise.resolve(value)
        self.kick = None  # or the state and its variables would hold each other

    def end_unread(self, texts: str | list[str], meta: Any, error: ErrorSource) -> None:
        """Ends with texts that are no value: reading raises the error, the texts are kept."""
        self._end(texts, meta)
        self.promise.fail(error)
        self.kick = None

    def _end(self, value: Any, meta: Any) -> None:
        self.meta, self.texts = meta, value
        texts = value if isinstance(value, list) else [value]
        metas = meta if isinstance(meta, list) else [meta] * len(texts)
        for feed, text, sample_meta in zip(self.feeds, texts, metas, strict=False):
            feed.push(rest_of(text, feed), sample_meta)
            feed.close()

    def fail(self, error: ErrorSource) -> None:
        """Sets the error that reading raises."""
        for feed in self.feeds:
            feed.close(error)
        self.promise.fail(error)
        self.kick = None


class Scope:
    """An open var_scope: its variable, and the segment at which its text starts."""

    __slots__ = ("start", "variable")

    def __init__(self, variable: Variable) -> None:
        self.variable = variable
        self.start = 0


def rest_of(text: str, feed: Feed) -> str:
    """What of the final text has not streamed; raises BackendError where the two disagree."""
    streamed = feed.num_characters
    if streamed and text[:streamed] != feed.text():
        raise BackendError(f"the text streamed {feed.text()!r} is no prefix of the final {text!r}.")
    return text[streamed:]


class Variables:
    """Variables by name; None is the key of the last unnamed call."""

    def __init__(self, inherited: Mapping[str | None, Variable] | None = None) -> None:
        self._by_name: dict[str | None, Variable] = dict(inherited or {})
        self._lock = threading.Lock()
        self._awaited: dict[str, Promise[Variable | None]] = {}
        self._is_closed = False

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __iter__(self) -> Iterator[str | None]:
        return iter(list(self._by_name))

    def get(self, name: str | None) -> Variable | None:
        """The variable of that name, set or submitted; None where there is none."""
        return self._by_name.get(name)

    def declare(self, variable: Variable) -> None:
        """Makes a name stand for this variable."""
        with self._lock:
            self._by_name[variable.name] = variable
            waiting = self._awaited.pop(variable.name, None) if variable.name else None
        if waiting is not None:
            waiting.resolve(variable)

    def appearing(self, name: str) -> Promise[Variable | None]:
        """The variable once it is submitted, or None once `no_more` says that it never will be."""
        with self._lock:
            known = self._by_name.get(name)
            if known is not None:
                return Promise.resolved(known)
            if self._is_closed:
                return Promise.resolved(None)
            return self._awaited.setdefault(name, Promise())

    def no_more(self) -> None:
        """Ends the waits for names that did not appear."""
        with self._lock:
            self._is_closed = True  # a reader may be on its way here
            waiting, self._awaited = list(self._awaited.values()), {}
        for promise in waiting:
            promise.resolve(None)

    def snapshot(self) -> dict[str | None, Variable]:
        """The variables as they are, for a fork."""
        with self._lock:
            return dict(self._by_name)
