"""Draining brokers, as tasks: leaders leave at once and stay away, then the replicas go.

A drain is a task of its own kind. While it is `preparing` the leaders are moved, and
the plan for the replicas is made beside the queue; launching it hands the replicas to
the reassignment agent. One for leaders only stays `preparing` until it is cancelled.
All of it follows from the task's node and the image, so that any controller goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from leadline_client.errors import LeadlineError, NotFound, ReassignmentInProgress
from leadline_client.wire import TopicPartition
from leadline_common.tasks import TargetRow, TaskState
from leadline_common.zk.errors import MultiFailed, RequestTooLarge
from leadline_controller.domain.cluster import ClusterImage
from leadline_controller.domain.controlled_shutdown import partitions_hosted_by
from leadline_controller.domain.draining import (
    DrainPlanInput,
    drain_plan_input,
    move_leaders_off,
)
from leadline_controller.domain.reassignment.queue import ReassignmentQueue
from leadline_controller.domain.reassignment.requests import Submission
from leadline_controller.runtime.engine import events
from leadline_controller.runtime.engine.context import EventContext
from leadline_controller.runtime.engine.handler import EventHandler, Handlers
from leadline_controller.runtime.engine.state_writer import Why
from leadline_controller.runtime.reassignment.task_store import Task
from leadline_controller.runtime.reassignment.tasks import TaskManager

_log = logging.getLogger(__name__)

DRAIN = "drain"
"""The kind of these tasks."""
MAX_PARTITIONS = 5_000
"""So many partitions, or as many as its node holds, go with one task; the rest with a later one."""
_WAITS = "waits_for"
"""The detail of a task that says why it is still `preparing`."""
PAUSE_S = 0.2
"""How long changes of the cluster are gathered before the leaders are looked at again."""


@dataclass(frozen=True, slots=True, eq=False)
class DrainBroker(events.Request[str]):
    """An operator has a broker drained; answered with the task's id once it is durable."""

    broker_id: int
    leaders_only: bool
    throttle_bytes_per_s: int | None

    @property
    def about(self) -> Mapping[str, Any]:
        """The broker."""
        return {"broker": self.broker_id}


@dataclass(frozen=True, slots=True)
class DrainDue(events.Hint):
    """Something that a drain waits for may have happened."""


@dataclass(frozen=True, slots=True)
class DrainPlanned(events.Event):
    """The plan for a task's replicas is made; `rows` is what it came to, or the refusal."""

    task: str
    question: DrainPlanInput
    rows: tuple[TargetRow, ...] | LeadlineError


