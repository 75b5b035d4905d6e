"""Which leaders are out of place, and when that is enough to put them back (KIP-183's balance).

A partition's preferred leader is its first replica. A broker is out of balance when
more than a given share of the partitions that prefer it are led by others. Moving a
leader costs its clients a moment: so a few out of place are left there.

Example: broker 1 is preferred by 20 partitions and leads 18 of them: 10 %. With a
limit of 10 nothing is done; when it leads 17, all 3 are moved.
"""

from __future__ import annotations

from leadline_client.wire import NO_LEADER, TopicPartition
from leadline_controller.domain.cluster import ClusterImage, TopicImage


def non_preferred_leaders(image: ClusterImage, percentage: int) -> list[TopicPartition]:
    """Return the partitions to elect the preferred leader of, by broker out of balance.

    Left alone are brokers that should lead nothing now, partitions without a leader,
    and those that are being reassigned: the reassignment looks after their leaders.
    """
    preferring: dict[int, int] = {}
    astray: dict[int, list[TopicPartition]] = {}
    for topic in image.topics.values():
        if topic.deleting or not topic.topic_id:
            continue
        for number, partition in topic.standing.items():
            state = partition.state
            if state is None or not partition.replicas or is_being_reassigned(topic, number):
                continue
            preferred = partition.replicas[0]
            preferring[preferred] = preferring.get(preferred, 0) + 1
            if state.leader not in (preferred, NO_LEADER):
                astray.setdefault(preferred, []).append(TopicPartition(topic.name, number))
    return [
        name
        for broker, names in sorted(astray.items())
        if broker in image.preferable and 100 * len(names) > percentage * preferring[broker]
        for name in names
    ]


def is_being_reassigned(topic: TopicImage, number: int) -> bool:
    """Tell whether a partition's replicas are on the move."""
    return number in topic.assignment.adding or number in topic.assignment.removing
