"""The clock of a simulated process."""

from __future__ import annotations

import time


class SimulatedClock:
    """A `leadline_common.clock.Clock` in virtual time: the module `time` is simulated."""

    def monotonic_ms(self) -> int:
        """Return the virtual time."""
        return int(time.monotonic() * 1000)

    def wall_ms(self) -> int:
        """Return the virtual wall time."""
        return time.time_ns() // 1_000_000
