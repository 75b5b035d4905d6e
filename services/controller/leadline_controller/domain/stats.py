"""Statistics of the cluster: unhealthy partitions, and the load of each broker."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from leadline_client.wire import NO_LEADER
from leadline_common.isr import isr_floor
from leadline_common.znodes import BrokerRegistration
from leadline_controller.domain.cluster import ClusterImage, PartitionImage, PartitionsByTopic
from leadline_controller.domain.memberships import misplaced_finder


class Unhealthy(NamedTuple):
    """How many partitions have no leader, lack a replica in the ISR, refuse acks=all."""

    offline: int
    under_replicated: int
    under_min_isr: int


def count_unhealthy(image: ClusterImage, topics: Iterable[str] | None = None) -> Unhealthy:
    """Return how many partitions are offline, under-replicated, and below min.insync.replicas.

    With `topics`, only theirs count.
    """
    offline = under = below = 0
    for name in image.topics if topics is None else topics:
        topic = image.topics.get(name)
        if topic is None or topic.deleting:
            continue
        minimum, adding = image.min_insync_replicas(topic), topic.assignment.adding
        for number, partition in topic.active_partitions.items():
            offline += is_offline(partition)
            under += is_under_replicated(partition)
            in_sync = None if partition.state is None else len(partition.state.isr)
            if in_sync is None:
                below += 1
            elif in_sync < minimum:  # The floor is at most that; few partitions are below it.
                below += in_sync < isr_floor(minimum, partition.replicas, adding.get(number, ()))
    return Unhealthy(offline, under, below)


def is_offline(partition: PartitionImage) -> bool:
    """Tell whether a partition has no leader."""
    return partition.state is None or partition.state.leader == NO_LEADER


def is_under_replicated(partition: PartitionImage) -> bool:
    """Tell whether a replica is missing from the ISR."""
    return partition.state is None or len(partition.state.isr) < len(partition.replicas)


class BrokerCounts(NamedTuple):
    """How many partitions a broker leads, hosts, and is a misplaced member of."""

    leaders: int = 0
    replicas: int = 0
    misplaced: int = 0

    def plus(self, other: BrokerCounts) -> BrokerCounts:
        """Return the sums."""
        return BrokerCounts(*map(sum, zip(self, other, strict=True)))


def broker_counts(
    image: ClusterImage, broker: BrokerRegistration, hosted: PartitionsByTopic
) -> BrokerCounts:
    """Return the counts of a broker among partitions that it hosts, or hosted a moment ago."""
    leaders = replicas = misplaced = 0
    is_misplaced = misplaced_finder({broker.id: broker})
    for name, numbers in hosted.items():
        topic = image.topics.get(name)
        for number in numbers if topic is not None else ():
            partition = topic.partitions.get(number) if topic is not None else None
            if topic is None or partition is None:
                continue
            state, is_active = partition.state, number not in topic.pending_removal
            replicas += 1
            leaders += state is not None and state.leader == broker.id
            misplaced += topic.is_visible and is_active and bool(is_misplaced(topic, number, state))
    return BrokerCounts(leaders, replicas, misplaced)
