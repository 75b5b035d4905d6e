"""The details of a self-healing task: the failed broker, the failure, and the partitions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from leadline_client.wire import TopicPartition
from leadline_controller.runtime.reassignment.task_store import ReassignmentTask, by_topic

HEAL = "heal"
"""The kind of a self-healing task."""
FAILED_AT = "failure_timestamp"
"""Identifies one failure of a broker, in chunks and in audit entries."""
PARTITIONS = "partitions"


def details_of(
    broker: int, failed_at: int, topic_partitions: Iterable[TopicPartition]
) -> dict[str, Any]:
    """Return the details of a chunk of a failed broker's partitions."""
    return {"broker": broker, FAILED_AT: failed_at, PARTITIONS: by_topic(topic_partitions)}


def partitions_of(task: ReassignmentTask) -> frozenset[TopicPartition]:
    """Return the partitions of a chunk; none if the details are invalid."""
    try:
        rows = msgspec.convert(task.node.details.get(PARTITIONS, {}), dict[str, list[int]])
    except msgspec.ValidationError:
        return frozenset()
    return frozenset(TopicPartition(t, number) for t, numbers in rows.items() for number in numbers)
