"""Self-healing (KIP-46): detects failed brokers, and replaces their replicas in chunks.

Detection follows the controller's own broker changes, without a scan. Whenever the live
brokers have changed, those that have gone are recorded in `/admin/failed_brokers` with the
time of detection, and deleted from there when they return.

Mitigation: once a broker is dead, its partitions are split into chunks, each a task that is
`preparing`; then its record is deleted. Chunks are launched one after another. Their targets
are chosen at launch, so a chunk that is no longer needed moves nothing. When the broker
returns, the chunks that have not begun are cancelled; a running one is finished. If the
controller dies between any two of these writes, its successor finds the partitions of
existing chunks covered, and queues the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec
import structlog

from leadline_client.wire import TopicPartition
from leadline_common.cause import current_cause
from leadline_common.clock import Clock
from leadline_common.failed_brokers import FailedBroker, decode_failed_broker, failed_broker_path
from leadline_common.reassignments import ReassignmentPhase
from leadline_common.settings import ControllerSettings
from leadline_common.tasks import TaskState
from leadline_common.zk.errors import MultiFailed
from leadline_common.zk.ops import ANY_VERSION, CreateOp, DeleteOp, Op, SetOp
from leadline_common.znodes import FAILED_BROKERS, encode_value
from leadline_controller.domain.cluster import BrokerDown, BrokerUp, Change, ClusterImage
from leadline_controller.domain.healing import (
    NEVER,
    chunk_partitions,
    diff_failures,
    due_at,
    is_healable,
    is_over_budget,
    replicas_on,
    targets_for,
)
from leadline_controller.domain.history import BROKERS
from leadline_controller.domain.reassignment.queue import ReassignmentQueue
from leadline_controller.domain.reassignment.requests import Submission
from leadline_controller.runtime.engine.dynamic_configs import DynamicConfigs
from leadline_controller.runtime.engine.event_queue import EventHandler, EventQueue
from leadline_controller.runtime.engine.publishing import AuditLog
from leadline_controller.runtime.engine.state_writer import StateWriter
from leadline_controller.runtime.ports import ControllerStore
from leadline_controller.runtime.reassignment.events import HealingDue
from leadline_controller.runtime.reassignment.task_store import ReassignmentTask, by_topic
from leadline_controller.runtime.reassignment.tasks import TaskManager

logger = structlog.get_logger(__name__)

HEAL = "heal"
"""The kind of a self-healing task."""
FAILED_AT = "failure_timestamp"
"""Identifies one failure of a broker, in the details of chunks and in audit entries."""
PARTITIONS = "partitions"
"""The detail of a chunk with the partition numbers of each topic."""
_QUEUED = TaskState.PREPARING
RETRY_PAUSE_MS = 500
"""How long to wait after a write that ZooKeeper refused."""


@dataclass(eq=False)
class HealingManager(EventHandler):
    """Handles failed brokers.

    `failed` are those recorded in ZooKeeper. `is_suspended` while more brokers are down than
    the budget allows.
    """

    store: ControllerStore
    image: ClusterImage
    queue: EventQueue
    configs: DynamicConfigs
    writer: StateWriter
    audit: AuditLog
    clock: Clock
    tasks: TaskManager
    reassignments: ReassignmentQueue
    failed: dict[int, FailedBroker] = field(default_factory=dict, init=False)
    is_suspended: bool = field(default=False, init=False)
    _invalid: set[int] = field(default_factory=set, init=False)
    _recorded_live: frozenset[int] | None = field(default=None, init=False)
    _timer: asyncio.TimerHandle | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._incarnations = {b.id: b.incarnation for b in self.image.brokers.values()}
        # After the event: the agent, registered before, examines a launched chunk first.
        self._trigger_after_event = self.queue.after_event(partial(self.queue.trigger, HealingDue))
        self.image.subscribe(self._on_image_changed)
        self.tasks.store.subscribe(self._trigger_after_event, HEAL)
        self.configs.subscribe(self._trigger_after_event)

    @property
    def _settings(self) -> ControllerSettings:
        return self.configs.current()

    async def on_elected(self) -> None:
        """Read the failed brokers that an earlier controller recorded."""
        await self._read()
        self.queue.trigger(HealingDue, current_cause())

    async def reconcile(self) -> None:
        """Read the records again, and check what is due."""
        await self._read()
        self.queue.trigger(HealingDue)

    async def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def _on_image_changed(self, changes: Sequence[Change]) -> None:
        if any(isinstance(change, BrokerUp | BrokerDown) for change in changes):
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
        return due_at(self.failed[broker], self._settings.failed_broker_interval_ms)

    # -- the workflow ----------------------------------------------------------

    @HealingDue.handler
    async def on_healing_due(self) -> None:
        """Record failures, and cancel, queue and launch chunks."""
        latest_ms = None
        try:
            await self._detect()
            await self._check_budget()
            if not self.is_suspended:
                for broker in sorted(self._dead()):
                    await self._queue_partitions(broker)
                await self._retarget()
                await self._launch_next()
        except MultiFailed as failure:
            logger.warning("healing: reading again", error=str(failure))
            await self._read()
            latest_ms = RETRY_PAUSE_MS
        self._set_timer(latest_ms)

    async def _read(self) -> None:
        """Read the recorded failures."""
        (names,) = await self.store.children([FAILED_BROKERS])
        ids = [int(name) for name in names or () if name.isdecimal()]
        nodes = await self.store.read_nodes([failed_broker_path(broker) for broker in ids])
        found = {
            broker: _decode(broker, node.data)
            for broker, node in zip(ids, nodes, strict=True)
            if node is not None
        }
        self.failed = {broker: record for broker, record in found.items() if record is not None}
        self._invalid = found.keys() - self.failed.keys()

    async def _detect(self) -> None:
        """Record failed and returned brokers (KIP-46, onBrokerFailure)."""
        live = self.image.live
        lost = self._incarnations.keys() - live
        diff = diff_failures(self.image, self.failed, lost, self._covered())
        for broker in diff.failed:
            await self.on_broker_failure(broker, self._incarnations.get(broker, -1))
        for broker in diff.returned:
            await self._delete_record(broker, "broker_returned")
        for task in list(self.chunks()):
            if task.node.state is _QUEUED and task.broker in live:
                await self.tasks.cancel(task, self.audit.actor)
        self._incarnations = {b.id: b.incarnation for b in self.image.brokers.values()}
        await self._record_live()

    async def on_broker_failure(self, broker: int, incarnation: int) -> None:
        """Record the time at which a broker's failure was detected."""
        failed = FailedBroker(
            failure_timestamp=self.clock.wall_ms(),
            incarnation=incarnation,
            controller_epoch=self.image.controller_epoch,
        )
        path, data = failed_broker_path(broker), encode_value(failed)
        op = SetOp(path, data, ANY_VERSION) if broker in self._invalid else CreateOp(path, data)
        await self._commit(op, "broker_failed", broker, failed, {})
        self._invalid.discard(broker)
        self.failed[broker] = failed

    async def _delete_record(
        self, broker: int, kind: str, counts: Mapping[str, int] | None = None
    ) -> None:
        op = DeleteOp(failed_broker_path(broker), ANY_VERSION)
        await self._commit(op, kind, broker, self.failed[broker], counts or {})
        del self.failed[broker]

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
        is_over = is_over_budget(self.image, self.failed, percent)
        if is_over == self.is_suspended:
            return
        self.is_suspended = is_over
        kind = "healing_suspended" if is_over else "healing_resumed"
        reason = f"brokers {sorted(self.failed)} are down; the budget is {percent} % of all"
        logger.warning(kind.replace("_", " "), reason=reason)
        entry = self.audit.entry(kind, {"brokers": sorted(self.failed)}, reason=reason)
        await self.audit.record(entry)

    # -- queueing --------------------------------------------------------------

    def _dead(self) -> frozenset[int]:
        """Return the brokers that have been down for longer than the interval."""
        now_ms, live = self.clock.wall_ms(), self.image.live
        due = {broker: self.due_at(broker) for broker in self.failed if broker not in live}
        return frozenset(broker for broker, at in due.items() if at is not None and at <= now_ms)

    async def _queue_partitions(self, broker: int) -> None:
        """Queue a dead broker's partitions; delete its record when all are queued."""
        failed_at = self.failed[broker].failure_timestamp
        covered = self._covered().get(broker, ())
        uncovered = [one for one in replicas_on(self.image, broker) if one not in covered]
        healable = [one for one in uncovered if is_healable(self.image, one)]
        for chunk in chunk_partitions(healable, self._settings.failed_broker_chunk_partitions):
            details = {"broker": broker, FAILED_AT: failed_at, PARTITIONS: by_topic(chunk)}
            await self.tasks.prepare(self._submission((), f"broker {broker} is dead", details))
        if len(healable) < len(uncovered):
            return  # The rest waits for a leader, or for a broker that can take it.
        # A running chunk of an earlier failure belongs to the history of that failure.
        queued = [t for t in self.chunks(broker) if t.node.details.get(FAILED_AT) == failed_at]
        counts = {"chunks": len(queued), "partitions": sum(map(len, map(_partitions_of, queued)))}
        await self._delete_record(broker, "healing_queued", counts)

    def _submission(
        self,
        targets: Sequence[Any],
        reason: str,
        details: Mapping[str, Any],
        *,
        retarget: bool = False,
    ) -> Submission:
        throttle = self._settings.failed_broker_throttle_bytes_per_s
        return Submission(
            partitions=tuple(targets),
            kind=HEAL,
            actor=self.audit.actor,
            reason=reason,
            throttle_bytes_per_s=None if throttle < 0 else throttle,
            is_auto_generated=True,
            retarget=retarget,
            details=details,
        )

    def _covered(self) -> dict[int, set[TopicPartition]]:
        """Return the partitions of all open chunks, by broker."""
        covered: dict[int, set[TopicPartition]] = {}
        for task in self.chunks():
            covered.setdefault(task.broker, set()).update(_partitions_of(task))
        return covered

    # -- launching -------------------------------------------------------------

    async def _launch_next(self) -> None:
        """Launch the next chunk, if none is running."""
        queued = list(self.chunks())
        if self._settings.failed_broker_interval_ms == NEVER or not queued:
            return
        if any(map(self._is_running, queued)):
            return
        task = next((task for task in queued if task.node.state is _QUEUED), None)
        if task is None:
            return
        details = task.node.details
        wanted = sorted(_partitions_of(task))
        targets = targets_for(self.image, wanted, task.broker, self.reassignments)
        logger.info("healing chunk", task=task.id, moving=len(targets), partitions=len(wanted))
        await self.tasks.launch(task, self._submission(targets, task.node.reason, details))

    def _is_running(self, task: ReassignmentTask) -> bool:
        """Return whether a chunk makes progress; not if all it has left has no leader."""
        if task.node.state is not TaskState.RUNNING:
            return task.node.state is not _QUEUED
        entries = map(self.reassignments.get, self.reassignments.of_task(task.id))
        return any(e is not None and e.phase is not ReassignmentPhase.WAITING for e in entries)

    async def _retarget(self) -> None:
        """Choose another target for partitions whose target broker is dead as well.

        Otherwise their chunk never ends, and every other chunk waits for it.
        """
        healed = {task.broker for task in self.chunks()}
        dead = self._dead() | (healed - self.image.live)
        for task in list(self.chunks()):
            stuck = self._targeted_at(task, dead) if task.node.state is TaskState.RUNNING else []
            targets = targets_for(self.image, stuck, task.broker, ())
            if not targets:
                continue
            details = {**task.node.details, PARTITIONS: by_topic(targets)}
            reason = f"broker {task.broker} is dead, and so is what was to take its place"
            logger.info("healing chunk retargeted", task=task.id, partitions=len(targets))
            wanted = self._submission(targets, reason, details, retarget=True)
            await self.tasks.launch(await self.tasks.prepare(wanted), wanted)

    def _targeted_at(self, task: ReassignmentTask, dead: Set[int]) -> list[TopicPartition]:
        """Return the partitions of a chunk with a dead broker among their new replicas.

        A dead broker's own chunks replace the replicas that it has already.
        """
        return [
            topic_partition
            for topic_partition in self.reassignments.of_task(task.id)
            if (entry := self.reassignments.get(topic_partition))
            and dead & (set(entry.intent.target) - set(entry.intent.start))
        ]

    # -- within ----------------------------------------------------------------

    async def _commit(
        self, op: Op, kind: str, broker: int, failed: FailedBroker, counts: Mapping[str, int]
    ) -> None:
        after = {
            FAILED_AT: failed.failure_timestamp,
            "incarnation": failed.incarnation,
            "controller_epoch": failed.controller_epoch,
            **counts,
        }
        logger.info(kind.replace("_", " "), broker=broker, **after)
        await self.writer.commit([op], self.audit.entry(kind, {"broker": broker}, after=after))

    def _set_timer(self, latest_ms: int | None) -> None:
        """Trigger the next check when a failed broker counts as dead, or in `latest_ms`."""
        if self._timer is not None:
            self._timer.cancel()
        now_ms = self.clock.wall_ms()
        due = [self.due_at(broker) for broker in self.failed]
        coming = [at - now_ms for at in due if at is not None and at > now_ms]
        coming += [] if latest_ms is None else [latest_ms]
        if coming:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(min(coming) / 1000, self.queue.trigger, HealingDue)


def _partitions_of(task: ReassignmentTask) -> frozenset[TopicPartition]:
    """Return the partitions of a chunk; none if the details are invalid."""
    try:
        rows = msgspec.convert(task.node.details.get(PARTITIONS, {}), dict[str, list[int]])
    except msgspec.ValidationError:
        return frozenset()
    return frozenset(TopicPartition(t, number) for t, numbers in rows.items() for number in numbers)


def _decode(broker: int, data: bytes) -> FailedBroker | None:
    """Decode a record that an operator may have written; log it and return None if invalid."""
    try:
        return decode_failed_broker(data)
    except msgspec.MsgspecError as problem:
        logger.error("invalid record of a failed broker", broker=broker, error=str(problem))
        return None
