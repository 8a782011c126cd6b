"""Roles and scopes as methods: how a program writes, whether it runs or is traced.

It must not know what becomes of the expressions.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import overload

from espalier.errors import RoleError, UserInputError
from espalier.lang.ir import (
    SglExpr,
    SglExprList,
    SglRoleBegin,
    SglRoleEnd,
    SglVarScopeBegin,
    SglVarScopeEnd,
    as_expr,
    parts_of,
)

Appendable = str | SglExpr | Sequence[object]


def changed_role(open_role: str | None, part: SglRoleBegin | SglRoleEnd) -> str | None:
    """The role that is open after `part`; raises RoleError where it does not fit."""
    begins = isinstance(part, SglRoleBegin)
    if begins and open_role is not None:
        raise RoleError(
            f"Nested roles are not allowed: {part.role} begins while {open_role} is open. "
            f"End {open_role} first."
        )
    if not begins and open_role != part.role:
        raise RoleError(
            f"{part.role} ends while {open_role or 'no role'} is open. "
            "End the role that was begun, once."
        )
    return part.role if begins else None


class Writer:
    """Something with a text that grows: the methods of a state that append roles and scopes."""

    def _append(self, value: object) -> None:
        """Appends a value, or raises and appends nothing."""
        raise NotImplementedError

    def _check_writable(self) -> None:
        """Waits or raises where nothing may be appended now."""
        raise NotImplementedError

    def _may_close_role(self, role: str) -> bool:
        """True where this role is open and can be closed."""
        raise NotImplementedError

    def _may_close_scope(self, name: str) -> bool:
        """True where this is the innermost open scope."""
        raise NotImplementedError

    @overload
    def system(self, expr: None = None) -> RoleScope: ...

    @overload
    def system(self, expr: Appendable) -> SglExprList: ...

    def system(self, expr: Appendable | None = None) -> RoleScope | SglExprList:
        """Appends a system message; without an expression, a `with` block that holds it."""
        return self._role("system", expr)

    @overload
    def user(self, expr: None = None) -> RoleScope: ...

    @overload
    def user(self, expr: Appendable) -> SglExprList: ...

    def user(self, expr: Appendable | None = None) -> RoleScope | SglExprList:
        """Appends a user message; without an expression, a `with` block that holds it."""
        return self._role("user", expr)

    @overload
    def assistant(self, expr: None = None) -> RoleScope: ...

    @overload
    def assistant(self, expr: Appendable) -> SglExprList: ...

    def assistant(self, expr: Appendable | None = None) -> RoleScope | SglExprList:
        """Appends an assistant message; without an expression, a `with` block that holds it."""
        return self._role("assistant", expr)

    def _role(self, role: str, expr: Appendable | None) -> RoleScope | SglExprList:
        self._check_writable()
        if expr is None:
            return RoleScope(self, role)
        message = SglExprList((SglRoleBegin(role), *parts_of(as_expr(expr)), SglRoleEnd(role)))
        self._append(message)
        return message

    def system_begin(self) -> None:
        """Opens a system message."""
        self._append(SglRoleBegin("system"))

    def system_end(self) -> None:
        """Closes the system message."""
        self._append(SglRoleEnd("system"))

    def user_begin(self) -> None:
        """Opens a user message."""
        self._append(SglRoleBegin("user"))

    def user_end(self) -> None:
        """Closes the user message."""
        self._append(SglRoleEnd("user"))

    def assistant_begin(self) -> None:
        """Opens an assistant message."""
        self._append(SglRoleBegin("assistant"))

    def assistant_end(self) -> None:
        """Closes the assistant message."""
        self._append(SglRoleEnd("assistant"))

    def var_scope(self, name: str) -> VariableScope:
        """A `with` block; the text appended inside becomes the variable at its end."""
        if not isinstance(name, str):
            raise UserInputError(f"the variable name is {name!r}; text is allowed.")
        self._check_writable()
        return VariableScope(self, name)


class RoleScope:
    """A message as a `with` block; an exception inside closes it and goes on."""

    def __init__(self, writer: Writer, role: str) -> None:
        self._writer = writer
        self._role = role

    def __enter__(self) -> None:
        self._writer._append(SglRoleBegin(self._role))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None or self._writer._may_close_role(self._role):
            self._writer._append(SglRoleEnd(self._role))


class VariableScope:
    """A var_scope as a `with` block; an exception inside closes it and goes on."""

    def __init__(self, writer: Writer, name: str) -> None:
        self._writer = writer
        self._name = name

    def __enter__(self) -> None:
        self._writer._append(SglVarScopeBegin(self._name))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None or self._writer._may_close_scope(self._name):
            self._writer._append(SglVarScopeEnd(self._name))
