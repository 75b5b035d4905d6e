"""Rack constraints of placement, and the even share of replicas that they allow per broker.

No rack gets more replicas of a partition than necessary: the cap is the smallest number
c for which racks of at most c replicas each, limited by their brokers, can hold all
replicas of the partition. With three racks and three replicas it is one; with two racks
it is two. If a broker has no rack, or all have the same rack, there is no constraint.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Mapping
from itertools import count


class RackRule:
    """The rack constraint for replicas on `receivers`; `racks` may contain other brokers."""

    def __init__(self, racks: Mapping[int, str | None], receivers: Collection[int]) -> None:
        self.racks = racks
        self.receivers = tuple(sorted(receivers))
        self.sizes = Counter(racks.get(broker) for broker in self.receivers)
        self.applies = None not in self.sizes and len(self.sizes) > 1
        self._caps: dict[int, int] = {}

    def cap(self, factor: int) -> int:
        """Return how many of a partition's `factor` replicas a rack may hold."""
        if factor not in self._caps:
            self._caps[factor] = next(
                cap for cap in count(1) if cap >= factor or self._room(cap) >= factor
            )
        return self._caps[factor]

    def allows(self, replicas: tuple[int, ...], donor: int, receiver: int) -> bool:
        """Tell whether a replica may move from donor to receiver."""
        if not self.applies:
            return True
        rack = self.racks.get(receiver)
        others = sum(b != donor and self.racks.get(b) == rack for b in replicas)
        return others < self.cap(len(replicas))

    def crowded(self, replicas: tuple[int, ...]) -> tuple[int, ...]:
        """Return the replicas on racks that exceed the cap."""
        if not self.applies:
            return ()
        used = Counter(self.racks.get(broker) for broker in replicas)
        cap = self.cap(len(replicas))
        return tuple(broker for broker in replicas if used[self.racks.get(broker)] > cap)

    def bounds(self, rack: str | None, factors: Mapping[int, int]) -> tuple[int, int]:
        """Return the least and the most replicas on a rack.

        `factors` maps replication factors to how many partitions have them.
        """
        least = most = 0
        for factor, partitions in factors.items():
            cap = self.cap(factor)
            share = min(cap, self.sizes[rack]) if self.applies else factor
            elsewhere = self._room(cap) - share if self.applies else 0
            least += partitions * max(0, factor - elsewhere)
            most += partitions * min(factor, share)
        return least, most

    def _room(self, cap: int) -> int:
        return sum(min(cap, size) for size in self.sizes.values())


def even_quotas(
    have: Mapping[int, int], factors: Mapping[int, int], rule: RackRule
) -> dict[int, int]:
    """Return how many replicas each broker should have: as even as the racks allow.

    `have` maps the brokers to their replicas. `factors` maps numbers of replicas to how
    many partitions have so many on these brokers.

    Method: all brokers are filled to one level. A rack whose bounds are below or above
    its share keeps its bound, and the other racks share the rest. Among brokers of one
    level, those with the most replicas get the remainder, because this moves least.
    """
    total = sum(factor * partitions for factor, partitions in factors.items())
    racks: dict[str | None, list[int]] = {}
    for broker in sorted(have, key=lambda broker: (-have[broker], broker)):
        racks.setdefault(rule.racks.get(broker) if rule.applies else None, []).append(broker)
    bounds = {rack: rule.bounds(rack, factors) for rack in racks}

    def filled(level: int) -> dict[str | None, int]:
        return {
            rack: min(max(level * len(brokers), bounds[rack][0]), bounds[rack][1])
            for rack, brokers in racks.items()
        }

    levels = range(1, total + 1)
    level = bisect_right(levels, total, key=lambda level: sum(filled(level).values()))
    shares = filled(level)
    above = filled(level + 1)
    rest = total - sum(shares.values())
    for rack in sorted(racks, key=lambda rack: -have[racks[rack][0]]):
        raised = min(rest, above[rack] - shares[rack])
        shares[rack] += raised
        rest -= raised
    return {
        broker: shares[rack] // len(brokers) + (rank < shares[rack] % len(brokers))
        for rack, brokers in racks.items()
        for rank, broker in enumerate(brokers)
    }
