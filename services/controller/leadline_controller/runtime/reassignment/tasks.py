"""Tasks: accepted in one write, turned into intents, followed to their end, by any controller.

The one way into the reassignment agent: operators come here by events, other duties
of the controller by `submit`, `prepare` and `launch`, within the one queue.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from leadline_client.errors import LeadlineError, PolicyViolation
from leadline_client.wire import TopicPartition
from leadline_common.tasks import Intent, TargetRow, TaskNode, TaskOutcome, TaskState
from leadline_common.zk.errors import MultiFailed, RequestTooLarge
from leadline_controller.domain.reassignment.requests import (
    Submission,
    check_idle,
    check_submission,
    current_replicas,
)
from leadline_controller.runtime.engine import events
from leadline_controller.runtime.engine.context import EventContext
from leadline_controller.runtime.engine.handler import EventHandler, Handlers
from leadline_controller.runtime.reassignment.agent import RETRY_PAUSE_S, ReassignmentAgent
from leadline_controller.runtime.reassignment.events import (
    CancelTask,
    SubmitReassignment,
    TasksDue,
    ThrottleTask,
)
from leadline_controller.runtime.reassignment.task_store import Task, TaskStore

_log = logging.getLogger(__name__)


class Tally(msgspec.Struct, frozen=True):
    """How many of a task's partitions are how far; `failed` ones will not reach their targets."""

    total: int
    done: int
    failed: int
    moving: int
    waiting: int


