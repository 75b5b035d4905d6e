"""Moving replicas from brokers that have too many to brokers that have too few.

Method: partition by partition the replica on the broker with the greatest surplus goes
to the broker with the greatest need that has none of the partition and whose rack has
room. Both stay even among each other that way, and nearly everything is placed by
direct moves, each of which is needed. What is left over goes by a chain: donor to one
broker, from there a replica of another partition to the next, up to one in need.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain

from leadline_controller.domain.planning.racks import RackRule


class PlacementState:
    """The partitions, by their place in a sequence, as they are moved about.

    Of brokers outside `givers`, if that is given, only those replicas move on that were
    moved there by this board.
    """

    def __init__(
        self,
        replicas: Iterable[tuple[int, ...]],
        rule: RackRule,
        *,
        givers: Collection[int] | None = None,
    ) -> None:
        self.before = tuple(replicas)
        self.replicas = list(self.before)
        self._givers = givers
        self.changed: dict[int, None] = {}
        self.rule = rule
        self.load = Counter(chain.from_iterable(self.replicas))
        self._closed: set[tuple[int, int]] = set()

    def move(self, index: int, donor: int, receiver: int) -> None:
        """Give one replica of a partition to another broker, at the same place in the list."""
        self.replicas[index] = tuple(
            receiver if broker == donor else broker for broker in self.replicas[index]
        )
        self.changed[index] = None
        self.load[donor] -= 1
        self.load[receiver] += 1

    def lead(self, index: int, replicas: tuple[int, ...]) -> None:
        """Put the replicas of a partition into another order."""
        self.replicas[index] = replicas
        self.changed[index] = None

    def may_move(self, index: int, donor: int, receiver: int) -> bool:
        """Tell whether a replica of a partition can move."""
        replicas = self.replicas[index]
        return (
            donor in replicas
            and receiver not in replicas
            and (self._givers is None or donor in self._givers or donor not in self.before[index])
            and self.rule.allows(replicas, donor, receiver)
        )

    def move_surplus(
        self, order: Sequence[int], surplus: dict[int, int], need: dict[int, int]
    ) -> None:
        """Make direct moves while there are any; both dictionaries keep what is left."""
        left = min(sum(surplus.values()), sum(need.values()))
        progress = True
        while left and progress:
            progress = False
            for index in order:
                if self._move_one(index, surplus, need):
                    progress = True
                    left -= 1
                    if not left:
                        break

    def follow_chain(self, donor: int, sinks: Collection[int]) -> int | None:
        """Take one replica from a donor by a shortest chain of moves; return where it ends.

        None where no chain leads to a sink.
        """
        reached: dict[int, tuple[tuple[int, int, int], ...]] = {donor: ()}
        frontier = [donor]
        for broker in frontier:
            for receiver in self.rule.receivers:
                if receiver in reached:
                    continue
                moves = reached[broker]
                index = self._find(broker, receiver, {move[0] for move in moves})
                if index is None:
                    continue
                reached[receiver] = (*moves, (index, broker, receiver))
                frontier.append(receiver)
                if receiver in sinks:
                    for move in reversed(reached[receiver]):
                        self.move(*move)
                        self._reopen(*move[1:])
                    return receiver
        return None

    def _move_one(self, index: int, surplus: dict[int, int], need: dict[int, int]) -> bool:
        """Move the replica that most needs to go, if there is a place for it."""
        replicas = self.replicas[index]
        # Of equals the last one: to move the first would change the leader.
        donors = [broker for broker in reversed(replicas) if surplus.get(broker, 0) > 0]
        if len(donors) > 1:
            donors.sort(key=lambda broker: -surplus[broker])
        for donor in donors:
            receiver, most = -1, 0
            for broker, room in need.items():
                if room > most and broker not in replicas:
                    if not self.rule.allows(replicas, donor, broker):
                        continue
                    receiver, most = broker, room
            if most:
                self.move(index, donor, receiver)
                surplus[donor] -= 1
                need[receiver] -= 1
                return True
        return False

    def _find(self, donor: int, receiver: int, taken: set[int]) -> int | None:
        """Find a partition that can move; one that moves anyway costs nothing more."""
        if (donor, receiver) in self._closed:
            return None
        for index in self._places():
            if index not in taken and self.may_move(index, donor, receiver):
                return index
        if not taken:
            self._closed.add((donor, receiver))
        return None

    def _reopen(self, donor: int, receiver: int) -> None:
        """Forget what a move may have made possible: to go on from there, to come in its place."""
        rack = self.rule.racks.get(donor)
        self._closed = {
            (a, b)
            for a, b in self._closed
            if a != receiver
            and b != donor
            and not (self.rule.applies and self.rule.racks.get(b) == rack)
        }

    def _places(self) -> Iterator[int]:
        yield from self.changed
        yield from range(len(self.replicas))
