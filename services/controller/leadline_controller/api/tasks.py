"""Tasks: from bodies to the runtime, and from what it knows to bodies."""

from __future__ import annotations

from leadline_common.api.tasks import Task, TaskChange, TaskPartitions, Tasks
from leadline_controller.api.answers import Answers
from leadline_controller.runtime.active_controller import ActiveController
from leadline_controller.runtime.reassignment.events import CancelTask, ThrottleTask
from leadline_controller.runtime.reassignment.task_store import ReassignmentTask


class TaskAnswers(Answers):
    """Answers `leadline_common.api.tasks.TaskAdministration`."""

    def tasks(self) -> Tasks:
        """Return all tasks."""
        active = self._controller.active_controller()
        return Tasks(tasks=[task_view(active, task) for task in active.tasks.store])

    def task(self, task_id: str) -> Task:
        """Return one task."""
        active = self._controller.active_controller()
        return task_view(active, active.tasks.store.find(task_id))

    async def change_task(self, task_id: str, change: TaskChange) -> Task:
        """Change a task's throttle."""
        rate = change.throttle_bytes_per_s
        await self._controller.ask(ThrottleTask(task_id, rate))
        return self.task(task_id)

    async def cancel_task(self, task_id: str) -> Task:
        """Send back what a task has moved, and begin nothing more of it."""
        await self._controller.ask(CancelTask(task_id))
        return self.task(task_id)


def task_view(active: ActiveController, task: ReassignmentTask) -> Task:
    """Show a task, and how far it is."""
    node, counts = task.node, active.tasks.count(task)
    now_ms = active.context.clock.monotonic_ms()
    left = active.progress.bytes_left(task.id)
    is_over = node.state.is_over
    return Task(
        id=task.id,
        kind=node.kind,
        state=node.state,
        algorithm=node.algorithm,
        throttle_bytes_per_s=node.throttle_bytes_per_s,
        partitions=TaskPartitions(
            total=counts.total,
            done=counts.done,
            failed=counts.failed,
            moving=counts.moving,
            waiting=counts.waiting,
        ),
        bytes_left=left.left,
        bytes_total=left.total,
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
