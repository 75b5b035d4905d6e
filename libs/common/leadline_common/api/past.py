"""What the audit amounts to: the cluster as it was, and every task so far."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from leadline_common.api.models import example


class PastTopic(BaseModel):
    """A topic as it was; rows as in the metadata: [partition, leader, epoch, ISR, replicas]."""

    topic_id: str
    partitions: list[tuple[int, int, int, list[int], list[int]]]


class PastCluster(BaseModel):
    """The cluster as it was after the last transaction up to the time or version asked for."""

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

    version: int = Field(description="The ZooKeeper transaction that the cluster is shown after")
    time: int = Field(description="When that was, in Unix ms")
    audit_id: int
    controller: int | None
    brokers: list[int] | None = Field(description="Live brokers; null where nothing tells of them")
    topics: dict[str, PastTopic]
    complete: bool = Field(
        description="False where entries are lost (`history_gap`): what they changed is not seen"
    )


class PastTask(BaseModel):
    """A task as its latest audit entry has it; times in Unix ms."""

    id: str
    kind: str
    actor: str
    cause: str
    reason: str
    state: str
    created_at: int
    finished_at: int | None
    total: int = Field(description="Partitions that it was about")
    outcome: dict[str, int] = Field(description="What became of how many of them")
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
