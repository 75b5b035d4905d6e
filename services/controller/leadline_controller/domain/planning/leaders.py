"""Which replica comes first: leaders spread evenly, by changing as few lists as possible.

No data moves when a leader does. Method: while some broker leads at least two
partitions more than another one, leadership is handed along the shortest chain of
brokers from the one to the other; where there is no such chain, the spread is the
least that the replicas allow. Partitions that are reassigned anyway change first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from leadline_controller.domain.planning.placement_state import PlacementState


def balance_leaders(board: PlacementState, brokers: Collection[int]) -> None:
    """Spread the first replicas over the brokers; those that others lead stay as they are."""
    for pool in (tuple(board.changed), range(len(board.replicas))):
        shifts = _Shifts(board, sorted(brokers), pool)
        if not shifts.is_needed():
            return
        shifts.run()


class _Shifts:
    """Leaders as they are handed on, within a pool of partitions."""

    def __init__(self, board: PlacementState, brokers: list[int], pool: Iterable[int]) -> None:
        self._board = board
        first = Counter(replicas[0] for replicas in board.replicas)
        self._led = {broker: first[broker] for broker in brokers}
        self._average = sum(self._led.values()) // max(1, len(brokers))
        self._pool = pool
        self._offers: dict[int, dict[int, list[int]]] = {}

    def is_needed(self) -> bool:
        """Tell whether the leaders are uneven."""
        return max(self._led.values(), default=0) - min(self._led.values(), default=0) > 1

    def run(self) -> None:
        """Hand leadership on while that evens it out."""
        self._offers = {broker: {} for broker in self._led}
        for index in self._pool:
            self._offer(index)
        while any(self._relieve(giver) for giver in self._most_first()):
            pass

    def _most_first(self) -> list[int]:
        return sorted(self._led, key=lambda broker: (-self._led[broker], broker))

    def _offer(self, index: int) -> None:
        leader, *others = self._board.replicas[index]
        offers = self._offers.get(leader)
        if offers is not None:
            for broker in others:
                if broker in self._led:
                    offers.setdefault(broker, []).append(index)

    def _relieve(self, giver: int) -> bool:
        """Hand leaderships of one broker along a chain, as many as even both ends out."""
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
                self._hand_over(a, b)
            self._led[giver] -= 1
            self._led[taker] += 1
        return True

    def _find_path(self, giver: int) -> list[int]:
        """Return the brokers after `giver` on the way to the one nearby that leads the fewest."""
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
        """Tell whether a partition can be handed on; those that another leads now are no offer."""
        offers = self._offers[giver].get(taker, [])
        while offers and self._board.replicas[offers[-1]][0] != giver:
            offers.pop()
        return bool(offers)

    def _hand_over(self, giver: int, taker: int) -> None:
        index = self._offers[giver][taker].pop()
        others = (broker for broker in self._board.replicas[index] if broker != taker)
        self._board.lead(index, (taker, *others))
        self._offer(index)
