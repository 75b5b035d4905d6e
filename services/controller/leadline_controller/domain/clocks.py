"""The clocks of brokers, and what time it is by most of them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field


@dataclass(slots=True)
class BrokerClocks:
    """By how much the clocks of brokers are ahead of the controller's, in ms, as they said last."""

    _ahead_ms: dict[int, int] = field(default_factory=dict)

    def said(self, broker: int, time_ms: int, own_ms: int) -> None:
        """Note what time a broker says it is, when it is `own_ms` by the controller's clock."""
        self._ahead_ms[broker] = time_ms - own_ms

    def cluster_time_ms(self, live: Collection[int], own_ms: int) -> int:
        """Return the time by the clocks of the `live` brokers and the controller's: their median.

        If they are an even number it is the earlier of the two in the middle: too early a time
        delays a deletion, and too late a one cannot be undone.
        """
        for broker in self._ahead_ms.keys() - live:
            del self._ahead_ms[broker]
        ahead_ms = sorted([0, *self._ahead_ms.values()])
        return own_ms + ahead_ms[(len(ahead_ms) - 1) // 2]
