"""The clock as an argument: whoever decides by time is given one.

Leases, lags and deadlines use monotonic time, which never jumps; only what is
shown or stored (record timestamps, audit entries) uses wall time.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Where time comes from."""

    def monotonic_ms(self) -> int:
        """Return milliseconds from an arbitrary start, never going backwards."""

    def wall_ms(self) -> int:
        """Return milliseconds since 1970-01-01 UTC, as the operating system believes."""


class SystemClock:
    """The clock of this machine."""

    __slots__ = ()

    def monotonic_ms(self) -> int:
        """Return CLOCK_MONOTONIC in milliseconds (rule R10 counts leases by it)."""
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        """Return CLOCK_REALTIME in milliseconds."""
        return time.time_ns() // 1_000_000


class ManualClock:
    """A clock that moves only when told to: for tests and simulations.

    Both readings advance together; `step_wall` moves wall time alone, as an
    administrator or a time daemon does.
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

        Raises ValueError for a negative amount: monotonic time has no way back.
        """
        if ms < 0:
            raise ValueError(f"time cannot advance by {ms} ms")
        self._monotonic_ms += ms
        self._wall_ms += ms

    def step_wall(self, ms: int) -> None:
        """Set the wall clock forward or back by `ms`; monotonic time does not notice."""
        self._wall_ms += ms
