"""The clocks of brokers, and what time it is by most of them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field


@dataclass(slots=True)
class BrokerClocks:
    """What the wall clocks of brokers show, as their heartbeats said last.

    Kept is what each showed at 0 of the controller's monotonic clock, so that they go on, and stay
    the same when the controller's own wall clock is set. All times are in ms.
    """

    _at_zero_ms: dict[int, int] = field(default_factory=dict)

    def note(self, broker: int, time_ms: int, monotonic_ms: int) -> None:
        """Note what time a broker says it is now."""
        self._at_zero_ms[broker] = time_ms - monotonic_ms

    def cluster_time_ms(self, live: Collection[int], own_ms: int, monotonic_ms: int) -> int:
        """Return the time by the clocks of the `live` brokers and the controller's: their median.

        If they are an even number it is the earlier of the two in the middle: too early a time
        delays a deletion, and what was deleted too early is gone.
        """
        for broker in self._at_zero_ms.keys() - live:
            del self._at_zero_ms[broker]
        times_ms = sorted([own_ms, *(one + monotonic_ms for one in self._at_zero_ms.values())])
        return times_ms[(len(times_ms) - 1) // 2]
