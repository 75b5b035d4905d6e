"""What comes with a request besides what it asks: a condition, and the mark of its key.

The API opens a scope with a guard around a route; each event that the route puts
into the queue carries it. The engine checks the condition right before the event is
handled, when nobody else changes anything, and has every multi of the handler carry
the mark.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeAlias

from leadline_common.zk.errors import MultiFailed
from leadline_common.zk.ops import MultiResults, SetOp

Named: TypeAlias = tuple[str, str]
"""A resource: its kind, as `leadline_common.api.guards.Kind` says, and its name."""


@dataclass(frozen=True, slots=True)
class Condition:
    """Go on only while the ETag of `resource` is one of `etags`; None is any."""

    resource: Named
    etags: frozenset[str] | None


@dataclass(frozen=True, slots=True)
class Mark:
    """What notes in a key's record that its request has changed something.

    It is of the controller `epoch` that the request was begun in. In a later one a record
    without it says that nothing was done, so that nothing may be done then.
    """

    op: SetOp
    epoch: int


class Guard:
    """The guard of one request.

    `mark` goes into every multi of the request; `marked` tells whether one of them
    may have been applied.
    `checked` tells whether the condition was: the request's own change may undo it.
    """

    __slots__ = ("_multis", "checked", "condition", "mark")

    def __init__(self, condition: Condition | None = None, mark: Mark | None = None) -> None:
        self.condition = condition
        self.checked = False
        self.mark = mark
        self._multis = 0

    @property
    def marked(self) -> bool:
        """Whether the mark may have been left: a multi with it was not refused."""
        return self._multis > 0

    def sent(self, answer: asyncio.Future[MultiResults]) -> None:
        """Count a multi with the mark, until it turns out to be refused."""
        self._multis += 1
        answer.add_done_callback(self._answered)

    def _answered(self, answer: asyncio.Future[MultiResults]) -> None:
        if not answer.cancelled() and isinstance(answer.exception(), MultiFailed):
            self._multis -= 1


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
