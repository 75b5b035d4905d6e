"""Statistics of the cluster: unhealthy partitions, and the load of each broker."""

from __future__ import annotations

from collections.abc import Iterable

from leadline_client.wire import NO_LEADER
from leadline_controller.domain.cluster import ClusterImage, PartitionImage


def count_unhealthy(image: ClusterImage) -> tuple[int, int]:
    """Return how many partitions are offline, and how many are under-replicated."""
    offline = under = 0
    for topic in image.topics.values():
        if topic.deleting:
            continue
        for partition in topic.active_partitions.values():
            offline += is_offline(partition)
            under += is_under_replicated(partition)
    return offline, under


def is_offline(partition: PartitionImage) -> bool:
    """Tell whether a partition has no leader."""
    return partition.state is None or partition.state.leader == NO_LEADER


def is_under_replicated(partition: PartitionImage) -> bool:
    """Tell whether a replica is missing from the ISR."""
    return partition.state is None or len(partition.state.isr) < len(partition.replicas)


def leader_and_replica_counts(
    image: ClusterImage, broker_ids: Iterable[int]
) -> dict[int, tuple[int, int]]:
    """Return for each broker how many partitions it leads and how many replicas it hosts."""
    counts = {}
    for broker_id in broker_ids:
        hosted = [
            image.topics[topic].partitions[number]
            for topic, numbers in image.hosted_by(broker_id).items()
            for number in numbers
        ]
        led = sum(p.state is not None and p.state.leader == broker_id for p in hosted)
        counts[broker_id] = (led, len(hosted))
    return counts
