"""Reassignments: giving partitions other replicas while they are in use (KIP-435, KIP-455)."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Protocol

from fastapi import APIRouter, Depends, Path, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from leadline_client.errors import (
    ConnectionLost,
    NoController,
    NotFound,
    PolicyViolation,
    ReassignmentInProgress,
    StoreOutcomeUnknown,
    UnknownPartition,
    UnknownTopic,
)
from leadline_common.api import tasks
from leadline_common.api.models import Replicas, example
from leadline_common.api.routes import TopicName, also, answering_administration
from leadline_common.http.errors import error_responses
from leadline_common.reassignments import ReassignmentAlgorithm, ReassignmentPhase

TAG = "reassignments"
TAGS = ({"name": TAG, "description": "Giving partitions other replicas while they are in use."},)

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
_REQUEST = {
    "version": 1,
    "partitions": [{"topic": "orders", "partition": 0, "replicas": [2, 3, 1]}],
    "throttle_bytes_per_s": 50_000_000,
}
_CANCELLED = {"topic": "orders", "partition": 0, "start": [0, 1, 2, 3, 4]}


class TargetBody(BaseModel):
    """Where the replicas of a partition are to be, as in Kafka's reassignment JSON."""

    model_config = ConfigDict(extra="forbid")

    topic: str
    partition: Annotated[int, Field(ge=0, le=200_000, strict=True)]
    replicas: Replicas = Field(description="In order of preference: the first is to lead")
    log_dirs: list[str] | None = Field(
        default=None, description="Kafka's; a broker has one directory here, so it says nothing"
    )


class ReassignmentBody(BaseModel):
    """Kafka's reassignment JSON, and how to go about it."""

    model_config = example(_REQUEST)

    version: Literal[1] = 1
    partitions: list[TargetBody] = Field(min_length=1, max_length=100_000)
    algorithm: ReassignmentAlgorithm = ReassignmentAlgorithm.INCREMENTAL
    throttle_bytes_per_s: tasks.Rate | None = Field(
        default=None,
        description="What each broker may send, and receive, for moving replicas; null: no limit",
    )
    retarget: bool = Field(
        default=False,
        description="Give partitions that are being reassigned already the new target; without "
        "it they are refused. A cancellation still goes back to where the first one began",
    )
    allow_replication_factor_change: bool = Field(
        default=True, description="Whether a target may have more or fewer replicas (KIP-860)"
    )
    dry_run: bool = Field(default=False, description="Only check; move nothing")


class Reassignment(BaseModel):
    """The reassignment of one partition."""

    model_config = example(_ROW)

    topic: str
    partition: int
    task: str | None = Field(description="null where the intent was written into ZooKeeper")
    algorithm: ReassignmentAlgorithm
    start: list[int] = Field(description="The replicas before it; a cancellation goes back to them")
    current: list[int] = Field(description="The replicas without those that are still being added")
    target: list[int]
    adding: list[int] = Field(description="What the step under way adds")
    removing: list[int] = Field(description="What the step under way removes when it ends")
    leader: int
    state: ReassignmentPhase
    reason: str | None = Field(
        description="Why it does not go on by itself: `queued` (the limits on movements are "
        "reached), `leader_limit`, `catching_up`, `target_offline`, `partition_offline`"
    )
    waiting_for: list[int] = Field(description="The brokers that are waited for")
    bytes_left: int = Field(description="To be copied to the replicas that are being added")
    cancelled: bool = Field(description="Whether it is on its way back")


class BatchRow(BaseModel):
    """A step under way: from which replicas to which."""

    topic: str
    partition: int
    current: list[int]
    target: list[int] = Field(description="When the step ends")


class Limits(BaseModel):
    """The limits on movements in force; null is none."""

    replica_movements: int | None
    partition_movements: int | None
    leader_movements: int | None


class Reassignments(BaseModel):
    """All reassignments by topic and partition, and the steps under way."""

    model_config = example({"reassignments": [_ROW], "current_batch": [_BATCH], "limits": _LIMITS})

    reassignments: list[Reassignment]
    current_batch: list[BatchRow]
    limits: Limits


class CancelledReassignment(BaseModel):
    """A partition that goes back to where it was."""

    model_config = example(_CANCELLED)

    topic: str
    partition: int
    start: list[int]


class ReassignmentAdministration(Protocol):
    """What a controller answers about reassignments."""

    def reassignments(self, topic: str | None) -> Reassignments:
        """Return the reassignments, all or of one topic."""

    async def reassign(self, wanted: ReassignmentBody) -> tasks.Task:
        """Accept a reassignment, or with `dry_run` only check it."""

    async def cancel_reassignment(self, topic: str, partition: int) -> CancelledReassignment:
        """Send one partition back."""


Answering = Annotated[ReassignmentAdministration, Depends(answering_administration)]
Partition = Annotated[int, Path(ge=0, description="The partition's number", examples=[0])]
OneTopic = Annotated[str | None, Query(description="Only those of this topic")]

_DRY_RUN = tasks.Task.model_validate(
    tasks.EXAMPLE | {"id": None, "state": "accepted", "dry_run": True}
)


def add_routes(router: APIRouter) -> None:
    """Add the routes."""
    _add_reading(router)
    _add_starting(router)
    _add_cancelling(router)


def _add_reading(router: APIRouter) -> None:
    @router.get(
        "/reassignments",
        tags=[TAG],
        summary="The reassignments under way",
        responses=error_responses(NoController),
    )
    async def list_reassignments(answering: Answering, topic: OneTopic = None) -> Reassignments:
        """List partitions that are on their way, and which of them are in a step right now."""
        return answering.reassignments(topic)


def _add_starting(router: APIRouter) -> None:
    answers: dict[int | str, dict[str, Any]] = also(
        200, tasks.Task, "What a dry run would begin", _DRY_RUN
    )

    @router.post(
        "/reassignments",
        tags=[TAG],
        summary="Reassign partitions",
        status_code=202,
        response_description="Durable: it is carried out, whatever happens to this controller",
        responses=answers
        | error_responses(
            NoController,
            PolicyViolation,
            UnknownTopic,
            UnknownPartition,
            ReassignmentInProgress,
            StoreOutcomeUnknown,
            ConnectionLost,
        ),
    )
    async def reassign(
        answering: Answering, body: ReassignmentBody, response: Response
    ) -> tasks.Task:
        """Give partitions other replicas, a few at a time, without a pause for their clients.

        The whole request is accepted, or refused and nothing begins. `incremental`
        adds and drops a few replicas per step, as the settings
        `reassignment.max.concurrent.*.movements` say at each step; `legacy` adds all
        and then drops all. A partition that is at its target already is done at once.
        """
        accepted = await answering.reassign(body)
        if accepted.dry_run:
            response.status_code = 200
        return accepted


def _add_cancelling(router: APIRouter) -> None:
    @router.delete(
        "/reassignments/{topic}/{partition}",
        tags=[TAG],
        summary="Cancel one partition's reassignment",
        status_code=202,
        response_description="Durable: the partition goes back to its start list",
        responses=error_responses(NoController, NotFound, StoreOutcomeUnknown, ConnectionLost),
    )
    async def cancel_reassignment(
        answering: Answering, topic: TopicName, partition: Partition
    ) -> CancelledReassignment:
        """Send a partition back to the replicas that it had before; its task goes on with others.

        What is being added and not wanted then is dropped at once; what was dropped
        is added again, step by step.
        """
        return await answering.cancel_reassignment(topic, partition)
