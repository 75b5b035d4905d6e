"""What a group has to consume: the records of its topic that were acknowledged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from leadline_client.wire import TopicPartition
from tests.runtime_simulation.cluster import GROUP_TOPIC, Cluster
from tests.runtime_simulation.topics import name_of
from tests.runtime_simulation.workload import Producer
from tests.support.groups.log import Partition


def acknowledged(cluster: Cluster) -> dict[Partition, list[int]]:
    """Return the acknowledged offsets that the group has to consume, by incarnations.

    It may have missed what retention has removed from a leader.
    """
    found: dict[Partition, list[int]] = {}
    for (name, number), offsets in (*_of_clients(cluster), *_of_producers(cluster)):
        start = cluster.log_starts.highest(name, number)
        kept = [offset for offset in offsets if offset >= start]
        found.setdefault((name, number), []).extend(kept)
    return {partition: offsets for partition, offsets in found.items() if offsets}


def _of_clients(cluster: Cluster) -> Iterator[tuple[Partition, Sequence[int]]]:
    """Yield what producers of the client library have written to the topic that is there now."""
    for producer in cluster.client_producers:
        if producer.topic_id == cluster.topics.id_of(producer.topic):
            name = name_of(producer.topic, producer.topic_id)
            for number, offsets in producer.acked.items():
                yield (name, number), offsets


def _of_producers(cluster: Cluster) -> Iterator[tuple[Partition, Sequence[int]]]:
    """Yield what others have written to a partition of the topic as it is now."""
    for producer in cluster.producers:
        if isinstance(producer, Producer) and producer.topic == GROUP_TOPIC:
            name = cluster.topics.name_now(TopicPartition(GROUP_TOPIC, producer.partition))
            yield (name, producer.partition), producer.offsets.get(name, [])
