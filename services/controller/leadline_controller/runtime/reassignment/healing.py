"""Self-healing (KIP-46): detects failed brokers, and replaces their replicas in chunks.

Detection follows the controller's own broker changes, without a scan. Whenever the live
brokers have changed, those that have gone are recorded in `/admin/failed_brokers` with the
time of detection, and deleted from there when they return.

Mitigation: once a broker is dead, its partitions are split into chunks, each a task that is
`preparing`; then its record is deleted. Chunks are launched one after another. Their targets
are chosen at launch, so a chunk that is no longer needed moves nothing. When the broker
returns, the chunks that have not begun are cancelled; a running one is finished. Until then
`/admin/dead_brokers` says what was done about it. If the controller dies between any two of
these writes, its successor finds the partitions of existing chunks covered, and queues the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import structlog

from leadline_client.errors import BrokerInUse, NotFound
from leadline_client.wire import TopicPartition
from leadline_common.cause import current_cause
from leadline_common.clock import Clock
from leadline_common.failed_brokers import FailureState
from leadline_common.reassignments import ReassignmentPhase
from leadline_common.settings import ControllerSettings
from leadline_common.slices import slices
from leadline_common.tasks import TaskState
from leadline_common.zk.errors import MultiFailed
from leadline_controller.domain.cluster import BrokerDown, BrokerUp, Change, ClusterImage
from leadline_controller.domain.healing import (
    NEVER,
    PARTITIONS,
    Covered,
    brokers_down,
    chunk_partitions,
    covered_by,
    has_replicas,
    healable_in,
    is_over_budget,
    lost_brokers,
    partitions_in,
    targets_for,
    uncovered_on,
    unqueued_wait_for,
)
from leadline_controller.domain.history import BROKERS
from leadline_controller.domain.reassignment.queue import ReassignmentQueue
from leadline_controller.domain.reassignment.requests import Submission
from leadline_controller.runtime.engine.dynamic_configs import DynamicConfigs
from leadline_controller.runtime.engine.event_queue import EventHandler, EventQueue
from leadline_controller.runtime.engine.events import Reply
from leadline_controller.runtime.engine.publishing import AuditLog
from leadline_controller.runtime.reassignment.events import ForgetBroker, HealingDue
from leadline_controller.runtime.reassignment.failure_detection import FailureDetector
from leadline_controller.runtime.reassignment.failure_records import FAILED_AT, FailureRecords
from leadline_controller.runtime.reassignment.task_store import ReassignmentTask, by_topic
from leadline_controller.runtime.reassignment.tasks import TaskManager
from leadline_controller.runtime.reassignment.throttles import HEAL

logger = structlog.get_logger(__name__)

_QUEUED = TaskState.PREPARING
RETRY_PAUSE_MS = 500
"""How long to wait after a write that ZooKeeper refused."""


@dataclass(eq=False)
class HealingManager(EventHandler):
    """Handles failed brokers.

    `is_suspended` while more brokers are down than the budget allows.
    """

    records: FailureRecords
    image: ClusterImage
    queue: EventQueue
    configs: DynamicConfigs
    audit: AuditLog
    clock: Clock
    tasks: TaskManager
    reassignments: ReassignmentQueue
    is_suspended: bool = field(default=False, init=False)
    _recorded_live: frozenset[int] | None = field(default=None, init=False)
    _timer: asyncio.TimerHandle | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._detector = FailureDetector(self.records, self.image)
        # After the event: the agent, registered before, examines a launched chunk first.
        self._trigger_after_event = self.queue.after_event(partial(self.queue.trigger, HealingDue))
        self.image.subscribe(self._on_image_changed)
        self.tasks.store.subscribe(self._trigger_after_event, HEAL)
        self.reassignments.subscribe(self._on_reassignments_changed)
        self.configs.subscribe(self._trigger_after_event)

    @property
    def _settings(self) -> ControllerSettings:
        return self.configs.current()

    async def on_elected(self) -> None:
        """Read the failed brokers that an earlier controller recorded."""
        await self.records.read()
        self.queue.trigger(HealingDue, current_cause())

    async def reconcile(self) -> None:
        """Read the records again, and check what is due."""
        await self.records.read()
        self.queue.trigger(HealingDue)

    async def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def _on_image_changed(self, changes: Sequence[Change]) -> None:
        if any(isinstance(change, BrokerUp | BrokerDown) for change in changes):
            self._trigger_after_event()

    def _on_reassignments_changed(self) -> None:
        if self.records.failed:
            self._trigger_after_event()

    # -- state -----------------------------------------------------------------

    def chunks(self, broker: int | None = None) -> Iterator[ReassignmentTask]:
        """Yield the chunks that are not over, of one broker or of all, in order."""
        for task in self.tasks.store:
            is_open = task.node.kind == HEAL and not task.node.state.is_over
            if is_open and broker in (None, task.broker):
                yield task

    def due_at(self, broker: int) -> int | None:
        """Return when a failed broker counts as dead (Unix ms); None while healing is disabled."""
        left_ms = self._left_ms(broker)
        return None if left_ms is None else self.clock.wall_ms() + left_ms

    def _left_ms(self, broker: int) -> int | None:
        """Return in how many ms a failed broker counts as dead; None while healing is disabled."""
        return self.records.left_ms(broker, self._settings.failed_broker_interval_ms)

    @property
    def down(self) -> list[int]:
        """The brokers that count against the budget, in order."""
        return sorted(brokers_down(self.image, self.records.failed))

    def shown(self) -> list[int]:
        """Return the brokers that are down and not forgotten, or being healed, in order."""
        dead = self.records.dead.keys() - self.records.forgotten
        healing = {task.broker for task in self.chunks()} - {-1}
        return sorted({*self.down, *dead, *healing})

    def state_of(self, broker: int) -> FailureState:
        """Return what is being done about a broker that is `shown`."""
        dead = self.records.dead.get(broker)
        if broker in self.image.live:
            return FailureState.RETURNED
        if any(self.chunks(broker)):
            return FailureState.HEALING
        if dead is None or broker in self.records.failed:
            return FailureState.WAITING
        return FailureState.HEALING if dead.healed_at is None else FailureState.HEALED

    def waits_for(self, broker: int) -> str | None:
        """Return what the healing of a broker waits for, or None if it goes on or is over."""
        if self.state_of(broker) in (FailureState.RETURNED, FailureState.HEALED):
            return None
        if self._settings.failed_broker_interval_ms == NEVER:
            return "self-healing is switched off: failed.broker.interval.ms is -1"
        if self.is_suspended:
            return f"healing is suspended: brokers {self.down} are down, over the budget"
        if broker not in self.records.failed:
            return None
        if broker not in self._dead():
            return "the end of failed.broker.interval.ms: it may return"
        uncovered = uncovered_on(self.image, broker, self._covered())
        return unqueued_wait_for(uncovered, self.reassignments)

    def chunk_waits_for(self, task: ReassignmentTask) -> str | None:
        """Return what a chunk that is `preparing` waits for."""
        if task.node.kind != HEAL:
            return None
        return self.waits_for(task.broker) or "the chunks before it, which run one after another"

    # -- the workflow ----------------------------------------------------------

    @HealingDue.handler
    async def on_healing_due(self) -> None:
        """Record failures, and cancel, queue and launch chunks."""
        latest_ms = None
        try:
            await self._detect()
            await self._settle_empty()
            await self._check_budget()
            if not self.is_suspended:
                for broker in sorted(self._dead()):
                    await self._queue_partitions(broker)
                await self._retarget()
                await self._launch_next()
            await self._record_healed()
        except MultiFailed as failure:
            logger.warning("healing: reading again", error=str(failure))
            await self.records.read()
            latest_ms = RETRY_PAUSE_MS
        self._set_timer(latest_ms)

    async def _detect(self) -> None:
        """Record failed and returned brokers, and cancel what is queued for those that are back."""
        covered = self._covered()
        await asyncio.sleep(0)  # Only handlers of events change what follows.
        await self._detector.record(covered)
        live = self.image.live
        for task in list(self.chunks()):
            if task.node.state is _QUEUED and task.broker in live:
                await self.tasks.cancel(task, self.audit.actor)
        await self._record_live()

    @ForgetBroker.handler
    async def on_forget(self, event: ForgetBroker, reply: Reply[int]) -> None:
        """Forget a broker that will not return; should it, it is a broker like any other.

        Raises:
            NotFound: it has not failed, or is forgotten.
            BrokerInUse: it is live, or replicas are assigned to it.

        """
        broker, records = event.broker_id, self.records
        if broker in self.image.live:
            raise BrokerInUse(f"broker {broker} is live: stop it first")
        hosted = sum(len(tuple(numbers)) for numbers in self.image.hosted_by(broker).values())
        if hosted:
            raise BrokerInUse(
                f"{hosted} partitions have a replica on broker {broker}: wait until it is healed, "
                "or apply a plan of kind drain"
            )
        known = records.failed.get(broker) or records.dead.get(broker)
        if known is None or broker in records.forgotten:
            raise NotFound(f"broker {broker} is not known to be down")
        await records.forget(broker)
        self.queue.trigger(HealingDue)
        reply.settle(known.failure_timestamp)

    async def _record_live(self) -> None:
        """Record in the audit which brokers are live."""
        live = self.image.live
        if live == self._recorded_live:
            return
        entry = self.audit.entry("brokers_changed", {}, after={BROKERS: sorted(live)})
        await self.audit.record(entry)
        self._recorded_live = live

    async def _check_budget(self) -> None:
        """Suspend or resume healing by the budget."""
        percent = self._settings.failed_broker_budget_percent
        is_over = is_over_budget(self.image, self.records.failed, percent)
        if is_over == self.is_suspended:
            return
        self.is_suspended = is_over
        kind = "healing_suspended" if is_over else "healing_resumed"
        reason = f"brokers {self.down} are down; the budget is {percent} % of all"
        logger.warning(kind.replace("_", " "), reason=reason)
        entry = self.audit.entry(kind, {"brokers": self.down}, reason=reason)
        await self.audit.record(entry)

    # -- queueing --------------------------------------------------------------

    def _dead(self) -> frozenset[int]:
        """Return the brokers that have been down for longer than the interval."""
        down = self.records.failed.keys() - self.image.live
        return frozenset(one for one in down if (ms := self._left_ms(one)) is not None and ms <= 0)

    async def _queue_partitions(self, broker: int) -> None:
        """Queue a dead broker's partitions; delete its record when all are queued."""
        failed_at = self.records.failed[broker].failure_timestamp
        covered = self._covered()
        await asyncio.sleep(0)
        uncovered = uncovered_on(self.image, broker, covered)
        # What is being reassigned would be left out of its chunk, and queued again, over and over.
        idle = [one for one in uncovered if one not in self.reassignments]
        is_healable = healable_in(self.image)  # Only handlers of events change the image.
        healable = [one async for some in slices(idle) for one in some if is_healable(one)]
        for chunk in chunk_partitions(healable, self._settings.failed_broker_chunk_partitions):
            details = {"broker": broker, FAILED_AT: failed_at, PARTITIONS: by_topic(chunk)}
            await self.tasks.prepare(self._submission((), f"broker {broker} is dead", details))
        if len(healable) < len(uncovered):
            return  # The rest waits for a leader, a broker that can take it, or its reassignment.
        # A running chunk of an earlier failure belongs to the history of that failure.
        queued = [t for t in self.chunks(broker) if t.node.details.get(FAILED_AT) == failed_at]
        partitions = sum(len(partitions_in(task.node.details)) for task in queued)
        await self.records.record_queued(broker, len(queued), partitions)

    async def _settle_empty(self) -> None:
        """Take dead brokers without replicas off the budget: nothing of them is to be healed."""
        for broker in sorted(self._dead()):
            if not has_replicas(self.image, broker):
                await self._queue_partitions(broker)

    async def _record_healed(self) -> None:
        """Record which dead brokers have no replica and no chunk left."""
        for broker, dead in list(self.records.dead.items()):
            is_left = has_replicas(self.image, broker) or any(self.chunks(broker))
            if dead.healed_at is None and not dead.forgotten and not is_left:
                await self.records.record_healed(broker)

    def _submission(
        self,
        targets: Sequence[Any],
        reason: str,
        details: Mapping[str, Any],
        *,
        retarget: bool = False,
    ) -> Submission:
        return Submission(
            partitions=tuple(targets),
            kind=HEAL,
            actor=self.audit.actor,
            reason=reason,
            is_auto_generated=True,
            retarget=retarget,
            details=details,
        )

    def _covered(self) -> Covered:
        """Return the partitions of all open chunks, by broker and topic."""
        return covered_by((task.broker, task.node.details) for task in self.chunks())

    # -- launching -------------------------------------------------------------

    async def _launch_next(self) -> None:
        """Launch the next chunk, if none is running."""
        queued = list(self.chunks())
        if self._settings.failed_broker_interval_ms == NEVER or not queued:
            return
        await self.tasks.agent.refresh()  # Some may be new.
        if any(map(self._is_running, queued)):
            return
        task = next((task for task in queued if task.node.state is _QUEUED), None)
        if task is None:
            return
        node, wanted = task.node, sorted(partitions_in(task.node.details))
        targets = targets_for(self.image, wanted, task.broker, self.reassignments)
        logger.info("healing chunk", task=task.id, moving=len(targets), partitions=len(wanted))
        await self.tasks.launch(task, self._submission(targets, node.reason, node.details))

    def _is_running(self, task: ReassignmentTask) -> bool:
        """Return whether a chunk has begun, and may end: not if a leader or a target is missing."""
        if not task.node.state.is_running:
            return task.node.state is not _QUEUED
        left = set(self.reassignments.of_task(task.id)).difference(self._stuck(task))
        entries = map(self.reassignments.get, left)
        return any(e is not None and e.phase is not ReassignmentPhase.WAITING for e in entries)

    async def _retarget(self) -> None:
        """Choose another target where the target is dead as well: the chunk would never end."""
        for task in list(self.chunks()):
            stuck = self._stuck(task) if task.node.state is TaskState.RUNNING else []
            targets = targets_for(self.image, stuck, task.broker, ())
            if not targets:
                continue
            details = {**task.node.details, PARTITIONS: by_topic(targets)}
            reason = f"broker {task.broker} is dead, and so is what was to take its place"
            logger.info("healing chunk retargeted", task=task.id, partitions=len(targets))
            wanted = self._submission(targets, reason, details, retarget=True)
            await self.tasks.launch(await self.tasks.prepare(wanted), wanted)

    def _stuck(self, task: ReassignmentTask) -> list[TopicPartition]:
        """Return the partitions of a chunk with a dead broker among their new replicas.

        A dead broker's own chunks replace the replicas that it has already.
        """
        healed = {task.broker for task in self.chunks()}
        dead = lost_brokers(self.image, self._dead(), self.records.dead.keys(), healed)
        return [
            topic_partition
            for topic_partition in self.reassignments.of_task(task.id)
            if (entry := self.reassignments.get(topic_partition))
            and dead & (set(entry.intent.target) - set(entry.intent.start))
        ]

    def _set_timer(self, latest_ms: int | None) -> None:
        """Trigger the next check when a failed broker counts as dead, or in `latest_ms`."""
        if self._timer is not None:
            self._timer.cancel()
        coming = [ms for ms in map(self._left_ms, self.records.failed) if ms is not None and ms > 0]
        coming += [] if latest_ms is None else [latest_ms]
        if coming:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(min(coming) / 1000, self.queue.trigger, HealingDue)
