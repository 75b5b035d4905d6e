"""Task routes: list, throttle and cancel tasks."""

from __future__ import annotations

import msgspec

from leadline_common.api.tasks import TaskBody, TaskChange, TaskPartitions, TasksBody
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
    is_over = node.state.is_over
    return TaskBody(
        id=task.id,
        kind=node.kind,
        state=node.state,
        algorithm=node.algorithm,
        throttle_bytes_per_s=node.throttle_bytes_per_s,
        partitions=TaskPartitions(**msgspec.structs.asdict(counts)),
        bytes_left=remaining.left,
        bytes_total=remaining.total,
        rate_bytes_per_s=active.progress.rate(task.id, now_ms),
        eta_ms=None if is_over else active.progress.eta_ms(task.id, counts.waiting, now_ms),
        is_auto_generated=node.is_auto_generated,
        actor=node.actor,
        cause=node.cause,
        reason=node.reason,
        created_at_ms=node.created_at,
        finished_at_ms=node.finished_at or None,
        details=dict(node.details),
    )
