"""The active controller for one leadership term (Replication V3, sections A, B, D).

Everything that happens becomes an event, and one queue carries all events. A handler lets
the domain decide and the state writer publish; the dispatcher sends requests to the
brokers. Watches and heartbeats only post events.

Nothing here outlives the term: the next controller loads its image from ZooKeeper. `run`
raises when the term ends, for whatever reason.
"""

from __future__ import annotations

import asyncio
from functools import partial

import structlog

from leadline_client.errors import NoController
from leadline_client.wire import TopicPartition
from leadline_common.cause import cause_scope, new_cause
from leadline_common.leader_election import Resigned, TermEnded
from leadline_common.rpc import HeartbeatRequest
from leadline_common.zk.errors import ConnectionLoss, SessionExpired
from leadline_common.znodes import BrokerRegistration
from leadline_controller.domain.broker_contacts import BrokerContacts, is_cut_off
from leadline_controller.domain.clocks import BrokerClocks
from leadline_controller.domain.cluster import ClusterImage
from leadline_controller.domain.reassignment.queue import ReassignmentQueue
from leadline_controller.runtime.audit.comparison import HistoryComparison
from leadline_controller.runtime.audit.replication import AuditReplicator
from leadline_controller.runtime.audit.retention import OutboxRetention
from leadline_controller.runtime.channel.broker_queue import BrokerRequestQueue
from leadline_controller.runtime.channel.calls import BrokerCalls
from leadline_controller.runtime.channel.dispatcher import BrokerDispatcher
from leadline_controller.runtime.channel.listener import Command, DispatchListener
from leadline_controller.runtime.channel.metadata_snapshot import MetadataView
from leadline_controller.runtime.channel.requests import RequestBuilder
from leadline_controller.runtime.engine.context import ControllerContext
from leadline_controller.runtime.engine.dynamic_configs import DynamicConfigs
from leadline_controller.runtime.engine.event_queue import EventHandler, EventQueue
from leadline_controller.runtime.engine.events import (
    BrokersChanged,
    ControllerChanged,
    Reconcile,
)
from leadline_controller.runtime.engine.executor import EventExecutor, isolated
from leadline_controller.runtime.engine.external_changes import ExternalChanges
from leadline_controller.runtime.engine.publishing import AuditLog, StatePublisher
from leadline_controller.runtime.engine.refusals import RefusalAudit
from leadline_controller.runtime.engine.state_writer import StateWriter
from leadline_controller.runtime.etags import ETags
from leadline_controller.runtime.idempotency import IdempotencyManager
from leadline_controller.runtime.ports import CommandGateway
from leadline_controller.runtime.reassignment.agent import ReassignmentAgent
from leadline_controller.runtime.reassignment.drains import DrainManager
from leadline_controller.runtime.reassignment.failure_records import FailureRecords
from leadline_controller.runtime.reassignment.healing import HealingManager
from leadline_controller.runtime.reassignment.intents import IntentNodes
from leadline_controller.runtime.reassignment.plans import PlanManager
from leadline_controller.runtime.reassignment.progress import ReassignmentProgress
from leadline_controller.runtime.reassignment.step_writer import StepWriter
from leadline_controller.runtime.reassignment.task_store import TaskStore
from leadline_controller.runtime.reassignment.tasks import TaskManager
from leadline_controller.runtime.reassignment.throttles import MovingThrottles
from leadline_controller.runtime.reconciliation import Reconciler
from leadline_controller.runtime.topics.brokers import BrokerManager
from leadline_controller.runtime.topics.configs import ConfigManager
from leadline_controller.runtime.topics.controlled_shutdown import ControlledShutdownManager
from leadline_controller.runtime.topics.deletions import DeletionManager
from leadline_controller.runtime.topics.elections import ElectionManager
from leadline_controller.runtime.topics.partitions import PartitionManager
from leadline_controller.runtime.topics.topics import TopicManager
from leadline_controller.runtime.users import UserManager

logger = structlog.get_logger(__name__)

LEASE_CHECK_S = 0.1
"""How long this controller may go on serving after its lease has run out; writes check it first."""
CONTACT_CHECK_S = 1.0
"""How often this controller looks whether it is in touch with the brokers."""


