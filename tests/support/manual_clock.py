"""A clock for tests and simulations."""

from __future__ import annotations


class ManualClock:
    """A clock that moves only on request.

    Both times advance together; `step_wall` changes only wall time, as an administrator or a time
    daemon does.
    """

    __slots__ = ("_monotonic_ms", "_wall_ms")

    def __init__(self, monotonic_ms: int = 0, wall_ms: int = 1_700_000_000_000) -> None:
        self._monotonic_ms = monotonic_ms
        self._wall_ms = wall_ms

    def monotonic_ms(self) -> int:
        """Return the monotonic reading, ms."""
        return self._monotonic_ms

    def wall_ms(self) -> int:
        """Return the wall reading, ms since 1970-01-01 UTC."""
        return self._wall_ms

    def advance(self, ms: int) -> None:
        """Let `ms` milliseconds pass.

        Raises ValueError for a negative amount, because monotonic time cannot go back.
        """
        if ms < 0:
            raise ValueError(f"time cannot advance by {ms} ms")
        self._monotonic_ms += ms
        self._wall_ms += ms

    def step_wall(self, ms: int) -> None:
        """Move the wall clock forward or back by `ms`, without changing monotonic time."""
        self._wall_ms += ms
