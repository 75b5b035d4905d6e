"""Adding and removing partitions of a topic (Replication V3, section H).

Partitions are numbered from 0 without gaps. So only the highest partitions can be
removed, and new ones continue the numbering. A request is validated completely before
anything is written. Intents that operators wrote to ZooKeeper are checked one by one:
valid ones are accepted, the others are refused with a reason.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import msgspec

from leadline_client.errors import (
    InvalidRequest,
    PartitionRemovalPending,
    PolicyViolation,
    UnknownPartition,
)
from leadline_common.znodes import TopicAssignment
from leadline_controller.domain.cluster import ClusterImage, TopicImage
from leadline_controller.domain.failover import FIRST_EPOCH
from leadline_controller.domain.placement import alternate_racks, assign_replicas
from leadline_controller.domain.topics import (
    check_replicas,
    check_topic_size,
    placement_brokers,
)


class IntentCheck(msgspec.Struct, frozen=True):
    """The intents of a topic: accepted ones with their replicas, refused ones with reasons."""

    accepted: dict[int, tuple[int, ...]]
    refused: dict[int, str]


def plan_additions(
    topic: TopicImage,
    image: ClusterImage,
    total: int,
    replica_assignment: Mapping[int, tuple[int, ...]] | None,
    registered_ever: Collection[int],
) -> dict[int, tuple[int, ...]]:
    """Return the replicas of the new partitions that bring a topic to `total` partitions.

    Placement continues the topic's round robin, like Kafka's AdminUtils.addPartitions: it
    starts at the first replica of the lowest partition, at the number of the first new
    partition, with the replication factor of the lowest partition.

    Raises:
        PolicyViolation: the topic already has `total` partitions, or the assignment or
            the placement is invalid.
        PartitionRemovalPending: partitions of the topic are still being removed.
        InvalidRequest: the assignment does not list exactly the new partitions.

    """
    _refuse_while_removing(topic)
    first = _next_number(topic)
    if total <= first:
        raise PolicyViolation(
            f"topic {topic.name!r} already has {first} partitions; request a higher total"
        )
    factor = _replication_factor(topic)
    check_topic_size(total, factor)
    if replica_assignment is None:
        return _place(topic, image, factor, first, total)
    if sorted(replica_assignment) != list(range(first, total)):
        raise InvalidRequest(
            f"body.replica_assignment: list exactly the new partitions, {first} to {total - 1}"
        )
    for number in range(first, total):
        check_replicas(number, replica_assignment[number], factor, registered_ever)
    return {number: tuple(replica_assignment[number]) for number in range(first, total)}


def _refuse_while_removing(topic: TopicImage) -> None:
    if topic.pending_removal:
        pending = sorted(topic.pending_removal)
        raise PartitionRemovalPending(
            f"partitions {pending} of topic {topic.name!r} are still being removed"
        )


def _next_number(topic: TopicImage) -> int:
    return max(topic.partitions, default=-1) + 1


def _require_next(topic: TopicImage, number: int, expected: int) -> None:
    if number != expected:
        raise PolicyViolation(f"the next partition of topic {topic.name!r} is {expected}")


def _replication_factor(topic: TopicImage) -> int:
    """Return the number of replicas of the lowest partition, without those being added."""
    if not topic.partitions:
        return 1
    lowest = min(topic.partitions)
    adding = topic.assignment.adding.get(lowest, ())
    return max(1, len(topic.partitions[lowest].replicas) - len(adding))


def _place(
    topic: TopicImage, image: ClusterImage, factor: int, first: int, total: int
) -> dict[int, tuple[int, ...]]:
    brokers = placement_brokers(image)
    racks = {broker: rack for broker, rack in brokers.items() if rack is not None}
    ring = alternate_racks(racks) if racks else list(brokers)
    return assign_replicas(
        brokers,
        total - first,
        factor,
        start_index=_start(topic, ring),
        start_partition=first,
    )


def _start(topic: TopicImage, ring: list[int]) -> int:
    """Return where the topic's round robin began: at its first broker, or at the next live one."""
    if not topic.partitions:
        return 0
    origin = next(iter(topic.partitions[min(topic.partitions)].replicas), -1)
    if origin in ring:
        return ring.index(origin)
    following = min((broker for broker in ring if broker > origin), default=ring[0])
    return ring.index(following)