class TaskManager(EventHandler):
    """The handlers of tasks."""

    def __init__(
        self, desk: EventContext, agent: ReassignmentAgent, size_of: Callable[[str], int]
    ) -> None:
        self._desk = desk
        self._size_of = size_of
        self._image = desk.image
        self._agent = agent
        self.book = TaskStore(desk, self._look_again)
        self._is_resting = False

    @property
    def handlers(self) -> Handlers:
        """Return who handles what."""
        return {
            TasksDue: self.on_due,
            SubmitReassignment: self.on_submit,
            CancelTask: self.on_cancel,
            ThrottleTask: self.on_throttle,
        }

    async def take_over(self, _cause: str) -> None:
        """Go on with every task that is not over."""
        await self.book.look(everything=True)
        await self._go_on()

    async def reconcile(self, _event: events.Reconcile) -> None:
        """Look for tasks written by hand."""
        await self.book.look(everything=True)
        await self._go_on()

    def follow_up(self) -> None:
        """Have tasks ended whose last partition has reached its target."""
        if not self._is_resting and any(map(self._is_due, self.book)):
            self._desk.hint(TasksDue)

    def _look_again(self) -> None:
        self._desk.hint(TasksDue)

    # -- from other duties -----------------------------------------------------

    async def submit(self, wanted: Submission) -> Task:
        """Check and accept a reassignment, and begin it.

        Raises:
            Refused: as `check_submission` and `check_idle` do; nothing was written.

        """
        await self.check(wanted)
        task = await self._create(self._node(wanted, TaskState.ACCEPTED))
        await self._go_on()
        return task

    async def prepare(self, wanted: Submission) -> Task:
        """Accept a task whose partitions its owner names later, by `launch`."""
        return await self._create(self._node(wanted, TaskState.PREPARING))

    async def launch(self, task: Task, wanted: Submission) -> None:
        """Name the partitions of a task that is `preparing`, and begin it.

        Raises:
            Refused: as for `submit`.

        """
        if wanted.partitions:
            await self.check(wanted)
        node = self._node(wanted, TaskState.ACCEPTED)
        await self.book.change(
            task,
            "task_launched",
            state=node.state,
            partitions=node.partitions,
            topic_ids=node.topic_ids,
            total=node.total,
            details=node.details,
        )
        await self._go_on()

    async def note(self, task: Task, kind: str, details: Mapping[str, Any]) -> None:
        """Keep something in a task's node that its owner will want to know again."""
        await self.book.change(task, kind, details={**task.node.details, **details})

    async def cancel(self, task: Task, actor: str) -> None:
        """Send back what a task has moved, and begin nothing more of it."""
        await self._begin_cancelling(task, actor)
        await self._go_on()

    async def _begin_cancelling(self, task: Task, actor: str) -> None:
        if task.node.state is not TaskState.CANCELLING:
            state = TaskState.CANCELLING
            await self.book.change(task, "task_cancelled", actor=actor, state=state)

    async def check(self, wanted: Submission) -> None:
        """Refuse what cannot be done.

        Raises:
            Refused: as `check_submission` and `check_idle` do.

        """
        registered = await self._desk.office.store.brokers_ever()
        check_submission(wanted, self._image, registered)
        check_idle(wanted, self._agent.agenda)

    # -- to be looked at -------------------------------------------------------

    def tally(self, task: Task) -> Tally:
        """Count a task's partitions by how far they are."""
        outcome = task.node.outcome if task.node.state.is_over else self._outcome(task)
        agenda = self._agent.agenda
        entries = [entry for name in agenda.of_task(task.id) if (entry := agenda.get(name))]
        moving = sum(entry.is_running for entry in entries)
        failed = outcome.cancelled + outcome.superseded + outcome.gone
        total = task.node.total
        if task.node.state in (TaskState.PREPARING, TaskState.ACCEPTED):
            return Tally(total, 0, 0, 0, total)
        return Tally(total, outcome.done, failed, moving, total - outcome.done - failed - moving)

    # -- from operators --------------------------------------------------------

    async def on_submit(self, event: SubmitReassignment) -> None:
        """Accept a reassignment; once it is durable, nothing that fails can refuse it."""
        await self.check(event.wanted)
        if event.dry_run:
            event.settle("")
            return
        task = await self._create(self._node(event.wanted, TaskState.ACCEPTED))
        try:
            await self._go_on()
        finally:
            event.settle(task.id)

    async def on_cancel(self, event: CancelTask) -> None:
        """Cancel what is left of a task."""
        task = self.book.find_open(event.task)
        await self._begin_cancelling(task, "operator")
        try:
            await self._go_on()
        finally:
            event.settle(None)

    async def on_throttle(self, event: ThrottleTask) -> None:
        """Change the throttle: brokers hear of it with the answers to their next heartbeats."""
        task = self.book.find_open(event.task)
        await self.book.change(
            task, "task_throttled", actor="operator", throttle_bytes_per_s=event.bytes_per_s
        )
        event.settle(None)

    async def on_due(self, _event: TasksDue) -> None:
        """Look for tasks written by hand, and go on with all."""
        self._is_resting = False
        await self.book.look(everything=False)
        await self._go_on()

    # -- the life of a task ----------------------------------------------------

    def _node(self, wanted: Submission, state: TaskState) -> TaskNode:
        topics = {row.topic for row in wanted.partitions}
        return TaskNode(
            partitions=wanted.partitions,
            kind=wanted.kind,
            state=state,
            is_auto_generated=wanted.is_auto_generated,
            cause=self._desk.cause,
            actor=wanted.actor,
            algorithm=wanted.algorithm,
            throttle_bytes_per_s=wanted.throttle_bytes_per_s,
            retarget=wanted.retarget,
            created_at=self._desk.office.clock.wall_ms(),
            topic_ids={name: self._image.topics[name].topic_id for name in sorted(topics)},
            details=wanted.details,
            reason=wanted.reason,
            total=len(wanted.partitions),
        )

    async def _create(self, node: TaskNode) -> Task:
        try:
            return await self.book.create(node)
        except RequestTooLarge as problem:
            fits = max(1, len(node.partitions) * problem.limit // problem.size // 2)
            raise PolicyViolation(
                f"{len(node.partitions)} partitions are too many for one request, as it is kept "
                f"in one ZooKeeper node: split it into requests of at most {fits}"
            ) from None

    async def _go_on(self) -> None:
        """Do for each task what is due."""
        for task in self.book:
            try:
                if task.node.state is TaskState.CANCELLING:
                    left = self._agent.agenda.of_task(task.id)
                    if not await self._agent.cancel(left):
                        self._rest()
                if self._is_due(task):
                    await self._advance(task)
            except (MultiFailed, RequestTooLarge) as failure:
                # No reason to hold up the others, or a take-over.
                _log.error("task %s cannot go on: %s", task.id, failure)
                self._rest()

    def _rest(self) -> None:
        """Try again after a pause what ZooKeeper has refused."""
        self._is_resting = True
        self._agent.hint_in(RETRY_PAUSE_S, TasksDue)

    def _is_due(self, task: Task) -> bool:
        match task.node.state:
            case TaskState.ACCEPTED:
                return not self._must_queue(task)
            case TaskState.RUNNING | TaskState.CANCELLING:
                return not self._agent.agenda.has_task(task.id)
            case _:
                return False

    def _must_queue(self, task: Task) -> bool:
        """Tell whether a task waits for one before it: those of the controller run in a row.

        One that gives partitions another target overtakes: the others wait for it.
        """
        return (
            task.node.is_auto_generated
            and not task.node.retarget
            and any(
                other.node.is_auto_generated
                and other.number < task.number
                and not other.node.state.is_over
                for other in self.book
            )
        )

    async def _advance(self, task: Task) -> None:
        if task.node.state is not TaskState.ACCEPTED:
            await self._end(task)
            return
        if task.is_by_hand and (refusal := await self._refusal(task)) is not None:
            await self.book.change(
                task, "task_refused", state=TaskState.FAILED, reason=refusal.message
            )
            return
        await self._expand(task)

    async def _refusal(self, task: Task) -> LeadlineError | None:
        """Tell what is wrong with a task that nobody has checked yet."""
        node = task.node
        try:
            await self.check(Submission(node.partitions, retarget=node.retarget))
        except LeadlineError as refusal:
            _log.warning("task %s is refused: %s", task.id, refusal.message)
            return refusal
        return None

    async def _expand(self, task: Task) -> None:
        """Write the intents of a task, and then that it runs.

        Repeated after a crash, it writes those that are missing: no step is taken before
        all are there, or the partition is at its target already.
        """
        node = msgspec.structs.replace(
            task.node,
            state=TaskState.RUNNING,
            cause=task.node.cause or self._desk.cause,
            created_at=task.node.created_at or self._desk.office.clock.wall_ms(),
            total=len(task.node.partitions),
        )
        if not await self._agent.write_intents(self._intents_of(task), "reassignment_begun"):
            self._rest()
            return
        await self.book.put(task, "task_begun", node)
        if self._is_due(task):
            await self._end(task)

    def _intents_of(self, task: Task) -> dict[TopicPartition, Intent]:
        """Return what is still to be done for a task that has just been accepted."""
        intents = {}
        for row in task.node.partitions:
            name = TopicPartition(row.topic, row.partition)
            current = self._current(task, name)
            known = self._agent.agenda.get(name)
            if current is None or (known is None and current == row.replicas):
                continue
            if known is not None and (known.intent.task == task.id or not task.node.retarget):
                continue
            intents[name] = Intent(
                target=row.replicas,
                start=known.intent.start if known is not None else current,
                task=task.id,
                algorithm=task.node.algorithm,
                topic_id=self._image.topics[name.topic].topic_id,
            )
        return intents

    def _current(self, task: Task, name: TopicPartition) -> tuple[int, ...] | None:
        """Return where a partition is; None if it is not there, or is another topic's by now."""
        topic = self._image.topics.get(name.topic)
        meant = task.node.topic_ids.get(name.topic)
        if topic is None or topic.deleting or meant not in (None, topic.topic_id):
            return None
        return current_replicas(self._image, name)

    async def _end(self, task: Task) -> None:
        """Write down what became of a task."""
        outcome = self._outcome(task)
        state = TaskState.DONE
        if outcome.done < max(1, task.node.total):
            is_cancelled = task.node.state is TaskState.CANCELLING
            state = TaskState.CANCELLED if is_cancelled else state
        await self.book.change(
            task,
            "task_over",
            state=state,
            finished_at=self._desk.office.clock.wall_ms(),
            partitions=(),
            topic_ids={},
            outcome=msgspec.structs.replace(outcome, bytes=self._size_of(task.id)),
        )

    def _outcome(self, task: Task) -> TaskOutcome:
        """Tell what has become of the partitions that a task has done with."""
        counts = Counter(self._fate(task, row) for row in task.node.partitions)
        del counts["open"]
        return TaskOutcome(**counts)

    def _fate(self, task: Task, row: TargetRow) -> str:
        name = TopicPartition(row.topic, row.partition)
        current, entry = self._current(task, name), self._agent.agenda.get(name)
        if entry is not None:
            return "open" if entry.intent.task == task.id else "superseded"
        if current is None:
            return "gone"
        return "done" if current == row.replicas else "cancelled"
