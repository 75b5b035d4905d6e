"""Moving replicas from brokers that have too many to brokers that have too few.

Method: for each partition, the replica on the broker with the greatest surplus moves to
the broker with the greatest need that hosts no replica of the partition and whose rack
has room. This keeps donors and receivers even, and places nearly all replicas by direct
moves, each of which is necessary. The rest moves along chains: from the donor to a
broker, and from there a replica of another partition to the next, up to one in need.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain

from leadline_controller.domain.planning.racks import RackRule
from leadline_controller.domain.planning.replacements import choose_receiver


class PlacementState:
    """The current placement of partitions, which are identified by their index in a sequence.

    If `givers` is given, brokers outside it only pass on replicas that this object moved
    to them.
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
        """Move one replica of a partition to another broker, at the same position in the list."""
        self.replicas[index] = tuple(
            receiver if broker == donor else broker for broker in self.replicas[index]
        )
        self.changed[index] = None
        self.load[donor] -= 1
        self.load[receiver] += 1

    def reorder(self, index: int, replicas: tuple[int, ...]) -> None:
        """Set the order of a partition's replicas; the first one is the preferred leader."""
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
        """Make all possible direct moves; update `surplus` and `need` to what remains."""
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
        """Relieve a donor of one replica by a shortest chain of moves; return the last receiver.

        Returns None, and moves nothing, if no chain leads to a sink.
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
        """Move the replica on the broker with the greatest surplus, if a broker can take it."""
        replicas = self.replicas[index]
        # Of equal donors take the last: moving the first replica would change the leader.
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
        """Find a partition that can move, first among those that move anyway at no extra cost."""
        if (donor, receiver) in self._closed:
            return None
        for index in self._indexes():
            if index not in taken and self.may_move(index, donor, receiver):
                return index
        if not taken:
            self._closed.add((donor, receiver))
        return None

    def _reopen(self, donor: int, receiver: int) -> None:
        """Reopen the pairs of brokers between which the last move may have made a move possible."""
        rack = self.rule.racks.get(donor)
        self._closed = {
            (a, b)
            for a, b in self._closed
            if a != receiver
            and b != donor
            and not (self.rule.applies and self.rule.racks.get(b) == rack)
        }

    def _indexes(self) -> Iterator[int]:
        yield from self.changed
        yield from range(len(self.replicas))


def repair_racks(placement: PlacementState, quotas: Mapping[int, int]) -> int:
    """Move replicas off racks that exceed the cap; return how many."""
    repairs = 0
    if not placement.rule.applies:
        return repairs
    above = {broker: placement.load[broker] - quota for broker, quota in quotas.items()}
    for index in range(len(placement.replicas)):
        while crowded := [
            b for b in placement.rule.crowded(placement.replicas[index]) if b in above
        ]:
            donor = max(crowded, key=lambda broker: (above[broker], broker))
            receiver = choose_receiver(placement.replicas[index], donor, placement.rule, above)
            if not placement.may_move(index, donor, receiver):
                break
            placement.move(index, donor, receiver)
            above[donor] -= 1
            above[receiver] += 1
            repairs += 1
    return repairs


def even_out(placement: PlacementState, quotas: Mapping[int, int], sinks: Collection[int]) -> None:
    """Balance by chains of moves what direct moves could not."""

    def above(broker: int) -> int:
        return placement.load[broker] - quotas[broker]

    def are_uneven(donor: int, sink: int) -> bool:
        return above(sink) < 0 and above(sink) + 2 <= above(donor)

    for donor in sorted(quotas, key=lambda broker: (-above(broker), broker)):
        while needy := [broker for broker in sinks if are_uneven(donor, broker)]:
            if placement.follow_chain(donor, needy) is None:
                break


def place_rest(placement: PlacementState, order: Sequence[int], drained: Collection[int]) -> None:
    """Move the remaining replicas off the drained brokers to any broker that can take them."""
    for index in order:
        for donor in placement.replicas[index]:
            if donor in drained:
                receiver = choose_receiver(
                    placement.replicas[index], donor, placement.rule, placement.load
                )
                placement.move(index, donor, receiver)
