"""Which leaders are not where the assignment prefers them (KIP-183)."""

from __future__ import annotations

from leadline_client.wire import NO_LEADER, TopicPartition
from leadline_controller.domain.cluster import ClusterImage


def non_preferred_leaders(image: ClusterImage, percentage: int) -> list[TopicPartition]:
    """Return the partitions whose leadership should move back to the preferred leader (KIP-183).

    The preferred leader of a partition is its first replica. A broker is imbalanced if
    other brokers lead more than `percentage` percent of the partitions that prefer it.
    Smaller imbalances are tolerated, because a leader change interrupts clients briefly.
    Brokers that are no leader candidates, partitions without a leader, and partitions
    that are being reassigned are skipped: the reassignment decides about their leaders.

    Example: broker 1 is preferred by 20 partitions and leads 18 of them, which is an
    imbalance of 10 %. With `percentage` 10 nothing moves; if it leads only 17, all 3 move.
    """
    preferring: dict[int, int] = {}
    non_preferred: dict[int, list[TopicPartition]] = {}
    for topic in image.topics.values():
        if not topic.is_visible:
            continue
        for number, partition in topic.active_partitions.items():
            state = partition.state
            if state is None or not partition.replicas or topic.is_being_reassigned(number):
                continue
            preferred = partition.replicas[0]
            preferring[preferred] = preferring.get(preferred, 0) + 1
            if state.leader not in (preferred, NO_LEADER):
                topic_partition = TopicPartition(topic.name, number)
                non_preferred.setdefault(preferred, []).append(topic_partition)
    return [
        topic_partition
        for broker, moved in sorted(non_preferred.items())
        if broker in image.leader_candidates and 100 * len(moved) > percentage * preferring[broker]
        for topic_partition in moved
    ]
