"""The guard of a request: the condition of `If-Match`, and the mark of its `Idempotency-Key`.

The API opens a guard scope around a route; each request that the route puts into the
queue carries the guard. The active controller checks the condition right before it
handles the request, when nothing else changes, and every multi of the handler carries
the mark.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TypeAlias

from leadline_client.errors import StaleVersion
from leadline_common.zk.errors import MultiFailed, NotConnected
from leadline_common.zk.ops import MultiResults, SetOp

ResourceName: TypeAlias = tuple[str, str]
"""The kind of a resource (`leadline_common.api.guards.Kind`) and its name."""


@dataclass(frozen=True, slots=True)
class Condition:
    """Requires that the ETag of `resource` is one of `etags`; None accepts any."""

    resource: ResourceName
    etags: frozenset[str] | None


@dataclass(frozen=True, slots=True)
class Mark:
    """The operation that notes in a key's record that its request has changed something.

    `epoch` is the controller epoch in which the request began. In a later epoch, a record
    without the mark says that nothing was done, so nothing may be done any more.
    """

    op: SetOp
    epoch: int


@dataclass(eq=False, slots=True)
class Guard:
    """The guard of one request.

    `mark` goes into every multi of the request; `marked` says whether one of them may have
    been applied. `checked` says whether the condition was checked: it is checked once,
    because the request's own change may invalidate it.
    """

    condition: Condition | None = None
    mark: Mark | None = None
    checked: bool = field(default=False, init=False)
    _multis: int = field(default=0, init=False)

    @property
    def marked(self) -> bool:
        """Whether the mark may have been written: a multi with it was not refused."""
        return self._multis > 0

    def sent(self, answer: asyncio.Future[MultiResults]) -> None:
        """Count a multi with the mark, unless ZooKeeper refuses it, or it is not sent."""
        self._multis += 1
        answer.add_done_callback(self._answered)

    def _answered(self, answer: asyncio.Future[MultiResults]) -> None:
        if not answer.cancelled() and isinstance(answer.exception(), MultiFailed | NotConnected):
            self._multis -= 1


def require_etag(guard: Guard | None, etag: str, what: str) -> None:
    """Refuse a request whose condition does not hold for what its handler has read itself.

    Raises:
        StaleVersion: the resource `what` has changed since the caller read it.

    """
    condition = guard.condition if guard is not None else None
    if condition is None or condition.etags is None or etag in condition.etags:
        return
    raise StaleVersion(f"{what} was changed meanwhile; read it again before changing it", etag=etag)


_guard: ContextVar[Guard | None] = ContextVar("leadline_guard", default=None)


def current_guard() -> Guard | None:
    """Return the guard of the request being served, if it has one."""
    return _guard.get()


@contextmanager
def guard_scope(guard: Guard) -> Iterator[None]:
    """Serve a request under a guard for the length of the `with` statement."""
    token = _guard.set(guard)
    try:
        yield
    finally:
        _guard.reset(token)
