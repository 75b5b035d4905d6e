"""May these partitions be reassigned so: what Kafka's tools ask before they begin.

A request is checked whole before anything is written; a refusal names what is
wrong and changes nothing.
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
    """A reassignment that somebody asks for.

    `throttle_bytes_per_s` None is no throttle. With `retarget`, partitions that
    are being reassigned already get the new target; else they are refused.
    `details` are for the `kind` of the task. With `is_auto_generated` the task
    waits until those before it that are so too are over.
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
    """Check everything that does not depend on other reassignments.

    Raises:
        InvalidRequest: no partition is named, or one is named twice.
        UnknownTopic: a topic does not exist, or is being deleted.
        UnknownPartition: a topic has no such partition.
        PolicyViolation: a target has no replicas, names a broker twice or a new one that
            never registered, or changes the number of replicas though it must not.

    """
    if not wanted.partitions:
        raise InvalidRequest("body.partitions: name at least one partition")
    _check_distinct(wanted.partitions)
    for row in wanted.partitions:
        _check_row(row, wanted, image, registered_ever)


def check_idle(wanted: Submission, busy: Container[TopicPartition]) -> None:
    """Refuse partitions that are being reassigned already, unless they may be retargeted.

    Raises:
        ReassignmentInProgress: some are.

    """
    if wanted.retarget:
        return
    found = [
        f"{r.topic}-{r.partition}" for r in wanted.partitions if (r.topic, r.partition) in busy
    ]
    if found:
        shown = ", ".join(found[:10]) + (", …" if len(found) > 10 else "")
        raise ReassignmentInProgress(
            f"{len(found)} partitions are being reassigned already: {shown}. Cancel that first, "
            "or ask with retarget"
        )


def current_replicas(image: ClusterImage, name: TopicPartition) -> tuple[int, ...] | None:
    """Return the replicas of a partition without those that are only being added."""
    topic = image.topics.get(name.topic)
    partition = topic.partitions.get(name.partition) if topic else None
    if topic is None or partition is None:
        return None
    adding = topic.assignment.adding.get(name.partition, ())
    return tuple(broker for broker in partition.replicas if broker not in adding)


def _check_distinct(rows: Sequence[TargetRow]) -> None:
    seen: set[tuple[str, int]] = set()
    for row in rows:
        if (row.topic, row.partition) in seen:
            raise InvalidRequest(f"body.partitions: {row.topic}-{row.partition} is named twice")
        seen.add((row.topic, row.partition))


def _check_row(
    row: TargetRow, wanted: Submission, image: ClusterImage, registered_ever: Collection[int]
) -> None:
    where = f"{row.topic}-{row.partition}"
    if row.partition not in find_topic(image, row.topic).partitions:
        raise UnknownPartition(f"topic {row.topic!r} has no partition {row.partition}")
    if not row.replicas:
        raise PolicyViolation(f"{where}: the list of replicas is empty")
    if len(set(row.replicas)) < len(row.replicas):
        raise PolicyViolation(f"{where}: the replicas {list(row.replicas)} name a broker twice")
    current = current_replicas(image, TopicPartition(row.topic, row.partition)) or ()
    unknown = sorted(set(row.replicas) - {*registered_ever, *current})
    if unknown:
        raise PolicyViolation(f"{where}: brokers {unknown} never registered")
    if len(current) != len(row.replicas) and not wanted.allow_replication_factor_change:
        raise PolicyViolation(
            f"{where}: {len(row.replicas)} replicas instead of {len(current)}; "
            "allow_replication_factor_change is false"
        )
