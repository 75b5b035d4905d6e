"""What comes with a request besides what it asks: a condition, and the mark of its key.

The API opens a scope with a guard around a route; each event that the route puts
into the queue carries it. The engine checks the condition right before the event is
handled, when nobody else changes anything, and has every multi of the handler carry
the mark.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeAlias

from leadline_common.zk.ops import SetOp

Named: TypeAlias = tuple[str, str]
"""A resource: its kind, as `leadline_common.api.guards.Kind` says, and its name."""


@dataclass(frozen=True, slots=True)
class Condition:
    """Go on only while the ETag of `resource` is one of `etags`; None is any."""

    resource: Named
    etags: frozenset[str] | None


class Guard:
    """The guard of one request.

    `mark` goes into every multi of the request; `marked` tells whether one was sent.
    `checked` tells whether the condition was: the request's own change may undo it.
    """

    __slots__ = ("checked", "condition", "mark", "marked")

    def __init__(self, condition: Condition | None = None, mark: SetOp | None = None) -> None:
        self.condition = condition
        self.checked = False
        self.mark = mark
        self.marked = False


_guard: ContextVar[Guard | None] = ContextVar("leadline_guard", default=None)


def current_guard() -> Guard | None:
    """Return the guard of the request that is being served, if it has one."""
    return _guard.get()


@contextmanager
def guard_scope(guard: Guard) -> Iterator[None]:
    """Serve a request under a guard."""
    token = _guard.set(guard)
    try:
        yield
    finally:
        _guard.reset(token)
