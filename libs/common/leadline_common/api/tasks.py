"""Long work, as durable tasks: how far it is, how fast it may be, and how to stop it."""

from __future__ import annotations

from typing import Annotated, Any, Protocol

from fastapi import APIRouter, Depends, Path
from pydantic import BaseModel, Field

from leadline_client.errors import (
    ConnectionLost,
    NoController,
    NotFound,
    StoreOutcomeUnknown,
    TaskIsOver,
)
from leadline_common.api.models import example
from leadline_common.api.routes import answering_administration
from leadline_common.http.errors import error_responses
from leadline_common.reassignments import ReassignmentAlgorithm
from leadline_common.tasks import TaskState

TAG = "tasks"
TAGS = ({"name": TAG, "description": "Long work that survives the controller that began it."},)

EXAMPLE: dict[str, Any] = {
    "id": "0000000007",
    "kind": "reassign",
    "state": "running",
    "algorithm": "incremental",
    "throttle_bytes_per_s": 50_000_000,
    "partitions": {"total": 12, "done": 4, "failed": 0, "moving": 2, "waiting": 6},
    "bytes_left": 731_906_048,
    "bytes_total": 1_073_741_824,
    "rate_bytes_per_s": 48_720_113,
    "eta_ms": 94_000,
    "is_auto_generated": False,
    "actor": "operator",
    "cause": "0f9a6d2c41be",
    "reason": "",
    "created_at_ms": 1_767_225_600_000,
    "finished_at_ms": None,
    "details": {},
    "dry_run": False,
}

TaskId = Annotated[
    str, Path(description="The task's id", examples=["0000000007"], min_length=1, max_length=255)
]
Rate = Annotated[int, Field(ge=1, le=2**53, strict=True)]


class TaskPartitions(BaseModel):
    """A task's partitions by how far they are."""

    total: int
    done: int = Field(description="At their targets")
    failed: int = Field(description="Cancelled, given another target later, or gone")
    moving: int = Field(description="In a step right now")
    waiting: int = Field(description="To be done, and not in a step")


class Task(BaseModel):
    """Long work that somebody asked for. Sizes are of the replicas that move right now."""

    model_config = example(EXAMPLE)

    id: str | None = Field(description="null on a dry run")
    kind: str = Field(description="`reassign`, or what else the work is part of")
    state: TaskState
    algorithm: ReassignmentAlgorithm
    throttle_bytes_per_s: int | None = Field(
        description="What each broker may send, and receive, for moving replicas"
    )
    partitions: TaskPartitions
    bytes_left: int
    bytes_total: int
    rate_bytes_per_s: int = Field(description="Over the last ten seconds")
    eta_ms: int | None = Field(description="An estimate; null while there is nothing to go by")
    is_auto_generated: bool = Field(description="Whether a controller asked for it by itself")
    actor: str
    cause: str
    reason: str
    created_at_ms: int
    finished_at_ms: int | None
    details: dict[str, Any]
    dry_run: bool = False


class Tasks(BaseModel):
    """Tasks in the order of their requests; of those that are over, the latest."""

    model_config = example({"tasks": [EXAMPLE]})

    tasks: list[Task]


class TaskChange(BaseModel):
    """What is to change of a task."""

    model_config = example({"throttle_bytes_per_s": 20_000_000})

    throttle_bytes_per_s: Rate | None = Field(description="null lifts the throttle")


class TaskAdministration(Protocol):
    """What a controller answers about tasks."""

    def tasks(self) -> Tasks:
        """Return all tasks."""

    def task(self, task_id: str) -> Task:
        """Return one task."""

    async def change_task(self, task_id: str, change: TaskChange) -> Task:
        """Change a task's throttle."""

    async def cancel_task(self, task_id: str) -> Task:
        """Send back what a task has moved, and begin nothing more of it."""


Answering = Annotated[TaskAdministration, Depends(answering_administration)]
_CHANGE_ERRORS = error_responses(
    NoController, NotFound, TaskIsOver, StoreOutcomeUnknown, ConnectionLost
)


def add_routes(router: APIRouter) -> None:
    """Add the routes."""
    _add_reading(router)
    _add_changing(router)


def _add_reading(router: APIRouter) -> None:
    @router.get("/tasks", tags=[TAG], summary="All tasks", responses=error_responses(NoController))
    async def list_tasks(answering: Answering) -> Tasks:
        """List the tasks that are under way, and the latest of those that are over."""
        return answering.tasks()

    @router.get(
        "/tasks/{task_id}",
        tags=[TAG],
        summary="One task",
        responses=error_responses(NoController, NotFound),
    )
    async def read_task(answering: Answering, task_id: TaskId) -> Task:
        """Read how far a task is: partitions, bytes, rate, and when it should be over."""
        return answering.task(task_id)


def _add_changing(router: APIRouter) -> None:
    @router.patch(
        "/tasks/{task_id}",
        tags=[TAG],
        summary="Change a task's throttle",
        responses=_CHANGE_ERRORS,
    )
    async def change_task(answering: Answering, task_id: TaskId, body: TaskChange) -> Task:
        """Set or lift the throttle while the task runs.

        Each broker hears of it with the answer to its next heartbeat. Where several
        tasks run, the lowest throttle holds for all. It goes with the task, however that
        ends, and whichever controller then rules.
        """
        return await answering.change_task(task_id, body)

    @router.delete(
        "/tasks/{task_id}",
        tags=[TAG],
        summary="Cancel a task",
        status_code=202,
        response_description="Durable: what is half-way goes back, nothing more begins",
        responses=_CHANGE_ERRORS,
    )
    async def cancel_task(answering: Answering, task_id: TaskId) -> Task:
        """Cancel what is left of a task.

        Partitions on their way go back to their start lists; those that have arrived stay.
        """
        return await answering.cancel_task(task_id)
