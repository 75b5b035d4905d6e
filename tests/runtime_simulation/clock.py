"""The clock of a simulated process, and wrong times that it is set to."""

from __future__ import annotations

import time
from random import Random
from typing import Final

from tests.runtime_simulation.plan import Fault

_WRONG_S: Final = (-72_000.0, -3_600.0, -90.0, -1.5, 1.5, 90.0, 3_600.0, 2_592_000.0)
"""Less than a day behind: brokers that all are further behind refuse the records of now."""


def wrong_times(fault: Fault) -> list[tuple[float, float]]:
    """Return when (s) a wall clock is set, and how far (s) it is ahead from then on."""
    random = Random(fault.choice)
    first, second = random.choice(_WRONG_S), random.choice((0.0, 0.0, *_WRONG_S))
    return [(0.0, first), (fault.for_s, second)]


class SimulatedClock:
    """A `leadline_common.clock.Clock` in virtual time: the module `time` is simulated."""

    def monotonic_ms(self) -> int:
        """Return the virtual time."""
        return int(time.monotonic() * 1000)

    def wall_ms(self) -> int:
        """Return the virtual wall time."""
        return time.time_ns() // 1_000_000
