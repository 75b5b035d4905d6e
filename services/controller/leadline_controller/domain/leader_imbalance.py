"""Which leaders are not where the assignment prefers them (KIP-183)."""

from __future__ import annotations

from collections.abc import Iterable

from leadline_client.wire import NO_LEADER, TopicPartition
from leadline_controller.domain.cluster import ClusterImage


class LeaderImbalance:
    """Finds the partitions whose leadership should move back to the preferred leader (KIP-183).

    The preferred leader of a partition is its first replica. A broker is imbalanced if other
    brokers lead more than a percentage of the partitions that prefer it. Smaller imbalances are
    tolerated, because a leader change interrupts clients briefly. Brokers that are no leader
    candidates, partitions without a leader, and partitions that are being reassigned are skipped:
    the reassignment decides about their leaders.

    Example: broker 1 is preferred by 20 partitions and leads 18 of them, which is an imbalance of
    10 %. With a percentage of 10 nothing moves; if it leads only 17, all 3 move.
    """

    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self._preferring: dict[int, int] = {}
        self._non_preferred: dict[int, list[TopicPartition]] = {}

    def add(self, topics: Iterable[str]) -> None:
        """Count the partitions of these topics; one that does not exist any more has none."""
        for topic in (self._image.topics.get(name) for name in topics):
            if topic is None or not topic.is_visible:
                continue
            for number, partition in topic.active_partitions.items():
                state = partition.state
                if state is None or not partition.replicas or topic.is_being_reassigned(number):
                    continue
                preferred = partition.replicas[0]
                self._preferring[preferred] = self._preferring.get(preferred, 0) + 1
                if state.leader not in (preferred, NO_LEADER):
                    moved = self._non_preferred.setdefault(preferred, [])
                    moved.append(TopicPartition(topic.name, number))

    def to_move(self, percentage: int) -> list[TopicPartition]:
        """Return the partitions to move, of the topics that were counted."""
        candidates = self._image.leader_candidates
        return [
            topic_partition
            for broker, moved in sorted(self._non_preferred.items())
            if broker in candidates and 100 * len(moved) > percentage * self._preferring[broker]
            for topic_partition in moved
        ]
