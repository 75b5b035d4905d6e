"""Which live brokers a controller is in touch with, and whether it can do its work at all.

A broker that is registered in ZooKeeper may be out of a controller's reach all the same: the
network between them is cut, or the controller's clock is outside of the validity of certificates.
Nobody learns of its elections then, and another controller may do better.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field


@dataclass(slots=True)
class BrokerContacts:
    """When this controller was last in touch with each live broker; times are monotonic, in ms.

    It is in touch with a broker whose heartbeats arrive, and to which it can connect. A broker for
    which that is not so for longer than `timeout_ms` is out of reach.
    """

    timeout_ms: int
    _latest_ms: dict[int, int] = field(default_factory=dict)

    def note(self, broker: int, now_ms: int) -> None:
        """Note that this controller is in touch with a broker."""
        self._latest_ms[broker] = now_ms

    def out_of_reach(self, live: Collection[int], now_ms: int) -> list[int]:
        """Return the live brokers that are out of reach; those seen first now get their time."""
        for broker in self._latest_ms.keys() - live:
            del self._latest_ms[broker]
        since_ms = {broker: self._latest_ms.setdefault(broker, now_ms) for broker in sorted(live)}
        return [one for one, latest in since_ms.items() if now_ms - latest > self.timeout_ms]


def is_cut_off(out_of_reach: int, live: int) -> bool:
    """Tell whether a controller should let another one lead: most live brokers are out of reach.

    If only some are, the fault is theirs, and another controller would reach no more of them.
    """
    return 2 * out_of_reach > live
