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
from leadline_common.cause import cause_scope
from leadline_common.rpc import HeartbeatRequest
from leadline_common.zk.errors import ConnectionLoss, SessionExpired
from leadline_controller.domain.cluster import ClusterImage, TopicPartition
from leadline_controller.runtime import events
from leadline_controller.runtime.brokers import BrokerKeeper
from leadline_controller.runtime.configs import ConfigKeeper
from leadline_controller.runtime.desk import Desk, answer
from leadline_controller.runtime.drain import DrainKeeper
from leadline_controller.runtime.elections import ElectionKeeper
from leadline_controller.runtime.etags import ETags
from leadline_controller.runtime.events import Event
from leadline_controller.runtime.healing import HealingKeeper
from leadline_controller.runtime.idempotency import IdempotencyKeeper
from leadline_controller.runtime.keeper import Keeper
from leadline_controller.runtime.metadata import MetadataView
from leadline_controller.runtime.office import Office
from leadline_controller.runtime.partitions import PartitionKeeper
from leadline_controller.runtime.plans import PlanKeeper
from leadline_controller.runtime.ports import BrokerGateway
from leadline_controller.runtime.progress import Progress
from leadline_controller.runtime.reassignment_agent import ReassignmentAgent
from leadline_controller.runtime.shutdown import ShutdownKeeper
from leadline_controller.runtime.task_keeper import TaskKeeper
from leadline_controller.runtime.topics import TopicKeeper
from leadline_controller.runtime.trimming import OutboxKeeper
from leadline_controller.runtime.upkeep import Upkeep
from leadline_controller.runtime.writer import Deposed, StaleView

_log = logging.getLogger(__name__)

LEASE_CHECK_S = 0.1
"""How long this controller may go on serving after its lease has run out; writes ask each time."""


class Reign:
    """The active controller. Build it from a loaded image after winning, then `run` it.

    `ready` is set once everything that was due at the take-over is published.
    """

    def __init__(self, office: Office, image: ClusterImage, gateway: BrokerGateway) -> None:
        self.office = office
        self.image = image
        self.desk = Desk(office, image, gateway)
        self.delivery = self.desk.delivery
        self.metadata = MetadataView(image, office.cluster_id, self.desk.controller)
        self.ready = asyncio.Event()
        self._brokers = BrokerKeeper(self.desk)
        self._topics = TopicKeeper(self.desk)
        self._configs = ConfigKeeper(self.desk)
        self.reassignments = ReassignmentAgent(self.desk)
        self.progress = Progress(self.reassignments.agenda.task_of)
        self.tasks = TaskKeeper(self.desk, self.reassignments, self.progress.size_of)
        self.plans = PlanKeeper(self.desk, self.tasks, self.reassignments.agenda)
        self.healing = HealingKeeper(self.desk, self.tasks, self.reassignments.agenda)
        self.drains = DrainKeeper(self.desk, self.tasks, self.reassignments.agenda)
        book = self.tasks.book
        self.etags = ETags(self.desk, self.metadata, lambda name: book.find(name).version)
        self._keepers: tuple[Keeper, ...] = (
            self._brokers,
            self._topics,
            self._configs,
            IdempotencyKeeper(self.desk),
            PartitionKeeper(self.desk, self.reassignments),
            ElectionKeeper(self.desk),
            ShutdownKeeper(self.desk),
            self.reassignments,
            self.tasks,
            self.plans,
            self.healing,
            self.drains,
            OutboxKeeper(self.desk),
        )
        self._upkeep = Upkeep(self.desk, self._brokers, self._topics, self._keepers)
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
            self.image.see_version(beat.metadata_version)
            self.delivery.metadata()
        if beat.isr_changes:
            self.desk.doubt([TopicPartition(topic, number) for topic, number in beat.isr_changes])

    async def run(self) -> None:
        """Rule until deposed.

        Raises:
            Deposed: the term is over.

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
            raise Deposed("the ZooKeeper session is over")
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
            raise Deposed(f"ZooKeeper was lost: {end}") from end

    async def _watch_lease(self) -> None:
        """Resign once the session may have expired elsewhere: no news of it may ever come (R10)."""
        while True:
            if not self.office.store.lease_valid():
                raise Deposed("the lease on the ZooKeeper session has run out")
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
            except (Deposed, SessionExpired, asyncio.CancelledError):
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