def check_removal(topic: TopicImage, numbers: Collection[int]) -> tuple[int, ...]:
    """Return the partitions to remove, highest first.

    Raises:
        InvalidRequest: the request lists no partition.
        UnknownPartition: a partition does not exist.
        PartitionRemovalPending: a partition is already being removed.
        PolicyViolation: they are not the highest partitions, or no partition would remain.

    """
    if not numbers:
        raise InvalidRequest("body.partitions: list at least one partition")
    wanted = set(numbers)
    unknown = sorted(wanted - topic.partitions.keys())
    if unknown:
        raise UnknownPartition(f"topic {topic.name!r} has no partitions {unknown}")
    if wanted & topic.pending_removal:
        _refuse_while_removing(topic)
    checked = check_removal_intents(topic, wanted)
    if checked.refused:
        raise PolicyViolation(next(iter(checked.refused.values())))
    return tuple(checked.accepted)


def check_addition_intents(
    topic: TopicImage,
    wanted: Mapping[int, tuple[int, ...]],
    registered_ever: Collection[int],
) -> IntentCheck:
    """Check intents to add partitions, in ascending order."""
    accepted: dict[int, tuple[int, ...]] = {}
    refused: dict[int, str] = {}
    following = _next_number(topic)
    for number, replicas in sorted(wanted.items()):
        try:
            _refuse_while_removing(topic)
            _require_next(topic, number, following + len(accepted))
            check_replicas(number, replicas, len(replicas), registered_ever)
        except (PolicyViolation, PartitionRemovalPending) as problem:
            refused[number] = problem.message
        else:
            accepted[number] = replicas
    return IntentCheck(accepted, refused)


def check_removal_intents(topic: TopicImage, wanted: Iterable[int]) -> IntentCheck:
    """Check intents to remove partitions, in descending order.

    Partitions that are pending removal count as removed.
    """
    accepted: dict[int, tuple[int, ...]] = {}
    refused: dict[int, str] = {}
    left = sorted(topic.active_partitions)
    for number in sorted(set(wanted) - topic.pending_removal, reverse=True):
        if not left or number != left[-1]:
            refused[number] = (
                f"partition {number} cannot be removed: only the highest partitions of topic "
                f"{topic.name!r} can be, and the highest is {left[-1] if left else 'none'}"
            )
        elif len(left) == 1:
            refused[number] = f"partition {number} is the last partition of topic {topic.name!r}"
        else:
            accepted[left.pop()] = topic.partitions[number].replicas
    return IntentCheck(accepted, refused)


def assignment_with(
    assignment: TopicAssignment, added: Mapping[int, tuple[int, ...]]
) -> TopicAssignment:
    """Return a topic's assignment with partitions added."""
    return msgspec.structs.replace(assignment, partitions={**assignment.partitions, **added})


def assignment_without(topic: TopicImage, numbers: Collection[int]) -> TopicAssignment:
    """Return a topic's assignment without some partitions.

    It records a first epoch for each removed partition, above its last leader epoch. If
    the partition is added again, replicas and readers of the old one can be recognized. One
    that never had a leader was stopped in the first epoch, and brokers start no replica in an
    epoch in which they have stopped it.
    """
    assignment = topic.assignment
    first_epochs = dict(assignment.first_epochs)
    for number in sorted(numbers):
        state = topic.partitions[number].state
        last = FIRST_EPOCH if state is None else state.leader_epoch
        first_epochs[number] = max(first_epochs.get(number, FIRST_EPOCH), last + 1)
    return msgspec.structs.replace(
        assignment,
        partitions=_omitting(assignment.partitions, numbers),
        adding=_omitting(assignment.adding, numbers),
        removing=_omitting(assignment.removing, numbers),
        first_epochs=first_epochs,
    )


def _omitting(
    replicas: Mapping[int, tuple[int, ...]], numbers: Collection[int]
) -> dict[int, tuple[int, ...]]:
    return {number: brokers for number, brokers in replicas.items() if number not in numbers}
