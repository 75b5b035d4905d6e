"""One term of office of the active controller: one queue, one writer (seed 1 A, B, D).

Everything that happens becomes an event; events are handled one after another,
by nobody else. A handler lets the domain decide, has the writer publish, and
leaves the telling to the delivery. Watches and heartbeats only enqueue.

Nothing here survives the term: a successor loads ZooKeeper and starts afresh.
When it ends, by whatever way, `run` raises, and the process resigns.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial

from leadline_client.errors import LeadlineError, NoController, Refused, StoreOutcomeUnknown
from leadline_client.wire import TopicPartition
from leadline_common.cause import cause_scope
from leadline_common.leader_election import TermEnded
from leadline_common.rpc import HeartbeatRequest
from leadline_common.zk.errors import ConnectionLoss, SessionExpired
from leadline_controller.domain.cluster import ClusterImage
from leadline_controller.runtime.audit.retention import OutboxRetention
from leadline_controller.runtime.channel.metadata_snapshot import MetadataView
from leadline_controller.runtime.engine import events
from leadline_controller.runtime.engine.context import EventContext, answer
from leadline_controller.runtime.engine.events import Event
from leadline_controller.runtime.engine.handler import EventHandler
from leadline_controller.runtime.engine.state_writer import StaleView
from leadline_controller.runtime.engine.term import Office
from leadline_controller.runtime.etags import ETags
from leadline_controller.runtime.idempotency import IdempotencyManager
from leadline_controller.runtime.ports import BrokerGateway
from leadline_controller.runtime.reassignment.agent import ReassignmentAgent
from leadline_controller.runtime.reassignment.drains import DrainManager
from leadline_controller.runtime.reassignment.healing import HealingManager
from leadline_controller.runtime.reassignment.plans import PlanManager
from leadline_controller.runtime.reassignment.progress import Progress
from leadline_controller.runtime.reassignment.tasks import TaskManager
from leadline_controller.runtime.reconciliation import Reconciler
from leadline_controller.runtime.topics.brokers import BrokerManager
from leadline_controller.runtime.topics.configs import ConfigManager
from leadline_controller.runtime.topics.controlled_shutdown import ControlledShutdownManager
from leadline_controller.runtime.topics.elections import ElectionManager
from leadline_controller.runtime.topics.partitions import PartitionManager
from leadline_controller.runtime.topics.topics import TopicManager

_log = logging.getLogger(__name__)

LEASE_CHECK_S = 0.1
"""How long this controller may go on serving after its lease has run out; writes ask each time."""


class ActiveController:
    """The active controller. Build it from a loaded image after winning, then `run` it.

    `ready` is set once everything that was due at the take-over is published.
    """

    def __init__(self, office: Office, image: ClusterImage, gateway: BrokerGateway) -> None:
        self.office = office
        self.image = image
        self.desk = EventContext(office, image, gateway)
        self.delivery = self.desk.delivery
        self.metadata = MetadataView(image, office.cluster_id, self.desk.controller)
        self.ready = asyncio.Event()
        self._brokers = BrokerManager(self.desk)
        self._topics = TopicManager(self.desk)
        self._configs = ConfigManager(self.desk)
        self.reassignments = ReassignmentAgent(self.desk)
        self.progress = Progress(self.reassignments.agenda.task_of)
        self.tasks = TaskManager(self.desk, self.reassignments, self.progress.size_of)
        self.plans = PlanManager(self.desk, self.tasks, self.reassignments.agenda)
        self.healing = HealingManager(self.desk, self.tasks, self.reassignments.agenda)
        self.drains = DrainManager(self.desk, self.tasks, self.reassignments.agenda)
        book = self.tasks.book
        self.etags = ETags(self.desk, self.metadata, lambda name: book.find(name).version)
        self._keepers: tuple[EventHandler, ...] = (
            self._brokers,
            self._topics,
            self._configs,
            IdempotencyManager(self.desk),
            PartitionManager(self.desk, self.reassignments),
            ElectionManager(self.desk),
            ControlledShutdownManager(self.desk),
            self.reassignments,
            self.tasks,
            self.plans,
            self.healing,
            self.drains,
            OutboxRetention(self.desk),
        )
        self._upkeep = Reconciler(self.desk, self._brokers, self._topics, self._keepers)
        self._handlers = {
            kind: handler
            for keeper in (self._upkeep, *self._keepers)
            for kind, handler in keeper.handlers.items()
        }

    def on_heartbeat(self, beat: HeartbeatRequest) -> None:
        """Take in what a broker says of itself: hints, all of it (rule R8).

        One that obeys a later controller may know more than this one (rule R11).
        """
        if beat.controller_epoch > self.office.term.epoch:
            self.desk.hint(events.OfficeInDoubt)
        if not self.delivery.on_heartbeat(beat):
            self.desk.hint(events.BrokersChanged)
            return
        now_ms = self.office.clock.monotonic_ms()
        self.progress.on_heartbeat(beat.broker_id, beat.moving, now_ms)
        if beat.metadata_version > self.image.version:
            self.image.advance_version(beat.metadata_version)
            self.delivery.metadata()
        if beat.isr_changes:
            self.desk.doubt([TopicPartition(topic, number) for topic, number in beat.isr_changes])

    async def run(self) -> None:
        """Rule until deposed.

        Raises:
            TermEnded: the term is over.

        """
        desk = self.desk
        work = asyncio.create_task(self._work(), name="controller-engine")
        upkeep = asyncio.create_task(self._upkeep.run(), name="controller-upkeep")
        lost = asyncio.create_task(self.office.store.lost.wait(), name="controller-session")
        lease = asyncio.create_task(self._watch_lease(), name="controller-lease")
        tasks = (work, upkeep, lost, lease)
        try:
            await asyncio.wait((*tasks, desk.deposed), return_when=asyncio.FIRST_COMPLETED)
            for future in (desk.deposed, work, upkeep, lease):
                if future.done():
                    future.result()
            raise TermEnded("the ZooKeeper session is over")
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if not desk.deposed.cancel():
                desk.deposed.exception()
            for keeper in self._keepers:
                await keeper.close()
            await self.delivery.close()
            desk.refuse_all(NoController("this controller has just lost its office"))

    async def _work(self) -> None:
        try:
            self.office.store.on_reconnected(partial(self.desk.hint, events.Reconcile))
            await self._configs.load()
            await self._upkeep.begin()
            self.ready.set()
            while True:
                await self._handle(await self.desk.next_event())
                for keeper in self._keepers:
                    keeper.follow_up()
        except (SessionExpired, ConnectionLoss) as end:
            raise TermEnded(f"ZooKeeper was lost: {end}") from end

    async def _watch_lease(self) -> None:
        """Resign once the session may have expired elsewhere: no news of it may ever come (R10)."""
        while True:
            if not self.office.store.lease_valid():
                raise TermEnded("the lease on the ZooKeeper session has run out")
            await asyncio.sleep(LEASE_CHECK_S)

    async def _handle(self, event: Event) -> None:
        clock, metrics = self.office.clock, self.office.metrics
        begun = clock.monotonic_ms()
        name = type(event).__name__
        metrics.queue_seconds.labels(name).observe((begun - event.at_ms) / 1000)
        with cause_scope(event.cause):
            try:
                with self.desk.guarded(event, self.etags.check):
                    await self._handlers[type(event)](event)
                if isinstance(event, events.Request) and event.is_tried:
                    await self.desk.tell_of(event, "dry_run")
            except (TermEnded, SessionExpired, asyncio.CancelledError):
                answer(event, StoreOutcomeUnknown("this controller lost its office meanwhile"))
                raise
            except LeadlineError as refusal:
                answer(event, refusal)
                if not isinstance(event, events.Request):
                    _log.error("%s cannot be carried out: %s", name, refusal.message)
                elif isinstance(refusal, Refused):
                    await self.desk.tell_of(event, "refused", str(refusal))
            except Exception as problem:
                self._cut_short(event, problem)
        metrics.event_seconds.labels(name).observe((clock.monotonic_ms() - begun) / 1000)

    def _cut_short(self, event: Event, problem: Exception) -> None:
        """Leave what is undone to the reconciliation: the outcome is unknown (rule R7).

        A fault of one handler does not end the term either: a successor would have it too.
        """
        name = type(event).__name__
        answer(event, StoreOutcomeUnknown("the controller was cut short; look before repeating"))
        match problem:
            case ConnectionLoss():
                _log.warning("%s was cut short: no connection to ZooKeeper", name)
                if self.office.store.is_connected():  # else the reconnection will ask for it
                    self.desk.hint(events.Reconcile)
            case StaleView():
                _log.info("%s: %s has changed; looking again", name, problem)
                self.desk.hint(events.BrokersChanged)
                self.desk.hint(events.Reconcile)
            case _:
                _log.error("%s failed", name, exc_info=problem)
