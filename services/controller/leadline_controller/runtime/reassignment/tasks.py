"""Tasks: accepted in one write, turned into intents, and executed to the end by any controller.

Every reassignment begins as a task: operators send requests, other handlers of the
controller call `submit`, `prepare` and `launch`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import structlog

from leadline_client.errors import LeadlineError, PolicyViolation
from leadline_client.wire import TopicPartition
from leadline_common.access.caller import current_actor
from leadline_common.cause import current_cause
from leadline_common.clock import Clock
from leadline_common.tasks import Intent, TargetRow, TaskNode, TaskOutcome, TaskState
from leadline_common.zk.errors import MultiFailed, RequestTooLarge
from leadline_controller.domain.cluster import ClusterImage
from leadline_controller.domain.reassignment.requests import (
    Submission,
    check_idle,
    check_submission,
    current_replicas,
)
from leadline_controller.runtime.engine.event_queue import EventHandler, EventQueue
from leadline_controller.runtime.engine.events import Reply
from leadline_controller.runtime.reassignment.agent import RETRY_PAUSE_S, ReassignmentAgent
from leadline_controller.runtime.reassignment.events import (
    CancelTask,
    SubmitReassignment,
    TasksDue,
    ThrottleTask,
)
from leadline_controller.runtime.reassignment.task_store import ReassignmentTask, TaskStore
from leadline_controller.runtime.reassignment.throttles import HEAL

logger = structlog.get_logger(__name__)


class TaskCounts(msgspec.Struct, frozen=True):
    """A task's partitions by progress; `failed` ones will not reach their targets."""

    total: int
    done: int
    failed: int
    moving: int
    waiting: int


