"""The placement of replicas while a proposal is computed, and the load of each broker. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from leadline_client.wire import TopicPartition

Replicas = tuple[int, ...]
"""Broker ids. The first is the preferred leader, and counts as the leader here."""


@dataclass(frozen=True, slots=True)
class PartitionLoad:
    """A partition: its replicas, the bytes of one replica, and the bytes/s of its leader."""

    topic_partition: TopicPartition
    replicas: Replicas
    size: int
    rate: float


@dataclass(frozen=True, slots=True)
class Skew:
    """The excess of the most loaded broker over the mean: 0 is balanced, 1 is twice the mean."""

    leaders: float
    disk: float


class BalanceState:
    """A tentative placement of the replicas of all partitions on brokers, the `members`.

    If every member has a rack, racks are a hard constraint: no move may put more replicas of a
    partition on a rack than the fullest had, nor leave it on fewer racks. `moves` and
    `bytes_to_move` are the cost of the change from the initial placement.
    """

    def __init__(
        self,
        partitions: Iterable[PartitionLoad],
        members: Collection[int],
        racks: Mapping[int, str | None],
    ) -> None:
        self.loads = {load.topic_partition: load for load in partitions}
        self.replicas: dict[TopicPartition, Replicas] = {
            tp: load.replicas for tp, load in self.loads.items()
        }
        self.members = tuple(sorted(members))
        self._racks = racks
        self._racks_count = all(racks.get(broker) is not None for broker in members)
        self.leader_rate = dict.fromkeys(self.members, 0.0)
        self.disk = dict.fromkeys(self.members, 0)
        self.moves = self.bytes_to_move = 0
        self._led: dict[int, set[TopicPartition]] = {broker: set() for broker in self.members}
        self._held: dict[int, set[TopicPartition]] = {broker: set() for broker in self.members}
        for topic_partition in sorted(self.loads):
            self._count(topic_partition, 1)

    def led_by(self, broker: int) -> Iterator[PartitionLoad]:
        """Yield the partitions that a broker leads, sorted."""
        return (self.loads[topic_partition] for topic_partition in sorted(self._led[broker]))

    def held_by(self, broker: int) -> Iterator[PartitionLoad]:
        """Yield the partitions of which a broker has a replica, sorted."""
        return (self.loads[topic_partition] for topic_partition in sorted(self._held[broker]))

    def receivers(self, load: PartitionLoad, donor: int) -> Iterator[int]:
        """Yield the brokers that may take a replica of a partition from `donor`."""
        replicas = self.replicas[load.topic_partition]
        for broker in self.members:
            if broker not in replicas and self._keeps_racks(replicas, donor, broker):
                yield broker

    def followers(self, load: PartitionLoad) -> Iterator[int]:
        """Yield the other replicas of a partition, which could lead it without a copy."""
        return (b for b in self.replicas[load.topic_partition][1:] if b in self.leader_rate)

    def set(self, topic_partition: TopicPartition, replicas: Replicas) -> None:
        """Change the replicas of a partition."""
        self._count(topic_partition, -1)
        self.replicas[topic_partition] = replicas
        self._count(topic_partition, 1)

    def skew(self) -> Skew:
        """Return the present skew."""
        return Skew(excess(self.leader_rate.values()), excess(self.disk.values()))

    def changed(self) -> dict[TopicPartition, Replicas]:
        """Return the partitions whose replicas have changed."""
        now = sorted(self.replicas.items())
        return {tp: replicas for tp, replicas in now if replicas != self.loads[tp].replicas}

    def copies(self, topic_partition: TopicPartition, replicas: Replicas) -> int:
        """Return the number of replicas to copy for a change from the initial placement."""
        return len(set(replicas) - set(self.loads[topic_partition].replicas))

    def _keeps_racks(self, replicas: Replicas, donor: int, receiver: int) -> bool:
        if not self._racks_count:
            return True
        before = Counter(self._racks.get(broker) for broker in replicas)
        after = before.copy()
        after[self._racks.get(donor)] -= 1
        after[self._racks.get(receiver)] += 1
        after = +after
        return max(after.values()) <= max(before.values()) and len(after) >= len(before)

    def _count(self, topic_partition: TopicPartition, sign: int) -> None:
        replicas, load = self.replicas[topic_partition], self.loads[topic_partition]
        copies = self.copies(topic_partition, replicas)
        self.moves += sign * copies
        self.bytes_to_move += sign * copies * load.size
        change = set.add if sign > 0 else set.discard
        for broker in replicas:
            if broker in self.disk:
                self.disk[broker] += sign * load.size
                change(self._held[broker], topic_partition)
        if replicas and replicas[0] in self.leader_rate:
            self.leader_rate[replicas[0]] += sign * load.rate
            change(self._led[replicas[0]], topic_partition)


def excess(values: Iterable[float]) -> float:
    """Return the excess of the greatest value over the mean, as a fraction of the mean."""
    numbers = list(values)
    mean = sum(numbers) / len(numbers) if numbers else 0
    return max(numbers) / mean - 1 if mean > 0 else 0.0
