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

    def cluster_time_ms(self, live: Collection[int], own_ms: int, monotonic_ms: int) -> int | None:
        """Return the time by the clocks of the `live` brokers and the controller's: their median.

        If they are an even number it is the earlier of the two in the middle: too early a time
        delays a deletion, and what was deleted too early is gone. So a clock that is not known yet
        counts as earlier than all others: the time is never later than the median of all clocks.
        None says that too few are known to say any.
        """
        for broker in self._at_zero_ms.keys() - live:
            del self._at_zero_ms[broker]
        times_ms = sorted([own_ms, *(one + monotonic_ms for one in self._at_zero_ms.values())])
        unknown = len(live) - len(self._at_zero_ms)
        middle = len(live) // 2
        return times_ms[middle - unknown] if live and unknown <= middle else None
