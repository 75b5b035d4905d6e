"""Balancing preferred leaders by changing the order of as few replica lists as possible.

Moving a leader moves no data. Method: while a broker leads at least two partitions more
than another one, leadership moves along the shortest chain of brokers between them. If
there is no such chain, the spread is the smallest that the replicas allow. Partitions
that are reassigned anyway change first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from leadline_controller.domain.planning.placement_state import PlacementState


def balance_leaders(placement: PlacementState, brokers: Collection[int]) -> None:
    """Spread the first replicas evenly over `brokers`; partitions of other leaders stay."""
    for pool in (tuple(placement.changed), range(len(placement.replicas))):
        balancing = _LeaderBalancing(placement, sorted(brokers), pool)
        if not balancing.is_needed():
            return
        balancing.run()


class _LeaderBalancing:
    """Moves leaders within a pool of partitions."""

    def __init__(self, placement: PlacementState, brokers: list[int], pool: Iterable[int]) -> None:
        self._placement = placement
        first = Counter(replicas[0] for replicas in placement.replicas)
        self._led = {broker: first[broker] for broker in brokers}
        self._average = sum(self._led.values()) // max(1, len(brokers))
        self._pool = pool
        self._offers: dict[int, dict[int, list[int]]] = {}

    def is_needed(self) -> bool:
        """Tell whether the leaders are uneven."""
        return max(self._led.values(), default=0) - min(self._led.values(), default=0) > 1

    def run(self) -> None:
        """Move leaders until the spread is as small as possible."""
        self._offers = {broker: {} for broker in self._led}
        for index in self._pool:
            self._offer(index)
        while any(self._relieve(giver) for giver in self._most_first()):
            pass

    def _most_first(self) -> list[int]:
        return sorted(self._led, key=lambda broker: (-self._led[broker], broker))

    def _offer(self, index: int) -> None:
        leader, *others = self._placement.replicas[index]
        offers = self._offers.get(leader)
        if offers is not None:
            for broker in others:
                if broker in self._led:
                    offers.setdefault(broker, []).append(index)

    def _relieve(self, giver: int) -> bool:
        """Move leaders from one broker along a chain, as many as balance both ends."""
        path = self._find_path(giver)
        if not path:
            return False
        taker = path[-1]
        surplus, need = self._led[giver] - self._average - 1, self._average - self._led[taker]
        for _ in range(max(1, min(surplus, need))):
            links = list(zip((giver, *path), path, strict=False))
            if not all(self._has_offer(a, b) for a, b in links):
                break
            for a, b in reversed(links):
                self._move_leader(a, b)
            self._led[giver] -= 1
            self._led[taker] += 1
        return True

    def _find_path(self, giver: int) -> list[int]:
        """Return a shortest chain, without `giver`, to the broker that leads fewest partitions."""
        reached: dict[int, list[int]] = {giver: []}
        frontier = [giver]
        while frontier:
            further = []
            for broker in frontier:
                for taker in self._led:
                    if taker not in reached and self._has_offer(broker, taker):
                        reached[taker] = [*reached[broker], taker]
                        further.append(taker)
            frontier = further
            nearest = min(further, key=lambda b: self._led[b], default=giver)
            if self._led[nearest] + 2 <= self._led[giver]:
                return reached[nearest]
        return []

    def _has_offer(self, giver: int, taker: int) -> bool:
        """Tell whether a partition can be passed on; drop those that have another leader by now."""
        offers = self._offers[giver].get(taker, [])
        while offers and self._placement.replicas[offers[-1]][0] != giver:
            offers.pop()
        return bool(offers)

    def _move_leader(self, giver: int, taker: int) -> None:
        index = self._offers[giver][taker].pop()
        others = (broker for broker in self._placement.replicas[index] if broker != taker)
        self._placement.reorder(index, (taker, *others))
        self._offer(index)
