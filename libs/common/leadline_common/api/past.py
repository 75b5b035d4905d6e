"""Bodies of the past, rebuilt from the audit: the cluster at a time, and all tasks."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from leadline_common.api.models import example


class PastTopicBody(BaseModel):
    """A past topic; rows as in the metadata: [partition, leader, leader epoch, ISR, replicas]."""

    topic_id: str
    partitions: list[tuple[int, int, int, list[int], list[int]]]


class PastClusterBody(BaseModel):
    """The cluster after the last transaction up to the requested time or version."""

    model_config = example(
        {
            "version": 8589934601,
            "time": 1767225600000,
            "audit_id": 5120,
            "controller": 1,
            "brokers": [2, 3],
            "topics": {
                "orders": {
                    "topic_id": "b1946ac92492d2347c6235b4d2611184",
                    "partitions": [[0, 2, 6, [2, 3], [1, 2, 3]]],
                }
            },
            "complete": True,
        }
    )

    version: int = Field(description="The zxid of that ZooKeeper transaction")
    time: int = Field(description="Its time, in Unix ms")
    audit_id: int
    controller: int | None
    brokers: list[int] | None = Field(description="Live brokers; null if they are not known")
    topics: dict[str, PastTopicBody]
    complete: bool = Field(
        description="False if audit entries are missing (`history_gap`), and with them changes"
    )


class PastTask(BaseModel):
    """A task according to its latest audit entry; times in Unix ms."""

    id: str
    kind: str
    actor: str
    cause: str
    reason: str
    state: str
    created_at: int
    finished_at: int | None
    total: int = Field(description="Number of partitions")
    outcome: dict[str, int] = Field(description="Numbers of partitions by their outcome")
    details: dict[str, Any]


class PastTasks(BaseModel):
    """Tasks, newest first."""

    model_config = example(
        {
            "tasks": [
                {
                    "id": "0000000007",
                    "kind": "reassign",
                    "actor": "operator",
                    "cause": "0f9a6d2c41be",
                    "reason": "",
                    "state": "done",
                    "created_at": 1767225600000,
                    "finished_at": 1767225660000,
                    "total": 12,
                    "outcome": {"done": 12, "cancelled": 0, "superseded": 0, "gone": 0},
                    "details": {},
                }
            ]
        }
    )

    tasks: list[PastTask]
