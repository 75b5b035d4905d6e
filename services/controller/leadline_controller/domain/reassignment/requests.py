"""Reassignment requests and their validation, like that of Kafka's tools.

A request is validated completely before anything is written.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping, Sequence
from typing import Any

import msgspec

from leadline_client.errors import (
    InvalidRequest,
    PolicyViolation,
    ReassignmentInProgress,
    UnknownPartition,
)
from leadline_client.wire import TopicPartition
from leadline_common.reassignments import ReassignmentAlgorithm
from leadline_common.tasks import TargetRow
from leadline_controller.domain.cluster import ClusterImage
from leadline_controller.domain.topics import find_topic


class Submission(msgspec.Struct, frozen=True):
    """A request to reassign partitions.

    `throttle_bytes_per_s` None means no throttle. With `retarget`, partitions that are
    already being reassigned get the new target; otherwise they are refused. `details`
    depend on the `kind` of the task. A task that `is_auto_generated` waits until earlier
    auto-generated tasks are over.
    """

    partitions: tuple[TargetRow, ...]
    kind: str = "reassign"
    actor: str = "operator"
    reason: str = ""
    algorithm: ReassignmentAlgorithm = ReassignmentAlgorithm.INCREMENTAL
    throttle_bytes_per_s: int | None = None
    retarget: bool = False
    allow_replication_factor_change: bool = True
    is_auto_generated: bool = False
    details: Mapping[str, Any] = {}


def check_submission(
    wanted: Submission, image: ClusterImage, registered_ever: Collection[int]
) -> None:
    """Validate everything that does not depend on other reassignments.

    Raises:
        InvalidRequest: no partition is listed, or one is listed twice.
        UnknownTopic: a topic does not exist, or is being deleted.
        UnknownPartition: a partition does not exist, or is being removed.
        PolicyViolation: a target has no replicas, repeats a broker, contains a new broker
            that never registered, or changes the number of replicas without permission.

    """
    if not wanted.partitions:
        raise InvalidRequest("body.partitions: list at least one partition")
    _check_distinct(wanted.partitions)
    for row in wanted.partitions:
        _check_row(row, wanted, image, registered_ever)


def check_idle(wanted: Submission, busy: Container[TopicPartition]) -> None:
    """Check that no partition is being reassigned, unless the request may retarget them.

    Raises:
        ReassignmentInProgress: partitions are already being reassigned.

    """
    if wanted.retarget:
        return
    found = [
        f"{r.topic}-{r.partition}" for r in wanted.partitions if (r.topic, r.partition) in busy
    ]
    if found:
        shown = ", ".join(found[:10]) + (", …" if len(found) > 10 else "")
        raise ReassignmentInProgress(
            f"{len(found)} partitions are already being reassigned: {shown}; cancel their "
            "reassignments first, or set retarget"
        )


def current_replicas(
    image: ClusterImage, topic_partition: TopicPartition
) -> tuple[int, ...] | None:
    """Return the replicas of a partition without those being added.

    Returns None if the partition is unknown, or is being deleted or removed.
    """
    topic = image.topics.get(topic_partition.topic)
    partition = topic.active_partition(topic_partition.partition) if topic else None
    if topic is None or partition is None or topic.deleting:
        return None
    adding = topic.assignment.adding.get(topic_partition.partition, ())
    return tuple(broker for broker in partition.replicas if broker not in adding)


def _check_distinct(rows: Sequence[TargetRow]) -> None:
    seen: set[tuple[str, int]] = set()
    for row in rows:
        if (row.topic, row.partition) in seen:
            raise InvalidRequest(f"body.partitions: {row.topic}-{row.partition} is listed twice")
        seen.add((row.topic, row.partition))


def _check_row(
    row: TargetRow, wanted: Submission, image: ClusterImage, registered_ever: Collection[int]
) -> None:
    where = f"{row.topic}-{row.partition}"
    if find_topic(image, row.topic).active_partition(row.partition) is None:
        raise UnknownPartition(f"topic {row.topic!r} has no partition {row.partition}")
    if not row.replicas:
        raise PolicyViolation(f"{where}: the list of replicas is empty")
    if len(set(row.replicas)) < len(row.replicas):
        raise PolicyViolation(f"{where}: the replicas {list(row.replicas)} contain a broker twice")
    current = current_replicas(image, TopicPartition(row.topic, row.partition)) or ()
    unknown = sorted(set(row.replicas) - {*registered_ever, *current})
    if unknown:
        raise PolicyViolation(f"{where}: brokers {unknown} never registered")
    if len(current) != len(row.replicas) and not wanted.allow_replication_factor_change:
        raise PolicyViolation(
            f"{where}: {len(row.replicas)} replicas instead of {len(current)}; "
            "allow_replication_factor_change is false"
        )
