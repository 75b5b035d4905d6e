"""Reassignments: changing the replicas of partitions while they are in use (KIP-435, KIP-455)."""

from __future__ import annotations

from typing import Annotated, Literal, Protocol

from fastapi import Path, Query
from pydantic import BaseModel, Field

from leadline_client.errors import (
    NotFound,
    PolicyViolation,
    ReassignmentInProgress,
    UnknownPartition,
    UnknownTopic,
)
from leadline_common.api import tasks
from leadline_common.api.models import PartitionItem, Replicas, example
from leadline_common.api.routes import (
    CONTINUES,
    TopicName,
    dry_run,
    route,
)
from leadline_common.reassignments import ReassignmentAlgorithm, ReassignmentPhase

TAG = "reassignments"

_ROW = {
    "topic": "orders",
    "partition": 0,
    "task": "0000000007",
    "algorithm": "incremental",
    "start": [0, 1, 2, 3, 4],
    "current": [5, 0, 1, 2, 3, 4],
    "target": [5, 6, 7, 8, 9],
    "adding": [6],
    "removing": [0, 1],
    "leader": 5,
    "state": "expanding",
    "reason": "catching_up",
    "waiting_for": [6],
    "bytes_left": 1_048_576,
    "cancelled": False,
}
_BATCH = {
    "topic": "orders",
    "partition": 0,
    "current": [5, 0, 1, 2, 3, 4],
    "target": [5, 6, 2, 3, 4],
}
_LIMITS = {"replica_movements": 2, "partition_movements": 50, "leader_movements": 10}


class TargetBody(BaseModel, extra="forbid"):
    """The target replicas of a partition, as in Kafka's reassignment JSON."""

    topic: str
    partition: Annotated[int, Field(ge=0, le=200_000, strict=True)]
    replicas: Replicas = Field(description="In order of preference, preferred leader first")
    log_dirs: list[str] | None = Field(
        default=None, description="Accepted for Kafka's format, and ignored"
    )


class ReassignmentBody(BaseModel):
    """A reassignment in Kafka's JSON format, with options."""

    model_config = example(
        {
            "version": 1,
            "partitions": [{"topic": "orders", "partition": 0, "replicas": [2, 3, 1]}],
            "throttle_bytes_per_s": 50_000_000,
        }
    )

    version: Literal[1] = 1
    partitions: list[TargetBody] = Field(min_length=1, max_length=100_000)
    algorithm: ReassignmentAlgorithm = ReassignmentAlgorithm.INCREMENTAL
    throttle_bytes_per_s: tasks.Throttle = None
    retarget: bool = Field(
        default=False,
        description="Replace the targets of running reassignments, which are refused otherwise. "
        "A cancellation still reverts to the replicas before the first reassignment",
    )
    allow_replication_factor_change: bool = Field(
        default=True, description="Allow targets with more or fewer replicas (KIP-860)"
    )
    dry_run: bool = Field(default=False, description="Validate, but move nothing")


class Reassignment(PartitionItem):
    """The reassignment of one partition."""

    model_config = example(_ROW)

    task: str | None = Field(description="null if the intent was written directly into ZooKeeper")
    algorithm: ReassignmentAlgorithm
    start: list[int] = Field(
        description="The replicas before the reassignment, to which a cancellation reverts"
    )
    current: list[int] = Field(description="The replicas without those that are being added")
    target: list[int]
    adding: list[int] = Field(description="Replicas that the current step adds")
    removing: list[int] = Field(description="Replicas that the current step removes at its end")
    leader: int
    state: ReassignmentPhase
    reason: str | None = Field(
        description="Why the reassignment waits: `queued` (the limits on movements are reached), "
        "`leader_limit`, `catching_up`, `target_offline`, `partition_offline`"
    )
    waiting_for: list[int] = Field(description="The brokers for which it waits")
    bytes_left: int = Field(description="Bytes still to be copied to the replicas being added")
    cancelled: bool = Field(description="True if it is reverting to `start`")


class BatchRow(PartitionItem):
    """A running step of one partition."""

    current: list[int]
    target: list[int] = Field(description="The replicas at the end of the step")


class LimitsBody(BaseModel):
    """The limits on movements in force; null for no limit."""

    replica_movements: int | None
    partition_movements: int | None
    leader_movements: int | None


class Reassignments(BaseModel):
    """All reassignments by topic and partition, and the running steps."""

    model_config = example({"reassignments": [_ROW], "current_batch": [_BATCH], "limits": _LIMITS})

    reassignments: list[Reassignment]
    current_batch: list[BatchRow]
    limits: LimitsBody


class CancelledReassignment(PartitionItem):
    """A partition that reverts to its replicas before the reassignment."""

    model_config = example({"topic": "orders", "partition": 0, "start": [0, 1, 2, 3, 4]})

    start: list[int]


Partition = Annotated[int, Path(ge=0, description="The partition's number", examples=[0])]
OneTopic = Annotated[str | None, Query(description="Only reassignments of this topic")]


class ReassignmentAdministration(Protocol):
    """What a controller answers about reassignments."""

    @route(
        "GET /reassignments",
        "List reassignments",
        name="list_reassignments",
        defaults={"topic": None},
    )
    async def reassignments(self, topic: OneTopic) -> Reassignments:
        """List the running reassignments of partitions, and the steps of the current batch."""

    @route(
        "POST /reassignments",
        "Start a reassignment",
        PolicyViolation,
        UnknownTopic,
        UnknownPartition,
        ReassignmentInProgress,
        status_code=202,
        response_description=CONTINUES,
        other=dry_run(tasks.TaskBody, id=None, state="accepted"),
    )
    async def reassign(self, wanted: ReassignmentBody) -> tasks.TaskBody:
        """Change the replicas of partitions in steps, without interrupting their clients.

        The request is accepted or refused as a whole. `incremental` adds and removes a few
        replicas per step, up to the limits `reassignment.max.concurrent.*.movements` at
        that time; `legacy` adds all of them, then removes all. A partition that already has
        its target replicas is done at once.
        """

    @route(
        "DELETE /reassignments/{topic}/{partition}",
        "Cancel the reassignment of a partition",
        NotFound,
        status_code=202,
        response_description="Accepted, and durable: the partition reverts to its start replicas",
    )
    async def cancel_reassignment(
        self, topic: TopicName, partition: Partition
    ) -> CancelledReassignment:
        """Revert a partition to its replicas before the reassignment.

        Replicas that are being added are removed at once; removed replicas are added again
        in steps. The task continues with its other partitions.
        """