@dataclass(eq=False)
class TaskManager(EventHandler):
    """Handles tasks; `size_of` returns the bytes that a task has moved."""

    store: TaskStore
    image: ClusterImage
    queue: EventQueue
    clock: Clock
    agent: ReassignmentAgent
    brokers_ever: Callable[[], Awaitable[frozenset[int]]]
    size_of: Callable[[str], int]
    _is_retrying: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._reassignments = self.agent.reassignments
        trigger_after_event = self.queue.after_event(self._trigger_if_due)
        self._reassignments.subscribe(trigger_after_event)
        self.store.subscribe(trigger_after_event)

    async def on_elected(self) -> None:
        """Go on with every task that is not over."""
        await self.reconcile()

    async def reconcile(self) -> None:
        """Read the tasks, and go on with them."""
        await self.store.read(everything=True)
        await self._advance_all()

    def _trigger_if_due(self) -> None:
        if not self._is_retrying and any(map(self._is_due, self.store)):
            self.queue.trigger(TasksDue)

    # -- called by other handlers ----------------------------------------------

    async def submit(self, wanted: Submission) -> ReassignmentTask:
        """Check and accept a reassignment, and begin it.

        Raises:
            Refused: as `check_submission` and `check_idle` do; nothing was written.

        """
        await self.check(wanted)
        task = await self._create(self._node(wanted, TaskState.ACCEPTED))
        await self._advance_all()
        return task

    async def prepare(self, wanted: Submission) -> ReassignmentTask:
        """Accept a task whose partitions are given later, to `launch`."""
        return await self._create(self._node(wanted, TaskState.PREPARING))

    async def launch(self, task: ReassignmentTask, wanted: Submission) -> None:
        """Set the partitions of a task that is `preparing`, and begin it.

        Raises:
            Refused: as for `submit`.

        """
        if wanted.partitions:
            await self.check(wanted)
        node = self._node(wanted, TaskState.ACCEPTED)
        await self.store.change(
            task,
            "task_launched",
            state=node.state,
            partitions=node.partitions,
            topic_ids=node.topic_ids,
            total=node.total,
            details=node.details,
        )
        await self._advance_all()

    async def note(self, task: ReassignmentTask, kind: str, details: Mapping[str, Any]) -> None:
        """Add details to a task's node."""
        await self.store.change(task, kind, details={**task.node.details, **details})

    async def cancel(self, task: ReassignmentTask, actor: str) -> None:
        """Return what a task has moved, and begin nothing more of it."""
        await self._begin_cancelling(task, actor)
        await self._advance_all()

    async def _begin_cancelling(self, task: ReassignmentTask, actor: str) -> None:
        if task.node.state is not TaskState.CANCELLING:
            state = TaskState.CANCELLING
            await self.store.change(task, "task_cancelled", actor=actor, state=state)

    async def check(self, wanted: Submission) -> None:
        """Refuse what cannot be done.

        Raises:
            Refused: as `check_submission` and `check_idle` do.

        """
        check_submission(wanted, self.image, await self.brokers_ever())
        check_idle(wanted, self._reassignments)

    # -- counting --------------------------------------------------------------

    def count(self, task: ReassignmentTask) -> TaskCounts:
        """Count a task's partitions by progress."""
        outcome = task.node.outcome if task.node.state.is_over else self._outcome(task)
        entries = map(self._reassignments.get, self._reassignments.of_task(task.id))
        moving = sum(entry is not None and entry.is_running for entry in entries)
        failed = outcome.cancelled + outcome.superseded + outcome.gone
        total = task.node.total
        if task.node.state in (TaskState.PREPARING, TaskState.ACCEPTED):
            return TaskCounts(total, 0, 0, 0, total)
        return TaskCounts(
            total, outcome.done, failed, moving, total - outcome.done - failed - moving
        )

    # -- requests --------------------------------------------------------------

    @SubmitReassignment.handler
    async def on_submit(self, event: SubmitReassignment, reply: Reply[str]) -> None:
        """Accept a reassignment; once it is durable, no later failure refuses it."""
        await self.check(event.wanted)
        if event.dry_run:
            reply.settle("")
            return
        task = await self._create(self._node(event.wanted, TaskState.ACCEPTED))
        try:
            await self._advance_all()
        finally:
            reply.settle(task.id)

    @CancelTask.handler
    async def on_cancel(self, event: CancelTask, reply: Reply[None]) -> None:
        """Cancel what is left of a task."""
        task = self.store.find_open(event.task)
        await self._begin_cancelling(task, current_actor())
        try:
            await self._advance_all()
        finally:
            reply.settle(None)

    @ThrottleTask.handler
    async def on_throttle(self, event: ThrottleTask, reply: Reply[None]) -> None:
        """Change the throttle: brokers get it with the answer to their next heartbeat."""
        task = self.store.find_open(event.task)
        await self.store.change(
            task, "task_throttled", actor=current_actor(), throttle_bytes_per_s=event.bytes_per_s
        )
        reply.settle(None)

    @TasksDue.handler
    async def on_tasks_due(self) -> None:
        """Read tasks that an operator wrote, and go on with all tasks."""
        self._is_retrying = False
        await self.store.read(everything=False)
        await self._advance_all()

    # -- the life cycle of a task ----------------------------------------------

    def _node(self, wanted: Submission, state: TaskState) -> TaskNode:
        topics = {row.topic for row in wanted.partitions}
        return TaskNode(
            partitions=wanted.partitions,
            kind=wanted.kind,
            state=state,
            is_auto_generated=wanted.is_auto_generated,
            cause=current_cause(),
            actor=wanted.actor,
            algorithm=wanted.algorithm,
            throttle_bytes_per_s=wanted.throttle_bytes_per_s,
            retarget=wanted.retarget,
            created_at=self.clock.wall_ms(),
            topic_ids={name: self.image.topics[name].topic_id for name in sorted(topics)},
            details=wanted.details,
            reason=wanted.reason,
            total=len(wanted.partitions),
        )

    async def _create(self, node: TaskNode) -> ReassignmentTask:
        try:
            return await self.store.create(node)
        except RequestTooLarge as problem:
            fits = max(1, len(node.partitions) * problem.limit // problem.size // 2)
            raise PolicyViolation(
                f"{len(node.partitions)} partitions are too many for one request, as it is kept "
                f"in one ZooKeeper node: split it into requests of at most {fits}"
            ) from None

    async def _advance_all(self) -> None:
        """Do for each task what is due."""
        for task in self.store:
            try:
                # An intent whose write had no answer may be found after its task has ended.
                if task.node.state in (TaskState.CANCELLING, TaskState.CANCELLED):
                    left = self._reassignments.of_task(task.id)
                    if not await self.agent.cancel(left):
                        self._retry_later()
                if self._is_due(task):
                    await self._advance(task)
            except (MultiFailed, RequestTooLarge) as failure:
                # It must not delay the other tasks, or an election.
                logger.error("task not advanced", task=task.id, error=str(failure))
                self._retry_later()

    def _retry_later(self) -> None:
        """Try again after a pause what ZooKeeper has refused."""
        self._is_retrying = True
        self.queue.trigger_later(RETRY_PAUSE_S, TasksDue)

    def _is_due(self, task: ReassignmentTask) -> bool:
        match task.node.state:
            case TaskState.ACCEPTED:
                return not self.must_queue(task)
            case TaskState.RUNNING | TaskState.CANCELLING:
                return not self._reassignments.has_task(task.id)
            case _:
                return False

    def must_queue(self, task: ReassignmentTask) -> bool:
        """Return whether a task waits for an earlier one: the controller's own tasks run in turn.

        A task that gives partitions another target does not wait: earlier ones depend on it. Nor
        does a chunk of self-healing, which is launched when it is its turn.
        """
        return (
            task.node.is_auto_generated
            and not task.node.retarget
            and task.node.kind != HEAL
            and any(
                other.node.is_auto_generated
                and other.number < task.number
                and not other.node.state.is_over
                for other in self.store
            )
        )

    async def _advance(self, task: ReassignmentTask) -> None:
        if task.node.state is not TaskState.ACCEPTED:
            await self._end(task)
            return
        if task.is_unchecked and (refusal := await self._refusal(task)) is not None:
            await self.store.refuse(task, refusal.message)
            return
        await self._expand(task)

    async def _refusal(self, task: ReassignmentTask) -> LeadlineError | None:
        """Return the refusal of an unchecked task, if it is invalid."""
        node = task.node
        try:
            await self.check(Submission(node.partitions, retarget=node.retarget))
        except LeadlineError as refusal:
            logger.warning("task refused", task=task.id, reason=refusal.message)
            return refusal
        return None

    async def _expand(self, task: ReassignmentTask) -> None:
        """Write the intents of a task, and then that it runs.

        Repeated after a crash, it writes the missing intents: no step is taken before all are
        written, except where a partition is at its target already.
        """
        node = msgspec.structs.replace(
            task.node,
            state=TaskState.RUNNING,
            cause=task.node.cause or current_cause(),
            created_at=task.node.created_at or self.clock.wall_ms(),
            total=len(task.node.partitions),
        )
        if not await self.agent.write_intents(self._intents_of(task), "reassignment_begun"):
            self._retry_later()
            return
        await self.store.put(task, "task_begun", node)
        if self._is_due(task):
            await self._end(task)

    def _intents_of(self, task: ReassignmentTask) -> dict[TopicPartition, Intent]:
        """Return the intents that a task still needs."""
        intents = {}
        for row in task.node.partitions:
            topic_partition = TopicPartition(row.topic, row.partition)
            current = self._current(task, topic_partition)
            known = self._reassignments.get(topic_partition)
            if current is None or (known is None and current == row.replicas):
                continue
            if known is not None and (known.intent.task == task.id or not task.node.retarget):
                continue
            intents[topic_partition] = Intent(
                target=row.replicas,
                start=known.intent.start if known is not None else current,
                task=task.id,
                algorithm=task.node.algorithm,
                topic_id=self.image.topics[row.topic].topic_id,
            )
        return intents

    def _current(
        self, task: ReassignmentTask, topic_partition: TopicPartition
    ) -> tuple[int, ...] | None:
        """Return a partition's replicas; None if its topic is not the one that was meant."""
        topic = self.image.topics.get(topic_partition.topic)
        meant = task.node.topic_ids.get(topic_partition.topic)
        if topic is None or topic.deleting or meant not in (None, topic.topic_id):
            return None
        return current_replicas(self.image, topic_partition)

    async def _end(self, task: ReassignmentTask) -> None:
        """Write the outcome of a task."""
        outcome = self._outcome(task)
        state = TaskState.DONE
        if outcome.done < max(1, task.node.total):
            is_cancelled = task.node.state is TaskState.CANCELLING
            state = TaskState.CANCELLED if is_cancelled else state
        await self.store.change(
            task,
            "task_over",
            state=state,
            finished_at=self.clock.wall_ms(),
            partitions=(),
            topic_ids={},
            outcome=msgspec.structs.replace(outcome, bytes=self.size_of(task.id)),
        )

    def _outcome(self, task: ReassignmentTask) -> TaskOutcome:
        """Count the partitions that a task has finished with, by result."""
        counts = Counter(self._result(task, row) for row in task.node.partitions)
        del counts["open"]
        return TaskOutcome(**counts)

    def _result(self, task: ReassignmentTask, row: TargetRow) -> str:
        topic_partition = TopicPartition(row.topic, row.partition)
        current = self._current(task, topic_partition)
        entry = self._reassignments.get(topic_partition)
        if entry is not None:
            return "open" if entry.intent.task == task.id else "superseded"
        if current is None:
            return "gone"
        return "done" if current == row.replicas else "cancelled"
