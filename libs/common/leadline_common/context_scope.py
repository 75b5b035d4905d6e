"""A context variable that is set for a block; `contextlib` needs five times the calls for it."""

from __future__ import annotations

from contextvars import ContextVar, Token
from typing import Any, Generic, TypeVar

ValueT = TypeVar("ValueT")


class ContextScope(Generic[ValueT]):
    """Sets a variable for the body of a `with` statement and the tasks that it starts."""

    __slots__ = ("_token", "_value", "_variable")

    def __init__(self, variable: ContextVar[Any], value: ValueT) -> None:
        self._variable = variable
        self._value = value
        self._token: Token[Any] | None = None

    def __enter__(self) -> ValueT:
        self._token = self._variable.set(self._value)
        return self._value

    def __exit__(self, *_: object) -> None:
        if self._token is not None:
            self._variable.reset(self._token)
