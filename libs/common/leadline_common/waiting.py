"""How much of a request's time was waiting that the caller asked for.

A long poll takes as long as nothing happens. That time is no latency, so that the request metrics
leave it out. A wait that the caller did not choose, such as that for replicas, is latency.
"""

from __future__ import annotations

import time
from contextvars import ContextVar

from leadline_common.context_scope import ContextScope


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


def waits_measured() -> ContextScope[Waits]:
    """Measure the waits within the block, for one request."""
    return ContextScope(_current, Waits())


class CountedWait:
    """Counts the time of the block as a wait of the request, if its caller `asked` for that."""

    __slots__ = ("_waits",)

    def __init__(self, *, asked: bool = True) -> None:
        self._waits = _current.get() if asked else None

    def __enter__(self) -> None:
        if self._waits is not None:
            self._waits.begin()

    def __exit__(self, *_: object) -> None:
        if self._waits is not None:
            self._waits.end()
