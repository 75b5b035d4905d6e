"""Self-healing (seed 2, KIP-46): discovery of failed brokers, and mitigation in chunks.

Discovery is the controller's own broker callback, not a scan: whenever the live
brokers have changed, those that have gone are noted in `/admin/failed_brokers`, with
the time of the first news, and taken out again when they return.

Mitigation: once a broker is dead, its partitions are split into chunks, each a task
that is `preparing`; then its note goes. Chunks are launched one after another, with
targets chosen at that moment, so that one which is not needed any more moves nothing.
When the broker returns, the chunks that have not begun are cancelled; one that runs is
finished. A controller that dies between any two of these writes leaves chunks whose
partitions its successor finds covered, and queues the rest.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import msgspec

from leadline_client.wire import TopicPartition
from leadline_common.failed_brokers import (
    FailedBroker,
    decode_failed_broker,
    encode_failed_broker,
    failed_broker_path,
)
from leadline_common.reassignments import ReassignmentPhase
from leadline_common.settings import ControllerSettings
from leadline_common.tasks import TaskState
from leadline_common.zk.errors import MultiFailed
from leadline_common.zk.ops import ANY_VERSION, CreateOp, DeleteOp, Op, SetOp
from leadline_common.znodes import FAILED_BROKERS
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
from leadline_controller.runtime.engine import events
from leadline_controller.runtime.engine.context import EventContext
from leadline_controller.runtime.engine.handler import EventHandler, Handlers
from leadline_controller.runtime.reassignment.healing_chunks import (
    FAILED_AT,
    PARTITIONS,
    broker_of,
    by_topic,
    details_of,
    names_of,
)
from leadline_controller.runtime.reassignment.task_store import Task
from leadline_controller.runtime.reassignment.tasks import TaskManager

_log = logging.getLogger(__name__)

HEAL = "heal"
"""The kind of a task that is a chunk."""
_WAITING = TaskState.PREPARING
RETRY_PAUSE_MS = 500
"""How long to wait after ZooKeeper had something else than was expected."""


@dataclass(frozen=True, slots=True)
class HealingDue(events.Hint):
    """Brokers, settings or chunks have changed, or a failed broker's time has come."""


