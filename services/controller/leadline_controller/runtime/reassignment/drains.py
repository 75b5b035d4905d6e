"""Draining brokers, as tasks: leadership moves away at once and stays away, then the replicas move.

A drain is a task of its own kind. While it is `preparing`, leaders are moved and a plan for
the replicas is computed beside the queue; launching the task hands the replicas to the
reassignment agent. A drain of leaders only stays `preparing` until it is cancelled.
Everything follows from the task's node and the image, so any controller can go on.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import structlog

from leadline_client.errors import (
    InternalError,
    LeadlineError,
    NotFound,
    ReassignmentInProgress,
)
from leadline_client.wire import TopicPartition
from leadline_common.access.caller import current_actor
from leadline_common.cause import current_cause
from leadline_common.tasks import TargetRow, TaskState
from leadline_common.zk.errors import MultiFailed, RequestTooLarge
from leadline_controller.domain.cluster import Change, ClusterImage
from leadline_controller.domain.controlled_shutdown import partitions_hosted_by
from leadline_controller.domain.draining import (
    DrainPlanInput,
    drain_plan_input,
    move_leaders_off,
)
from leadline_controller.domain.reassignment.queue import ReassignmentQueue
from leadline_controller.domain.reassignment.requests import Submission
from leadline_controller.runtime.engine.event_queue import EventHandler, EventQueue
from leadline_controller.runtime.engine.events import (
    ControllerEvent,
    ControllerRequest,
    Reply,
    Trigger,
)
from leadline_controller.runtime.engine.publishing import StatePublisher
from leadline_controller.runtime.reassignment.task_store import ReassignmentTask
from leadline_controller.runtime.reassignment.tasks import TaskManager

logger = structlog.get_logger(__name__)

DRAIN = "drain"
"""The kind of these tasks."""
MAX_PARTITIONS = 5_000
"""The most partitions of one task; its node may hold fewer. A later task takes the rest."""
WAITS_FOR = "waits_for"
"""The detail of a task that says why it is still `preparing`."""
PAUSE_S = 0.2
"""How long changes of the cluster are collected before the leaders are examined again."""


@dataclass(frozen=True, slots=True)
class DrainBroker(ControllerRequest[str]):
    """Drain a broker; answered with the task's id once it is durable."""

    broker_id: int
    leaders_only: bool
    throttle_bytes_per_s: int | None

    @property
    def resource(self) -> Mapping[str, Any]:
        """The broker."""
        return {"broker": self.broker_id}


class DrainDue(Trigger):
    """Something that a drain waits for may have happened."""


@dataclass(frozen=True, slots=True)
class DrainPlanned(ControllerEvent):
    """The plan for a task's replicas was computed from `plan_input`.

    `rows` are the targets, or the refusal.
    """

    task: str
    plan_input: DrainPlanInput
    rows: tuple[TargetRow, ...] | LeadlineError


