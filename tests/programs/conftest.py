"""Programs on the real model; like tests of the language, none may leave anything behind."""

from __future__ import annotations

from tests.lang.conftest import leaves_nothing_behind

__all__ = ["leaves_nothing_behind"]