class HealingManager(EventHandler):
    """The failed brokers, and what is done about them.

    `failed` are those noted in ZooKeeper. `is_suspended` while more brokers are down
    than the budget allows.
    """

    def __init__(self, desk: EventContext, tasks: TaskManager, agenda: ReassignmentQueue) -> None:
        self._desk = desk
        self._image = desk.image
        self._tasks = tasks
        self._agenda = agenda
        self.failed: dict[int, FailedBroker] = {}
        self._spoiled: set[int] = set()
        self.is_suspended = False
        self._incarnations = {b.id: b.incarnation for b in self._image.brokers.values()}
        self._told: frozenset[int] | None = None
        self._last_seen: object = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def handlers(self) -> Handlers:
        """Return who handles what."""
        return {HealingDue: self.on_due}

    @property
    def _settings(self) -> ControllerSettings:
        return self._desk.configs.current()

    async def take_over(self, cause: str) -> None:
        """Pick up the failed brokers that an earlier controller noted."""
        await self._read()
        self._desk.hint(HealingDue, cause)

    async def reconcile(self, _event: events.Reconcile) -> None:
        """Look for notes that somebody has removed or written."""
        await self._read()
        self._desk.hint(HealingDue)

    def follow_up(self) -> None:
        """Look whenever brokers, settings or chunks have changed."""
        seen = (self._image.live, self._settings, [(t.id, t.node.state) for t in self.chunks()])
        if seen != self._last_seen:
            self._last_seen = seen
            self._desk.hint(HealingDue)

    async def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()

    # -- to be looked at -------------------------------------------------------

    def chunks(self, broker: int | None = None) -> Iterator[Task]:
        """Yield the chunks that are not over, of one broker or of all, in order."""
        for task in self._tasks.book:
            is_open = task.node.kind == HEAL and not task.node.state.is_over
            if is_open and broker in (None, broker_of(task)):
                yield task

    def due_at(self, broker: int) -> int | None:
        """Return when a failed broker counts as dead (Unix ms); None while healing is off."""
        return due_at(self.failed[broker], self._settings.failed_broker_interval_ms)

    # -- the workflow ----------------------------------------------------------

    async def on_due(self, _event: HealingDue) -> None:
        """Note, cancel, queue and launch, whatever is due."""
        latest_ms = None
        try:
            await self._discover()
            await self._weigh()
            if not self.is_suspended:
                await self._queue_all()
                await self._aim_anew()
                await self._launch_next()
        except MultiFailed as failure:
            _log.warning("healing looks again: %s", failure)
            await self._read()
            latest_ms = RETRY_PAUSE_MS
        self._set_timer(latest_ms)

    async def _read(self) -> None:
        """Read the notes."""
        store = self._desk.office.store
        (names,) = await store.children([FAILED_BROKERS])
        ids = [int(name) for name in names or () if name.isdecimal()]
        nodes = await store.read_nodes([failed_broker_path(broker) for broker in ids])
        notes = {b: node for b, node in zip(ids, nodes, strict=True) if node is not None}
        found = {broker: _readable(broker, node.data) for broker, node in notes.items()}
        self.failed = {broker: note for broker, note in found.items() if note is not None}
        self._spoiled = found.keys() - self.failed.keys()

    async def _discover(self) -> None:
        """Note who has failed, and who is back (seed 2: onBrokerFailure)."""
        live = self._image.live
        lost = self._incarnations.keys() - live
        census = diff_failures(self._image, self.failed, lost, self._covered())
        for broker in census.failed:
            await self.on_broker_failure(broker, self._incarnations.get(broker, -1))
        for broker in census.returned:
            await self._on_broker_return(broker)
        for task in list(self.chunks()):
            if task.node.state is _WAITING and broker_of(task) in live:
                await self._tasks.cancel(task, self._desk.office.actor)
        self._incarnations = {b.id: b.incarnation for b in self._image.brokers.values()}
        await self._tell_live()

    async def on_broker_failure(self, broker: int, incarnation: int) -> None:
        """Write down when a broker was first found to have failed."""
        office = self._desk.office
        failed = FailedBroker(
            failure_timestamp=office.clock.wall_ms(),
            incarnation=incarnation,
            controller_epoch=office.term.epoch,
        )
        path, data = failed_broker_path(broker), encode_failed_broker(failed)
        op = SetOp(path, data, ANY_VERSION) if broker in self._spoiled else CreateOp(path, data)
        await self._commit([op], "broker_failed", broker, failed)
        self._spoiled.discard(broker)
        self.failed[broker] = failed

    async def _on_broker_return(self, broker: int) -> None:
        failed = self.failed[broker]
        op = DeleteOp(failed_broker_path(broker), ANY_VERSION)
        await self._commit([op], "broker_returned", broker, failed)
        del self.failed[broker]

    async def _tell_live(self) -> None:
        """Leave word in the audit of who is live."""
        live = self._image.live
        if live == self._told:
            return
        entry = self._desk.entry("brokers_changed", {}, after={BROKERS: sorted(live)})
        await self._desk.writer.commit([], entry)
        self._told = live

    async def _weigh(self) -> None:
        """Stop or resume healing by the budget."""
        percent = self._settings.failed_broker_budget_percent
        is_over = is_over_budget(self._image, self.failed, percent)
        if is_over == self.is_suspended:
            return
        self.is_suspended = is_over
        kind = "healing_suspended" if is_over else "healing_resumed"
        reason = f"brokers {sorted(self.failed)} are down; the budget is {percent} % of all"
        _log.warning("%s: %s", kind, reason)
        entry = self._desk.entry(kind, {"brokers": sorted(self.failed)}, reason=reason)
        await self._desk.writer.commit([], entry)

    # -- queueing --------------------------------------------------------------

    async def _queue_all(self) -> None:
        for broker in sorted(self._dead()):
            await self._queue(broker)

    def _dead(self) -> frozenset[int]:
        """Return the brokers that have been down for longer than the interval."""
        now_ms, live = self._desk.office.clock.wall_ms(), self._image.live
        due = {broker: self.due_at(broker) for broker in self.failed if broker not in live}
        return frozenset(broker for broker, at in due.items() if at is not None and at <= now_ms)

    async def _queue(self, broker: int) -> None:
        """Queue what a dead broker had; its note goes when all of it is queued."""
        failed_at = self.failed[broker].failure_timestamp
        covered = self._covered().get(broker, ())
        mine = [name for name in replicas_on(self._image, broker) if name not in covered]
        names = [name for name in mine if is_healable(self._image, name)]
        for chunk in chunk_partitions(names, self._settings.failed_broker_chunk_partitions):
            await self._queue_chunk(broker, chunk)
        if len(names) < len(mine):
            return  # the rest waits for a leader, or for a broker that can take it
        # A chunk of an earlier failure that still runs belongs to the history of that.
        queued = [t for t in self.chunks(broker) if t.node.details.get(FAILED_AT) == failed_at]
        counts = {"chunks": len(queued), "partitions": sum(len(names_of(t)) for t in queued)}
        op = DeleteOp(failed_broker_path(broker), ANY_VERSION)
        await self._commit([op], "healing_queued", broker, self.failed[broker], counts)
        del self.failed[broker]

    async def _queue_chunk(self, broker: int, names: Sequence[TopicPartition]) -> None:
        details = details_of(broker, self.failed[broker].failure_timestamp, names)
        reason = f"broker {broker} is dead"
        await self._tasks.prepare(self._submission((), reason, details))

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
            actor=self._desk.office.actor,
            reason=reason,
            throttle_bytes_per_s=None if throttle < 0 else throttle,
            is_auto_generated=True,
            retarget=retarget,
            details=details,
        )

    def _covered(self) -> dict[int, set[TopicPartition]]:
        """Return what chunks take care of, by broker."""
        covered: dict[int, set[TopicPartition]] = {}
        for task in self.chunks():
            covered.setdefault(broker_of(task), set()).update(names_of(task))
        return covered

    # -- launching -------------------------------------------------------------

    async def _launch_next(self) -> None:
        """Begin the next chunk, if none is under way."""
        queued = list(self.chunks())
        if self._settings.failed_broker_interval_ms == NEVER or not queued:
            return
        if any(self._goes_on(task) for task in queued):
            return
        task = next((task for task in queued if task.node.state is _WAITING), None)
        if task is None:
            return
        details = task.node.details
        names = sorted(names_of(task))
        targets = targets_for(self._image, names, broker_of(task), self._agenda)
        _log.info("healing %d of %d partitions of task %s", len(targets), len(names), task.id)
        await self._tasks.launch(task, self._submission(targets, task.node.reason, details))

    def _goes_on(self, task: Task) -> bool:
        """Tell whether a chunk is under way: not if all it has left is without a leader."""
        if task.node.state is not TaskState.RUNNING:
            return task.node.state is not _WAITING
        left = [self._agenda.get(name) for name in self._agenda.of_task(task.id)]
        return any(one is not None and one.phase is not ReassignmentPhase.WAITING for one in left)

    async def _aim_anew(self) -> None:
        """Give partitions another target where the one they were to get is dead as well.

        Their chunk would never end, and every other one waits for it.
        """
        healed = {broker_of(task) for task in self.chunks()}
        dead = self._dead() | (healed - self._image.live)
        for task in list(self.chunks()):
            stuck = self._aimed_at(task, dead) if task.node.state is TaskState.RUNNING else []
            targets = targets_for(self._image, stuck, broker_of(task), ())
            if not targets:
                continue
            details = {**task.node.details, PARTITIONS: by_topic(targets)}
            reason = f"broker {broker_of(task)} is dead, and so is what was to take its place"
            _log.info("%d partitions of task %s get other targets", len(targets), task.id)
            wanted = self._submission(targets, reason, details, retarget=True)
            await self._tasks.launch(await self._tasks.prepare(wanted), wanted)

    def _aimed_at(self, task: Task, dead: Set[int]) -> list[TopicPartition]:
        """Return the partitions of a chunk that a dead broker is to get.

        Not those that it has already: its own chunks see to them, after this one.
        """
        return [
            name
            for name in self._agenda.of_task(task.id)
            if (entry := self._agenda.get(name))
            and dead & (set(entry.intent.target) - set(entry.intent.start))
        ]

    # -- within ----------------------------------------------------------------

    async def _commit(
        self,
        ops: Sequence[Op],
        kind: str,
        broker: int,
        failed: FailedBroker,
        more: Mapping[str, Any] | None = None,
    ) -> None:
        after = {
            FAILED_AT: failed.failure_timestamp,
            "incarnation": failed.incarnation,
            "controller_epoch": failed.controller_epoch,
            **(more or {}),
        }
        _log.info("%s: broker %d, %s", kind, broker, after)
        await self._desk.writer.commit(ops, self._desk.entry(kind, {"broker": broker}, after=after))

    def _set_timer(self, latest_ms: int | None = None) -> None:
        """Look again when the next failed broker counts as dead, or in `latest_ms`."""
        if self._timer is not None:
            self._timer.cancel()
        now_ms = self._desk.office.clock.wall_ms()
        due = [self.due_at(broker) for broker in self.failed]
        coming = [at - now_ms for at in due if at is not None and at > now_ms]
        coming += [] if latest_ms is None else [latest_ms]
        if coming:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(min(coming) / 1000, self._desk.hint, HealingDue)


def _readable(broker: int, data: bytes) -> FailedBroker | None:
    """Decode a note that somebody may have written."""
    try:
        return decode_failed_broker(data)
    except msgspec.MsgspecError as problem:
        _log.error("the failed broker %d cannot be read: %s", broker, problem)
        return None