class ActiveController:
    """The active controller. Build it from a loaded image after the election, then `run` it.

    `ready` is set once everything that was due at the election is published.
    """

    def __init__(
        self,
        context: ControllerContext,
        image: ClusterImage,
        gateway: CommandGateway,
        replicator: AuditReplicator | None = None,
    ) -> None:
        self.context = context
        self.image = image
        self.ready = asyncio.Event()
        self.queue = EventQueue(context.clock)
        self.configs = DynamicConfigs(context.settings, image)
        self.reassignments = ReassignmentQueue()
        self.metadata = MetadataView(image, context.cluster_id, context.controller)
        self.dispatcher = BrokerDispatcher(image, self._make_request_queue)
        self._gateway = gateway
        self._clocks = BrokerClocks()
        self._contacts = BrokerContacts(context.settings.broker_contact_timeout_ms)
        self._requests = RequestBuilder(
            image,
            context.cluster_id,
            context.controller,
            context.settings.command_ack_timeout_ms,
        )
        max_ops, on_written = context.settings.zookeeper_multi_max_ops, self.dispatcher.send_roles
        self._writer = StateWriter(
            context.store, image, context.term, context.clock, max_ops, on_written
        )
        self._audit = AuditLog(self._writer, context.clock, context.actor)
        self._refusals = RefusalAudit(self._audit, self.queue, context.clock)
        self._external = ExternalChanges(context.store.outbox, image, self._writer, self._audit)
        self._writer.on_found = self._external.record_states
        self._writer.on_decided = context.metrics.count_elections
        self._publisher = StatePublisher(
            image, self.queue, self._writer, self.dispatcher, self._audit
        )
        reassignment_handlers = self._build_reassignments()
        self.etags = ETags(image, self.configs, self.metadata, self.tasks.store)
        comparison = HistoryComparison(
            context.store, image, self.queue, self._external, replicator, self.dispatcher
        )
        self._handlers = (
            *self._build_topics(),
            *reassignment_handlers,
            comparison,
            self._refusals,
        )
        self._build_engine()

    def _build_engine(self) -> None:
        context = self.context
        self._reconciler = Reconciler(
            context.term,
            context.store,
            self.image,
            self.queue,
            self.configs,
            self._publisher,
            self.dispatcher,
            context.clock,
            self._brokers,
            self._topics,
            self._external,
            self._handlers,
            context.metrics,
        )
        self._executor = EventExecutor(
            {
                kind: handle
                for handler in (self._reconciler, *self._handlers)
                for kind, handle in handler.registered().items()
            },
            self.queue,
            self._writer,
            self._refusals,
            context.clock,
            context.metrics,
            self.etags.check,
        )

    def _build_topics(self) -> tuple[EventHandler, ...]:
        context, store, clock = self.context, self.context.store, self.context.clock
        image, queue, configs, dispatcher = self.image, self.queue, self.configs, self.dispatcher
        writer, publisher, audit = self._writer, self._publisher, self._audit
        external, metrics = self._external, context.metrics
        self._brokers = BrokerManager(
            store, image, queue, publisher, dispatcher, clock, metrics, external
        )
        self._topics = TopicManager(
            store,
            image,
            queue,
            configs,
            writer,
            publisher,
            dispatcher,
            audit,
            external,
            context.new_id,
            context.random_index,
            context.charge_partitions,
        )
        self._config_manager = ConfigManager(
            store, image, queue, configs, writer, publisher, dispatcher, audit, external
        )
        return (
            self._brokers,
            self._topics,
            DeletionManager(
                store, image, queue, writer, dispatcher, audit, external, context.charge_partitions
            ),
            self._config_manager,
            IdempotencyManager(store, configs, writer, clock, context.time, context.term.epoch),
            PartitionManager(
                store,
                image,
                queue,
                writer,
                publisher,
                dispatcher,
                audit,
                self.agent,
                context.charge_partitions,
            ),
            ElectionManager(store, image, queue, configs, writer, publisher, audit, clock),
            ControlledShutdownManager(image, queue, publisher, dispatcher),
            UserManager(store, writer, audit, clock),
        )

    def _build_reassignments(self) -> tuple[EventHandler, ...]:
        context, store, clock = self.context, self.context.store, self.context.clock
        image, queue, configs = self.image, self.queue, self.configs
        writer, publisher, audit = self._writer, self._publisher, self._audit
        reassignments, intents = self.reassignments, IntentNodes(store, queue)
        self.progress = ReassignmentProgress(reassignments.task_of)
        steps = StepWriter(
            store,
            image,
            writer,
            publisher,
            self.dispatcher,
            audit,
            context.metrics,
            intents,
            reassignments,
            self._external,
        )
        self.agent = ReassignmentAgent(
            store, image, queue, configs, writer, audit, reassignments, intents, steps
        )
        self.tasks = TaskManager(
            TaskStore(store, queue, configs, writer, audit),
            image,
            queue,
            clock,
            self.agent,
            store.brokers_ever,
            self.progress.size_of,
        )
        tasks = self.tasks
        self.throttles = MovingThrottles(image, reassignments, tasks.store, configs)
        self.plans = PlanManager(
            image, queue, self._refusals, clock, context.new_id, tasks, reassignments
        )
        records = FailureRecords(store, image, writer, audit, clock, context.time)
        self.healing = HealingManager(
            records, image, queue, configs, audit, clock, tasks, reassignments
        )
        self.drains = DrainManager(image, queue, publisher, tasks, reassignments)
        self.outbox_retention = OutboxRetention(store.outbox, configs, writer)
        return (self.agent, tasks, self.plans, self.healing, self.drains, self.outbox_retention)

    def _make_request_queue(self, broker: BrokerRegistration) -> BrokerRequestQueue:
        listener = DispatchListener(
            progressed=self.dispatcher.progressed,
            invalidate=self.queue.invalidate,
            controller_changed=partial(self.queue.trigger, ControllerChanged),
            sent=self._count_request,
            holds_metadata=lambda: self.dispatcher.holds_metadata,
        )
        timeout_ms = self.context.settings.command_ack_timeout_ms
        calls = BrokerCalls(broker, self._gateway, listener, timeout_ms)
        return BrokerRequestQueue(broker, self.image, self._requests, listener, calls)

    def _count_request(self, command: Command, answered: bool, size: int) -> None:
        metrics = self.context.metrics
        metrics.commands.labels(command.value, "answered" if answered else "failed").inc()
        metrics.command_bytes.labels(command.value).inc(size)

    def on_heartbeat(self, beat: HeartbeatRequest) -> None:
        """Apply what a broker reports (rule R8).

        A broker with a later controller epoch may know more than this controller (rule R11).
        """
        if beat.controller_epoch > self.context.term.epoch:
            self.queue.trigger(ControllerChanged)
        if not self.dispatcher.on_heartbeat(beat):
            self.queue.trigger(BrokersChanged)
            return
        now_ms = self.context.clock.monotonic_ms()
        if self.dispatcher.can_connect(beat.broker_id):
            self._contacts.note(beat.broker_id, now_ms)
        if beat.time_ms:
            self._clocks.note(beat.broker_id, beat.time_ms, now_ms)
        self.progress.on_heartbeat(beat.broker_id, beat.moving, now_ms)
        if beat.metadata_version > self.image.version:
            self.image.advance_version(beat.metadata_version)
            self.dispatcher.send_metadata()
        if beat.isr_changes:
            self.queue.invalidate([TopicPartition(*one) for one in beat.isr_changes])

    def cluster_time_ms(self) -> int | None:
        """Return the time by the clocks of most brokers and this controller (Unix ms).

        It is None until enough of their clocks are known.
        """
        own_ms, now_ms = self.context.clock.wall_ms(), self.context.clock.monotonic_ms()
        return self._clocks.cluster_time_ms(self.image.brokers, own_ms, now_ms)

    def out_of_reach(self) -> list[int]:
        """Return the live brokers that this controller is not in touch with."""
        now_ms = self.context.clock.monotonic_ms()
        return self._contacts.out_of_reach(self.image.brokers, now_ms)

    # -- running ---------------------------------------------------------------

    async def run(self) -> None:
        """Run until leadership is lost.

        Raises:
            TermEnded: the term is over.
            Resigned: most brokers are out of reach.

        """
        store = self.context.store
        work = asyncio.create_task(self._handle_events(), name="controller-events")
        reconcile = asyncio.create_task(self._reconciler.run(), name="controller-reconciler")
        lost = asyncio.create_task(store.lost.wait(), name="controller-session")
        lease = asyncio.create_task(self._watch_lease(), name="controller-lease")
        contacts = asyncio.create_task(self._watch_contacts(), name="controller-contacts")
        tasks = (work, reconcile, lost, lease, contacts)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for ended in (work, reconcile, lease, contacts):
                if ended.done():
                    ended.result()
            raise TermEnded("the ZooKeeper session is over")
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for handler in self._handlers:
                await handler.close()
            await self.dispatcher.close()
            self.queue.close(NoController("this controller has just lost its leadership"))

    async def _watch_lease(self) -> None:
        """End the term when the lease runs out: an expired session may go unnoticed (R10)."""
        while True:
            if not self.context.store.lease_valid():
                raise TermEnded("the lease on the ZooKeeper session has run out")
            await asyncio.sleep(LEASE_CHECK_S)

    async def _watch_contacts(self) -> None:
        """Resign once most brokers are out of reach: nobody would learn of an election."""
        while True:
            missing = self.out_of_reach()
            if is_cut_off(len(missing), len(self.image.brokers)):
                raise Resigned(f"brokers {missing} are registered, but out of this one's reach")
            await asyncio.sleep(CONTACT_CHECK_S)

    async def _handle_events(self) -> None:
        try:
            self.context.store.on_reconnected(partial(self.queue.trigger, Reconcile))
            with cause_scope(f"term-{self.context.term.epoch}-{new_cause()}"):
                await isolated(
                    self._config_manager.load(),
                    "settings not loaded",
                    self._config_manager,
                    self.context.metrics,
                )
                await self._reconciler.begin()
            self.ready.set()
            while True:
                await self._executor.handle(await self.queue.next_event())
        except (SessionExpired, ConnectionLoss) as end:
            raise TermEnded(f"ZooKeeper was lost: {end}") from end
