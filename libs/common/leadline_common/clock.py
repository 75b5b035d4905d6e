"""Clocks, which code that depends on time takes as an argument.

Leases, lags and deadlines use monotonic time, which nobody can set, and which goes on while the
machine is suspended. Only times that are shown or stored (record timestamps, audit entries) use
wall time.
"""

from __future__ import annotations

import time
from typing import Protocol

from leadline_client.clock import monotonic_ns


class Clock(Protocol):
    """A source of time."""

    def monotonic_ms(self) -> int:
        """Return milliseconds since an arbitrary start; they never go backwards."""

    def wall_ms(self) -> int:
        """Return milliseconds since 1970-01-01 UTC by the system's clock."""


class SystemClock:
    """The clock of this machine."""

    __slots__ = ()

    def monotonic_ms(self) -> int:
        """Return the time of leases (rule R10) in milliseconds; see `leadline_client.clock`."""
        return monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        """Return CLOCK_REALTIME in milliseconds."""
        return time.time_ns() // 1_000_000
