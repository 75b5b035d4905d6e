"""Tasks: durable long operations with their progress and throttle."""

from __future__ import annotations

from typing import Annotated, Any, Protocol

from fastapi import APIRouter, Depends, Path
from pydantic import BaseModel, Field

from leadline_client.errors import NotFound, TaskIsOver
from leadline_common.api.models import example
from leadline_common.api.routes import get_administration, read_errors, write_errors
from leadline_common.reassignments import ReassignmentAlgorithm
from leadline_common.tasks import TaskState

TAG = "tasks"
TAGS = ({"name": TAG, "description": "Long operations, which survive controller failures."},)

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
    """The numbers of a task's partitions by state."""

    total: int
    done: int = Field(description="Partitions that have reached their targets")
    failed: int = Field(description="Partitions that were cancelled, retargeted or deleted")
    moving: int = Field(description="Partitions in a running step")
    waiting: int = Field(description="Partitions that wait for their next step")


class TaskBody(BaseModel):
    """A long operation. Its byte counts cover the replicas that are moving now."""

    model_config = example(EXAMPLE)

    id: str | None = Field(description="null on a dry run")
    kind: str = Field(description="`reassign`, `drain`, …")
    state: TaskState
    algorithm: ReassignmentAlgorithm
    throttle_bytes_per_s: int | None = Field(
        description="The rate at which each broker may send, and receive, moving replicas"
    )
    partitions: TaskPartitions
    bytes_left: int
    bytes_total: int
    rate_bytes_per_s: int = Field(description="The mean of the last ten seconds")
    eta_ms: int | None = Field(description="The estimated time left; null while unknown")
    is_auto_generated: bool = Field(description="True if a controller created the task itself")
    actor: str
    cause: str
    reason: str
    created_at_ms: int
    finished_at_ms: int | None
    details: dict[str, Any]
    dry_run: bool = False


class TasksBody(BaseModel):
    """Running tasks and the latest finished ones, in the order of their requests."""

    model_config = example({"tasks": [EXAMPLE]})

    tasks: list[TaskBody]


class TaskChange(BaseModel):
    """A change of a task."""

    model_config = example({"throttle_bytes_per_s": 20_000_000})

    throttle_bytes_per_s: Rate | None = Field(description="null removes the throttle")


class TaskAdministration(Protocol):
    """What a controller answers about tasks."""

    def tasks(self) -> TasksBody:
        """Return all tasks."""

    def task(self, task_id: str) -> TaskBody:
        """Return one task."""

    async def change_task(self, task_id: str, change: TaskChange) -> TaskBody:
        """Change a task's throttle."""

    async def cancel_task(self, task_id: str) -> TaskBody:
        """Cancel a task: revert unfinished moves, and start no more of them."""


Controller = Annotated[TaskAdministration, Depends(get_administration)]


def add_routes(router: APIRouter) -> None:
    """Add the routes of tasks."""

    @router.get("/tasks", tags=[TAG], summary="List tasks", responses=read_errors())
    async def list_tasks(controller: Controller) -> TasksBody:
        """List the running tasks and the latest finished ones."""
        return controller.tasks()

    @router.get(
        "/tasks/{task_id}",
        tags=[TAG],
        summary="Get a task",
        responses=read_errors(NotFound),
    )
    async def read_task(controller: Controller, task_id: TaskId) -> TaskBody:
        """Return the progress of a task: partitions, bytes, rate, and estimated time left."""
        return controller.task(task_id)

    @router.patch(
        "/tasks/{task_id}",
        tags=[TAG],
        summary="Change a task's throttle",
        responses=write_errors(NotFound, TaskIsOver),
    )
    async def change_task(controller: Controller, task_id: TaskId, body: TaskChange) -> TaskBody:
        """Set or remove the throttle of a running task.

        Each broker receives it with the response to its next heartbeat. If several tasks
        run, the lowest throttle applies to all of them. The throttle ends with the task,
        also after a controller failover.
        """
        return await controller.change_task(task_id, body)

    @router.delete(
        "/tasks/{task_id}",
        tags=[TAG],
        summary="Cancel a task",
        status_code=202,
        response_description="Accepted, and durable: unfinished moves are reverted",
        responses=write_errors(NotFound, TaskIsOver),
    )
    async def cancel_task(controller: Controller, task_id: TaskId) -> TaskBody:
        """Cancel the rest of a task.

        Partitions that are being reassigned revert to their start replicas; those that have
        reached their targets keep them.
        """
        return await controller.cancel_task(task_id)
