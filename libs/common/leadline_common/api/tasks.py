"""Tasks: durable long operations with their progress and throttle."""

from __future__ import annotations

from typing import Annotated, Any, Protocol

from fastapi import Path
from pydantic import BaseModel, Field

from leadline_client.errors import NotFound, TaskIsOver
from leadline_common.api.models import example
from leadline_common.api.routes import route
from leadline_common.reassignments import ReassignmentAlgorithm, ThrottleBound
from leadline_common.tasks import TaskState

TAG = "tasks"

EXAMPLE: dict[str, Any] = {
    "id": "0000000007",
    "kind": "reassign",
    "state": "running",
    "algorithm": "incremental",
    "throttle_bytes_per_s": 50_000_000,
    "allotted_bytes_per_s": 40_000_000,
    "bound_by": "cluster_ceiling",
    "partitions": {"total": 12, "done": 4, "failed": 0, "moving": 2, "waiting": 6},
    "bytes_left": 731_906_048,
    "bytes_total": 1_073_741_824,
    "rate_bytes_per_s": 48_720_113,
    "eta_ms": 94_000,
    "is_auto_generated": False,
    "actor": "operator",
    "cause": "0f9a6d2c41be",
    "reason": "",
    "waits_for": "6 partition(s) (orders-4, orders-5, orders-6, …) for "
    "reassignment.max.concurrent.partition.movements",
    "created_at_ms": 1_767_225_600_000,
    "finished_at_ms": None,
    "details": {},
    "dry_run": False,
}

TaskId = Annotated[
    str, Path(description="The task's id", examples=["0000000007"], min_length=1, max_length=255)
]
Rate = Annotated[int, Field(ge=1, le=2**53, strict=True)]
Throttle = Annotated[
    Rate | None,
    Field(
        description="The rate at which each broker may send, and receive, moving replicas; null "
        "for no limit"
    ),
]


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
        description="Its own throttle: the rate at which each broker may send, and receive, its "
        "moving replicas; null for none"
    )
    allotted_bytes_per_s: int | None = Field(
        default=None,
        description="The rate that it has on the broker where it is slowest, under the ceilings "
        "that it shares with other tasks; null for no limit, or while it moves nothing",
    )
    bound_by: ThrottleBound | None = Field(
        default=None, description="What limits that rate; null if nothing does"
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
    waits_for: str | None = Field(
        default=None, description="What it waits for; null if it goes on, or is over"
    )
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


class TaskAdministration(Protocol):
    """What a controller answers about tasks."""

    @route("GET /tasks", "List tasks", name="list_tasks")
    def tasks(self) -> TasksBody:
        """List the running tasks and the latest finished ones."""

    @route("GET /tasks/{task_id}", "Get a task", NotFound, name="read_task")
    def task(self, task_id: TaskId) -> TaskBody:
        """Return the progress of a task: partitions, bytes, rate, and estimated time left."""

    @route("PATCH /tasks/{task_id}", "Change a task's throttle", NotFound, TaskIsOver)
    async def change_task(self, task_id: TaskId, change: TaskChange) -> TaskBody:
        """Set or remove the throttle of a running task.

        Each broker receives it with the response to its next heartbeat. It applies to the
        replicas of this task; all tasks together also stay below
        `reassignment.throttle.bytes.per.s`. The throttle ends with the task, also after a
        controller failover.
        """

    @route(
        "DELETE /tasks/{task_id}",
        "Cancel a task",
        NotFound,
        TaskIsOver,
        status_code=202,
        response_description="Accepted, and durable: unfinished moves are reverted",
    )
    async def cancel_task(self, task_id: TaskId) -> TaskBody:
        """Cancel the rest of a task.

        Partitions that are being reassigned revert to their start replicas; those that have
        reached their targets keep them.
        """
