"""Creation of topics: validation and replica assignment (Replication V3, section B).

A request is validated completely before anything is written.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from leadline_client.errors import (
    InvalidRequest,
    PolicyViolation,
    TopicDeletionPending,
    UnknownTopic,
)
from leadline_client.wire import NewTopic
from leadline_common.names import MAX_TOPIC_NAME, is_topic_name
from leadline_controller.domain.cluster import ClusterImage, TopicImage
from leadline_controller.domain.placement import assign_replicas

MAX_TOPIC_REPLICAS = 450_000
"""Replicas of one topic; more of them, with ids of one digit, would not fit into its znode."""


def check_topic_name(name: str) -> None:
    """Check that a topic name can be a directory and a znode.

    Raises:
        PolicyViolation: the name is empty, too long or reserved, or contains a character
            other than ASCII letters, digits, '.', '_' and '-'.

    """
    if not is_topic_name(name):
        raise PolicyViolation(
            f"topic name {name[:MAX_TOPIC_NAME]!r} is not allowed: 1 to {MAX_TOPIC_NAME} "
            "characters of a-z, A-Z, 0-9, '.', '_', '-', and not '.', '..' or '-' alone"
        )


def check_may_create(image: ClusterImage, name: str) -> None:
    """Check that no topic has the name yet.

    Raises:
        TopicDeletionPending: a topic of this name is still being deleted.
        PolicyViolation: the topic exists.

    """
    topic = image.topics.get(name)
    if topic is None:
        return
    if topic.deleting:
        raise TopicDeletionPending(f"topic {name!r} is still being deleted")
    raise PolicyViolation(f"topic {name!r} already exists")


def find_topic(image: ClusterImage, name: str) -> TopicImage:
    """Return a topic.

    Raises:
        UnknownTopic: no topic has this name, or the topic is being deleted.

    """
    topic = image.topics.get(name)
    if topic is None or topic.deleting:
        raise UnknownTopic(f"there is no topic {name!r}")
    return topic


def is_meant_for(topic: TopicImage, topic_id: str) -> bool:
    """Tell whether an order that names `topic_id` is for this topic; without an id it is."""
    return topic_id in ("", topic.topic_id)


def plan_assignment(
    new: NewTopic,
    image: ClusterImage,
    registered_ever: Collection[int],
    *,
    default_partitions: int,
    default_replication_factor: int,
    start_index: int,
    shift: int,
) -> dict[int, tuple[int, ...]]:
    """Return the replicas of a new topic: its explicit assignment, or a placement.

    Placement uses live brokers only, in order of their ids. It respects racks if every
    live broker has one. The default replication factor is capped at the number of live
    brokers; an explicit one is not.

    Raises:
        InvalidRequest: the counts contradict the explicit assignment.
        PolicyViolation: the assignment or the counts are invalid.

    """
    if new.replica_assignment is not None:
        if new.partitions is not None or new.replication_factor is not None:
            _check_counts_agree(new)
        return check_assignment(new.replica_assignment, registered_ever)
    brokers = placement_brokers(image)
    partitions = default_partitions if new.partitions is None else new.partitions
    factor = new.replication_factor
    if factor is None:
        factor = min(default_replication_factor, len(brokers))
    check_topic_size(partitions, factor)
    return assign_replicas(
        brokers,
        partitions,
        factor,
        start_index=start_index % len(brokers),
        shift=shift % len(brokers),
    )


def check_topic_size(partitions: int, replication_factor: int) -> None:
    """Check that the assignment of a topic may fit into its znode, before it is computed.

    Raises:
        PolicyViolation: it cannot.

    """
    if partitions * replication_factor > MAX_TOPIC_REPLICAS:
        raise PolicyViolation(
            f"{partitions} partitions with {replication_factor} replicas each are more than "
            f"{MAX_TOPIC_REPLICAS} replicas, the most that one topic can have"
        )


def placement_brokers(image: ClusterImage) -> dict[int, str | None]:
    """Return the placement candidates by id, with their racks if all of them have one.

    Raises:
        PolicyViolation: there are no candidates.

    """
    brokers = {b: image.brokers[b].rack for b in sorted(image.placement_candidates)}
    if not brokers:
        raise PolicyViolation("no broker is live, so replicas cannot be placed")
    return dict.fromkeys(brokers) if None in brokers.values() else brokers


def _check_counts_agree(new: NewTopic) -> None:
    """Check that the counts match the explicit assignment."""
    assignment = new.replica_assignment or {}
    if new.partitions is not None and new.partitions != len(assignment):
        raise InvalidRequest(
            f"partitions is {new.partitions}, but replica_assignment names {len(assignment)}"
        )
    factors = {len(replicas) for replicas in assignment.values()}
    if new.replication_factor is not None and factors != {new.replication_factor}:
        raise InvalidRequest(
            f"replication_factor is {new.replication_factor}, but replica_assignment "
            f"names {sorted(factors)} replicas"
        )


def check_assignment(
    assignment: Mapping[int, tuple[int, ...]], registered_ever: Collection[int]
) -> dict[int, tuple[int, ...]]:
    """Check an explicit assignment; its brokers may be down but must have registered before.

    Raises:
        PolicyViolation: the partitions are not numbered from 0 without gaps, or a
            partition has no replicas, repeats a broker, differs from the first partition
            in the number of replicas, or names a broker that never registered.

    """
    if not assignment or sorted(assignment) != list(range(len(assignment))):
        raise PolicyViolation("replica_assignment must number the partitions from 0 without gaps")
    factor = len(assignment[0])
    for partition, replicas in sorted(assignment.items()):
        check_replicas(partition, replicas, factor, registered_ever)
    return {partition: tuple(assignment[partition]) for partition in range(len(assignment))}


def check_replicas(
    partition: int, replicas: tuple[int, ...], factor: int, registered_ever: Collection[int]
) -> None:
    """Check that a partition has `factor` replicas on distinct, known brokers.

    Raises:
        PolicyViolation: there are no replicas or not `factor` of them, or a broker is
            repeated or never registered.

    """
    if not replicas:
        raise PolicyViolation(f"partition {partition} has no replicas")
    if len(set(replicas)) != len(replicas):
        raise PolicyViolation(f"partition {partition} names a broker twice")
    if len(replicas) != factor:
        raise PolicyViolation(
            f"partition {partition} has {len(replicas)} replicas, the others have {factor}"
        )
    unknown = sorted(set(replicas) - set(registered_ever))
    if unknown:
        raise PolicyViolation(f"partition {partition}: brokers {unknown} never registered")
