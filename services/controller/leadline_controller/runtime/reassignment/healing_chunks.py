"""What the task of a chunk says of it: whose replicas are made anew, since when, and which."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from leadline_client.wire import TopicPartition
from leadline_common.tasks import TargetRow
from leadline_controller.runtime.reassignment.task_store import Task

BROKER = "broker"
FAILED_AT = "failure_timestamp"
"""Tells the failures of one broker apart, in chunks and in audit entries."""
PARTITIONS = "partitions"


def details_of(broker: int, failed_at: int, names: Iterable[TopicPartition]) -> dict[str, Any]:
    """Return the details of a chunk of what a broker had."""
    return {BROKER: broker, FAILED_AT: failed_at, PARTITIONS: by_topic(names)}


def broker_of(task: Task) -> int:
    """Return whose replicas a chunk makes anew; -1, which is nobody, where it does not say."""
    broker = task.node.details.get(BROKER)
    return broker if isinstance(broker, int) else -1


def names_of(task: Task) -> frozenset[TopicPartition]:
    """Return the partitions of a chunk; none where somebody has written something else."""
    try:
        rows = msgspec.convert(task.node.details.get(PARTITIONS, {}), dict[str, list[int]])
    except msgspec.ValidationError:
        return frozenset()
    return frozenset(TopicPartition(t, number) for t, numbers in rows.items() for number in numbers)


def by_topic(names: Iterable[TopicPartition | TargetRow]) -> dict[str, list[int]]:
    """Return the partitions of each topic."""
    topics: dict[str, list[int]] = {}
    for name in names:
        topics.setdefault(name.topic, []).append(name.partition)
    return topics