class DrainManager(EventHandler):
    """The drains under way."""

    def __init__(self, desk: EventContext, tasks: TaskManager, agenda: ReassignmentQueue) -> None:
        self._desk = desk
        self._tasks = tasks
        self._agenda = agenda
        self._planning: dict[str, asyncio.Task[None]] = {}
        self._refused: dict[str, DrainPlanInput] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._seen = (-1, frozenset[str]())

    @property
    def handlers(self) -> Handlers:
        """Return who handles what."""
        return {
            DrainBroker: self.on_drain,
            DrainDue: self.on_due,
            DrainPlanned: self.on_planned,
        }

    async def take_over(self, cause: str) -> None:
        """Go on with the drains that an earlier controller began."""
        self._mark()
        self._desk.hint(DrainDue, cause)

    async def reconcile(self, _event: events.Reconcile) -> None:
        """Look again at all of them."""
        self._desk.hint(DrainDue)

    def follow_up(self) -> None:
        """Keep the marks of drained brokers true, and look again soon when anything has changed."""
        self._mark()
        seen = (self._image.version, frozenset(task.id for task in self.drains()))
        if seen == self._seen or self._timer is not None:
            return
        if seen[1] or self._seen[1]:  # one that has just ended may have left something over
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(PAUSE_S, self._time_is_up)
        self._seen = seen

    async def close(self) -> None:
        """End the timer and the planning."""
        if self._timer is not None:
            self._timer.cancel()
        for planning in self._planning.values():
            planning.cancel()
        await asyncio.gather(*self._planning.values(), return_exceptions=True)

    @property
    def _image(self) -> ClusterImage:
        return self._desk.image

    # -- to be looked at -------------------------------------------------------

    def drains(self) -> Iterator[Task]:
        """Yield the drains that are not over, in order."""
        for task in self._tasks.book:
            if task.node.kind == DRAIN and not task.node.state.is_over:
                yield task

    def question(self, broker_id: int) -> DrainPlanInput:
        """Return the question how to empty a broker, as it is asked now.

        Raises:
            NotFound: the broker is not live.
            ReassignmentInProgress: it is being drained.
            PolicyViolation: no other broker can take over.

        """
        if broker_id not in self._image.brokers:
            raise NotFound(
                f"broker {broker_id} is not live; what one that is down has is moved by a plan "
                "of kind drain"
            )
        for task in self.drains():
            if _broker(task) == broker_id:
                raise ReassignmentInProgress(
                    f"broker {broker_id} is being drained already: see task {task.id}"
                )
        return self._question(broker_id)

    def _question(self, broker_id: int) -> DrainPlanInput:
        return drain_plan_input(self._image, broker_id, self._target)

    def _target(self, name: TopicPartition) -> tuple[int, ...] | None:
        entry = self._agenda.get(name)
        return entry.intent.target if entry is not None else None

    def _mark(self) -> None:
        drains = list(self.drains())
        self._image.draining = frozenset(map(_broker, drains))
        self._image.emptying = frozenset(_broker(t) for t in drains if not _is_leaders_only(t))

    # -- the workflow ----------------------------------------------------------

    async def on_drain(self, event: DrainBroker) -> None:
        """Accept a drain; what follows cannot refuse it any more."""
        self.question(event.broker_id)
        details = {"broker": event.broker_id, "leaders_only": event.leaders_only}
        task = await self._tasks.prepare(
            submission_of_drain((), details, event.throttle_bytes_per_s, "operator")
        )
        self._mark()
        self._desk.hint(DrainDue, event.cause)
        event.settle(task.id)

    async def on_due(self, event: DrainDue) -> None:
        """Move leaders off all drained brokers, and plan where their replicas go."""
        self._mark()
        await self._move_leaders(event.cause)
        for task in list(self.drains()):
            if task.node.state is TaskState.PREPARING and not _is_leaders_only(task):
                self._plan(task)
        for task in list(self._tasks.book):
            if task.node.kind == DRAIN and task.node.state is TaskState.DONE:
                await self._continue(task)

    async def _move_leaders(self, cause: str) -> None:
        drained = self._image.draining & self._image.live
        names = [
            name for broker in sorted(drained) for name in partitions_hosted_by(self._image, broker)
        ]
        decide = partial(move_leaders_off, self._image, drained=drained)
        reason = f"brokers {sorted(drained)} are being drained"
        why = Why(cause, self._desk.office.actor, "drain", reason)
        await self._desk.write(decide(names), why, decide)

    def _plan(self, task: Task) -> None:
        """Begin to plan beside the queue, unless that is under way, or is known to fail."""
        try:
            question = self._question(_broker(task))
        except LeadlineError as problem:
            _log.warning("the drain of broker %d waits: %s", _broker(task), problem.message)
            return
        if task.id not in self._planning and self._refused.get(task.id) != question:
            self._planning[task.id] = asyncio.create_task(self._make_plan(task.id, question))

    async def _make_plan(self, task_id: str, question: DrainPlanInput) -> None:
        rows: tuple[TargetRow, ...] | LeadlineError
        try:
            rows = await asyncio.to_thread(question.plan)
        except LeadlineError as problem:
            rows = problem
        now_ms = self._desk.office.clock.monotonic_ms()
        cause = f"drain-{question.broker}"
        self._desk.post(
            DrainPlanned(cause=cause, at_ms=now_ms, task=task_id, question=question, rows=rows)
        )

    async def on_planned(self, event: DrainPlanned) -> None:
        """Launch a drain by its plan; plan anew if the cluster has changed meanwhile."""
        self._planning.pop(event.task, None)
        task = self._tasks.book.get(event.task)
        if task is None or task.node.state is not TaskState.PREPARING:
            return
        if event.question != self._question(_broker(task)):
            self._desk.hint(DrainDue)
        elif isinstance(event.rows, LeadlineError):
            self._refused[task.id] = event.question
            _log.warning("broker %d cannot be emptied: %s", _broker(task), event.rows.message)
            await self._say_what_it_waits_for(task, event.rows.message)
        else:
            await self._launch(task, event.rows)

    async def _say_what_it_waits_for(self, task: Task, why: str) -> None:
        """Keep with the task why it does not go on, for whoever looks at it."""
        if task.node.details.get(_WAITS) != why:
            with contextlib.suppress(MultiFailed):  # somebody else has changed the task
                await self._tasks.note(task, "drain_waits", {_WAITS: why})

    async def _launch(self, task: Task, rows: tuple[TargetRow, ...]) -> None:
        fits = min(len(rows), MAX_PARTITIONS)
        with contextlib.suppress(MultiFailed):  # somebody else has changed the task: look again
            while not await self._launch_first(task, rows, fits):
                fits = max(1, fits // 2)

    async def _launch_first(self, task: Task, rows: tuple[TargetRow, ...], count: int) -> bool:
        """Launch a drain of the first rows; False where its node cannot hold so many."""
        if count < len(rows) and not task.node.details.get("more"):
            await self._tasks.note(task, "drain_split", {"more": True})
        node = task.node
        details = {name: value for name, value in node.details.items() if name != _WAITS}
        wanted = submission_of_drain(rows[:count], details, node.throttle_bytes_per_s, node.actor)
        try:
            await self._tasks.launch(task, wanted)
        except RequestTooLarge:
            if count <= 1:
                raise
            return False
        return True

    async def _continue(self, task: Task) -> None:
        """Have a further task take what one node could not hold."""
        details = task.node.details
        broker_id = _broker(task)
        if not details.get("more") or details.get("continued"):
            return
        follower = next((t.id for t in self.drains() if _broker(t) == broker_id), None)
        if follower is None:
            wanted = submission_of_drain(
                (),
                {"broker": broker_id, "leaders_only": False},
                task.node.throttle_bytes_per_s,
                task.node.actor,
            )
            follower = (await self._tasks.prepare(wanted)).id
        await self._tasks.note(task, "drain_continued", {"continued": follower})
        self._desk.hint(DrainDue)

    def _time_is_up(self) -> None:
        self._timer = None
        self._desk.hint(DrainDue)


def submission_of_drain(
    rows: tuple[TargetRow, ...], details: Mapping[str, Any], throttle: int | None, actor: str
) -> Submission:
    """Return a drain as the tasks take it; `throttle` in bytes per second, None is none."""
    return Submission(
        partitions=rows,
        kind=DRAIN,
        actor=actor,
        reason=f"drain of broker {details['broker']}",
        throttle_bytes_per_s=throttle,
        retarget=True,
        details=details,
    )


def _broker(task: Task) -> int:
    found = task.node.details.get("broker", -1)
    return found if isinstance(found, int) else -1


def _is_leaders_only(task: Task) -> bool:
    return bool(task.node.details.get("leaders_only"))
