"""Making named tuples where one is made for each record. Pure."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T", bound=tuple[Any, ...])


def maker_of(kind: type[T]) -> Callable[[tuple[Any, ...]], T]:
    """Return what makes a named tuple of all of its fields, in half of the time of its class.

    It does not look whether there are as many as the class has.
    """
    return partial(tuple.__new__, kind)