@dataclass(eq=False)
class DrainManager(EventHandler):
    """Handles drains."""

    image: ClusterImage
    queue: EventQueue
    publisher: StatePublisher
    tasks: TaskManager
    reassignments: ReassignmentQueue
    _planning: set[str] = field(default_factory=set, init=False)
    _refused: dict[str, DrainPlanInput] = field(default_factory=dict, init=False)
    _has_drains: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.image.subscribe(self._on_image_changed)
        self.tasks.store.subscribe(self.queue.after_event(self._on_drains_changed), DRAIN)

    async def on_elected(self) -> None:
        """Go on with the drains that an earlier controller began."""
        self._mark_brokers()
        self.queue.trigger(DrainDue, current_cause())

    async def reconcile(self) -> None:
        """Examine all drains again."""
        self.queue.trigger(DrainDue)

    # -- changes ---------------------------------------------------------------

    def _on_image_changed(self, _changes: Sequence[Change]) -> None:
        if self._has_drains:
            self._examine_soon()

    def _on_drains_changed(self) -> None:
        self._mark_brokers()
        self._examine_soon()  # A drain that has just ended may have left partitions.

    def _examine_soon(self) -> None:
        self.queue.trigger_later(PAUSE_S, DrainDue)

    def _mark_brokers(self) -> None:
        """Note in the image which brokers are being drained."""
        drains = list(self.drains())
        self._has_drains = bool(drains)
        self.image.set_draining(
            draining=frozenset(task.broker for task in drains),
            emptying=frozenset(task.broker for task in drains if not _is_leaders_only(task)),
        )

    # -- reading ---------------------------------------------------------------

    def drains(self) -> Iterator[ReassignmentTask]:
        """Yield the drains that are not over, in order."""
        for task in self.tasks.store:
            if task.node.kind == DRAIN and not task.node.state.is_over:
                yield task

    def plan_input(self, broker_id: int) -> DrainPlanInput:
        """Return the present input for planning the drain of a broker; refuse an impossible drain.

        Raises:
            NotFound: the broker is not live.
            ReassignmentInProgress: it is being drained.
            PolicyViolation: no other broker can take over.

        """
        if broker_id not in self.image.brokers:
            raise NotFound(
                f"broker {broker_id} is not live; to move the replicas of a broker that is down, "
                "apply a plan of kind drain"
            )
        for task in self.drains():
            if task.broker == broker_id:
                raise ReassignmentInProgress(
                    f"broker {broker_id} is being drained already: see task {task.id}"
                )
        return self._plan_input(broker_id)

    def _plan_input(self, broker_id: int) -> DrainPlanInput:
        return drain_plan_input(self.image, broker_id, self._target)

    def _target(self, topic_partition: TopicPartition) -> tuple[int, ...] | None:
        entry = self.reassignments.get(topic_partition)
        return entry.intent.target if entry is not None else None

    def waits_for(self, task: ReassignmentTask) -> str | None:
        """Return what a drain that is `preparing` waits for, if that is known."""
        if task.node.kind != DRAIN:
            return None
        if _is_leaders_only(task):
            return f"its cancellation: until then no leader returns to broker {task.broker}"
        return task.node.details.get(WAITS_FOR)

    # -- the workflow ----------------------------------------------------------

    @DrainBroker.handler
    async def on_drain(self, event: DrainBroker, reply: Reply[str]) -> None:
        """Accept a drain that is possible now; no later failure refuses it.

        Raises:
            Refused: as for `plan_input`; or fewer brokers than replicas would remain.

        """
        plan_input = self.plan_input(event.broker_id)
        if not event.leaders_only:
            plan_input.check()
        details = {"broker": event.broker_id, "leaders_only": event.leaders_only}
        task = await self.tasks.prepare(
            submission_of_drain((), details, event.throttle_bytes_per_s, current_actor())
        )
        self._mark_brokers()
        self.queue.trigger(DrainDue, current_cause())
        reply.settle(task.id)

    @DrainDue.handler
    async def on_drain_due(self) -> None:
        """Move leaders off all drained brokers, and plan the new places of their replicas."""
        self._mark_brokers()
        await self._move_leaders()
        for task in list(self.drains()):
            if task.node.state is TaskState.PREPARING and not _is_leaders_only(task):
                await self._plan(task)
        for task in list(self.tasks.store):
            if task.node.kind == DRAIN and task.node.state is TaskState.DONE:
                await self._continue(task)

    async def _move_leaders(self) -> None:
        drained = self.image.draining & self.image.live
        hosted = [
            one for broker in sorted(drained) for one in partitions_hosted_by(self.image, broker)
        ]
        decide = partial(move_leaders_off, self.image, drained=drained)
        reason = f"brokers {sorted(drained)} are being drained"
        await self.publisher.write(decide(hosted), "drain", reason, decide=decide)

    async def _plan(self, task: ReassignmentTask) -> None:
        """Begin to plan beside the queue, unless that is in progress or known to fail."""
        try:
            plan_input = self._plan_input(task.broker)
        except LeadlineError as problem:
            await self._set_reason(task, problem.message)
            return
        if task.id not in self._planning and self._refused.get(task.id) != plan_input:
            self._planning.add(task.id)
            self.run_in_background(self._make_plan(task.id, plan_input), "drain-plan")

    async def _make_plan(self, task_id: str, plan_input: DrainPlanInput) -> None:
        rows: tuple[TargetRow, ...] | LeadlineError
        try:
            rows = await asyncio.to_thread(plan_input.plan)
        except LeadlineError as problem:
            rows = problem
        except Exception:  # Without an event, the task would never be planned again in this term.
            logger.exception("drain not planned", broker=plan_input.broker)
            rows = InternalError("the drain could not be planned; the log says why")
        self.queue.post(DrainPlanned(task_id, plan_input, rows), f"drain-{plan_input.broker}")

    @DrainPlanned.handler
    async def on_planned(self, event: DrainPlanned) -> None:
        """Launch a drain with its plan; plan again if the cluster has changed meanwhile."""
        self._planning.discard(event.task)
        task = self.tasks.store.get(event.task)
        if task is None or task.node.state is not TaskState.PREPARING:
            return
        if not self._is_current(event.plan_input):
            self.queue.trigger(DrainDue)
        elif isinstance(event.rows, LeadlineError):
            self._refused[task.id] = event.plan_input
            await self._set_reason(task, event.rows.message)
        else:
            await self._launch(task, event.rows)

    def _is_current(self, plan_input: DrainPlanInput) -> bool:
        """Tell whether a plan is based on the present cluster; not if no drain is possible now."""
        try:
            return plan_input == self._plan_input(plan_input.broker)
        except LeadlineError:
            return False

    async def _set_reason(self, task: ReassignmentTask, reason: str) -> None:
        """Write into the task why it waits."""
        if task.node.details.get(WAITS_FOR) != reason:
            logger.warning("drain waits", broker=task.broker, reason=reason)
            with contextlib.suppress(MultiFailed):  # Somebody else has changed the task.
                await self.tasks.note(task, "drain_waits", {WAITS_FOR: reason})

    async def _launch(self, task: ReassignmentTask, rows: tuple[TargetRow, ...]) -> None:
        fits = min(len(rows), MAX_PARTITIONS)
        with contextlib.suppress(MultiFailed):  # Somebody else has changed the task.
            while not await self._launch_first(task, rows, fits):
                fits = max(1, fits // 2)

    async def _launch_first(
        self, task: ReassignmentTask, rows: tuple[TargetRow, ...], count: int
    ) -> bool:
        """Launch a drain of the first rows; return False if its node cannot hold them."""
        if count < len(rows) and not task.node.details.get("more"):
            await self.tasks.note(task, "drain_split", {"more": True})
        node = task.node
        details = {name: value for name, value in node.details.items() if name != WAITS_FOR}
        wanted = submission_of_drain(rows[:count], details, node.throttle_bytes_per_s, node.actor)
        try:
            await self.tasks.launch(task, wanted)
        except RequestTooLarge:
            if count <= 1:
                raise
            return False
        return True

    async def _continue(self, task: ReassignmentTask) -> None:
        """Create a further task for what one node could not hold."""
        details = task.node.details
        broker_id = task.broker
        if not details.get("more") or details.get("continued"):
            return
        follower = next((t.id for t in self.drains() if t.broker == broker_id), None)
        if follower is None:
            wanted = submission_of_drain(
                (),
                {"broker": broker_id, "leaders_only": False},
                task.node.throttle_bytes_per_s,
                task.node.actor,
            )
            follower = (await self.tasks.prepare(wanted)).id
        await self.tasks.note(task, "drain_continued", {"continued": follower})
        self.queue.trigger(DrainDue)


def submission_of_drain(
    rows: tuple[TargetRow, ...], details: Mapping[str, Any], throttle: int | None, actor: str
) -> Submission:
    """Return the submission of a drain; `throttle` in bytes per second, or None."""
    return Submission(
        partitions=rows,
        kind=DRAIN,
        actor=actor,
        reason=f"drain of broker {details['broker']}",
        throttle_bytes_per_s=throttle,
        retarget=True,
        details=details,
    )


def _is_leaders_only(task: ReassignmentTask) -> bool:
    return bool(task.node.details.get("leaders_only"))
