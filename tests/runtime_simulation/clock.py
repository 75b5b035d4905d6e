"""The clock of a simulated process, and wrong times that it is set to."""

from __future__ import annotations

import time
from collections.abc import Sequence
from random import Random
from typing import Final

from tests.runtime_simulation.plan import Fault

_WRONG_S: Final = (-72_000.0, -3_600.0, -90.0, -1.5, 1.5, 90.0, 3_600.0, 2_592_000.0)
"""Less than a day behind: brokers that all are further behind refuse the records of now."""
_FAR_AHEAD_S: Final = (90.0, 3_600.0, 2_592_000.0)


def wrong_times(fault: Fault) -> list[tuple[float, float]]:
    """Return when (s) a wall clock is set, and how far (s) it is ahead from then on."""
    random = Random(fault.choice)
    first, second = random.choice(_WRONG_S), random.choice((0.0, 0.0, *_WRONG_S))
    return [(0.0, first), (fault.for_s, second)]


def several_wrong_times(
    fault: Fault, controllers: Sequence[str], brokers: Sequence[str], others: Sequence[str]
) -> list[tuple[str, float]]:
    """Return which of the services' wall clocks are set, two or more, and how far (s) ahead each.

    Mostly they are those of all controllers and of up to half of the brokers, and show the same:
    the clocks of most are right then, and a controller that knew its own alone would be wrong.
    """
    random = Random(fault.choice)
    wrong = _WRONG_S if random.random() < 0.3 else (random.choice(_FAR_AHEAD_S),)
    if random.random() < 0.7:
        few = random.randint(1, max(1, len(brokers) // 2))
        chosen = [*controllers, *random.sample(list(brokers), few)]
    else:
        names = [*controllers, *brokers, *others]
        chosen = random.sample(names, random.randint(2, len(names) - 1))
    return [(name, random.choice(wrong)) for name in chosen]


class SimulatedClock:
    """A `leadline_common.clock.Clock` in virtual time: the module `time` is simulated."""

    def monotonic_ms(self) -> int:
        """Return the virtual time."""
        return int(time.monotonic() * 1000)

    def wall_ms(self) -> int:
        """Return the virtual wall time."""
        return time.time_ns() // 1_000_000
