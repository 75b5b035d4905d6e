"""Statistics of the cluster: unhealthy partitions, and the load of each broker."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from leadline_client.wire import NO_LEADER
from leadline_common.isr import isr_floor
from leadline_controller.domain.cluster import ClusterImage, PartitionImage


class Unhealthy(NamedTuple):
    """How many partitions have no leader, lack a replica in the ISR, refuse acks=all."""

    offline: int
    under_replicated: int
    under_min_isr: int


def count_unhealthy(image: ClusterImage) -> Unhealthy:
    """Return how many partitions are offline, under-replicated, and below min.insync.replicas."""
    offline = under = below = 0
    for topic in image.topics.values():
        if topic.deleting:
            continue
        minimum, adding = image.min_insync_replicas(topic), topic.assignment.adding
        for number, partition in topic.active_partitions.items():
            offline += is_offline(partition)
            under += is_under_replicated(partition)
            floor = isr_floor(minimum, partition.replicas, adding.get(number, ()))
            below += partition.state is None or len(partition.state.isr) < floor
    return Unhealthy(offline, under, below)


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
