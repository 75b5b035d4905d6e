"""Task routes: list, throttle and cancel tasks."""

from __future__ import annotations

import msgspec

from leadline_common.api.tasks import TaskBody, TaskChange, TaskPartitions, TasksBody
from leadline_common.tasks import TaskState
from leadline_controller.domain.reassignment.waits import describe_waits
from leadline_controller.runtime.active_controller import ActiveController
from leadline_controller.runtime.reassignment.events import CancelTask, ThrottleTask
from leadline_controller.runtime.reassignment.task_store import ReassignmentTask
from leadline_controller.runtime.service import ControllerService


class TaskEndpoints:
    """Implements `leadline_common.api.tasks.TaskAdministration`."""

    _controller: ControllerService

    def tasks(self) -> TasksBody:
        """Return all tasks."""
        active = self._controller.active_controller()
        return TasksBody(tasks=[task_view(active, task) for task in active.tasks.store])

    def task(self, task_id: str) -> TaskBody:
        """Return one task."""
        return find_task(self._controller, task_id)

    async def change_task(self, task_id: str, change: TaskChange) -> TaskBody:
        """Change a task's throttle."""
        rate = change.throttle_bytes_per_s
        await self._controller.ask(ThrottleTask(task_id, rate))
        return self.task(task_id)

    async def cancel_task(self, task_id: str) -> TaskBody:
        """Cancel a task: return its unfinished partitions to their start replicas."""
        await self._controller.ask(CancelTask(task=task_id))
        return self.task(task_id)


def waits_for(active: ActiveController, task: ReassignmentTask) -> str | None:
    """Return what a task waits for, or None if it goes on or is over."""
    node, queue = task.node, active.reassignments
    if node.state is TaskState.PREPARING:
        return active.drains.waits_for(task) or active.healing.chunk_waits_for(task)
    if node.state is TaskState.ACCEPTED:
        return "the controller's own tasks before it" if active.tasks.must_queue(task) else None
    if not node.state.is_running:
        return None
    queue.refresh(active.image, active.agent.limits)
    entries = [entry for one in queue.of_task(task.id) if (entry := queue.get(one)) is not None]
    return describe_waits(entries, queue.blocked_by_leader_limit(active.agent.limits))


def find_task(controller: ControllerService, task_id: str) -> TaskBody:
    """Return a task.

    Raises:
        NotFound: the task does not exist.

    """
    active = controller.active_controller()
    return task_view(active, active.tasks.store.find(task_id))


def task_view(active: ActiveController, task: ReassignmentTask) -> TaskBody:
    """Return the API model of a task with its progress."""
    node, counts = task.node, active.tasks.count(task)
    now_ms = active.context.clock.monotonic_ms()
    remaining = active.progress.bytes_left(task.id)
    is_over, allotted = node.state.is_over, active.throttles.of_task(task.id)
    return TaskBody(
        id=task.id,
        kind=node.kind,
        state=node.state,
        algorithm=node.algorithm,
        throttle_bytes_per_s=node.throttle_bytes_per_s,
        allotted_bytes_per_s=allotted.bytes_per_s,
        bound_by=allotted.bound_by,
        partitions=TaskPartitions(**msgspec.structs.asdict(counts)),
        bytes_left=remaining.left,
        bytes_total=remaining.total,
        rate_bytes_per_s=active.progress.rate(task.id, now_ms),
        eta_ms=None if is_over else active.progress.eta_ms(task.id, counts.waiting, now_ms),
        is_auto_generated=node.is_auto_generated,
        actor=node.actor,
        cause=node.cause,
        reason=node.reason,
        waits_for=waits_for(active, task),
        created_at_ms=node.created_at,
        finished_at_ms=node.finished_at or None,
        details=dict(node.details),
    )
