"""How much of a request's time was waiting that the caller asked for.

A long poll takes as long as nothing happens. That time is no latency, so that the request metrics
leave it out. A wait that the caller did not choose, such as that for replicas, is latency.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class Waits:
    """The waits of one request and of the tasks it starts; waits at the same time count once."""

    __slots__ = ("_depth", "_since_s", "has_waited", "seconds")

    def __init__(self) -> None:
        self.seconds = 0.0
        self.has_waited = False
        self._depth = 0
        self._since_s = 0.0

    def begin(self) -> None:
        """Begin to wait."""
        if not self._depth:
            self._since_s = time.perf_counter()
        self._depth += 1
        self.has_waited = True

    def end(self) -> None:
        """End what `begin` has begun."""
        self._depth -= 1
        if not self._depth:
            self.seconds += time.perf_counter() - self._since_s


_current: ContextVar[Waits | None] = ContextVar("leadline_waits", default=None)


@contextmanager
def waits_measured() -> Iterator[Waits]:
    """Measure the waits within the block, for one request."""
    waits = Waits()
    token = _current.set(waits)
    try:
        yield waits
    finally:
        _current.reset(token)


@contextmanager
def counted_wait(*, asked: bool = True) -> Iterator[None]:
    """Count the time of the block as a wait of the request, if its caller `asked` for that."""
    waits = _current.get() if asked else None
    if waits is None:
        yield
        return
    waits.begin()
    try:
        yield
    finally:
        waits.end()
