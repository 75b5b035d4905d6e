"""The parts of a running broker that stand on its logs, and how they are joined."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Any

import structlog

from leadline_broker.domain.effects import IsrProposal
from leadline_broker.runtime.backoff import Backoff
from leadline_broker.runtime.cluster.broker_state import BrokerState
from leadline_broker.runtime.cluster.configuration import Configuration
from leadline_broker.runtime.cluster.controlled_shutdown import ControlledShutdown
from leadline_broker.runtime.cluster.heartbeat import Heartbeats
from leadline_broker.runtime.cluster.metadata import ClusterMetadataCache
from leadline_broker.runtime.metrics import BrokerMetrics
from leadline_broker.runtime.ports import ClusterStore, LogStore, Peers
from leadline_broker.runtime.replication.commands import ControllerCommands
from leadline_broker.runtime.replication.effect_executor import EffectExecutor
from leadline_broker.runtime.replication.fetch_sessions import FetchSessions
from leadline_broker.runtime.replication.fetchers import (
    FetchContext,
    ReplicaFetcherManager,
    ReplicaFetchSettings,
)
from leadline_broker.runtime.replication.flusher import GroupFlusher
from leadline_broker.runtime.replication.isr_writer import IsrWriter
from leadline_broker.runtime.replication.maintenance import Maintenance
from leadline_broker.runtime.replication.partition import Partition, PartitionSettings
from leadline_broker.runtime.replication.replica_manager import ReplicaManager
from leadline_broker.runtime.replication.throttle import MovingThrottle, Throttle
from leadline_broker.runtime.replication.topic_settings import TopicSettings
from leadline_broker.runtime.serving.acks import PendingAcks
from leadline_broker.runtime.serving.load import LoadMeter
from leadline_broker.runtime.serving.offset_finder import OffsetFinder
from leadline_broker.runtime.serving.serving import Serving
from leadline_broker.runtime.staging.copy_store import StagedCopyStore
from leadline_broker.runtime.staging.publishing import Publishing
from leadline_broker.runtime.staging.staged_copies import StagedCopies
from leadline_broker.runtime.staging.staging import Staging
from leadline_client.errors import StorageFailed
from leadline_common.clock import Clock
from leadline_common.rpc import MovingRow, TopicRows
from leadline_common.settings import BrokerSettings

logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class BrokerDependencies:
    """What a broker works with, before it has any logs.

    `settings` are what it was started with, `configuration` knows those in force.
    """

    settings: BrokerSettings
    configuration: Configuration
    broker_state: BrokerState
    store: ClusterStore
    peers: Peers
    metadata: ClusterMetadataCache
    metrics: BrokerMetrics
    heartbeats: Heartbeats
    controller_url: Callable[[], str]
    clock: Clock
    random: Random


class Engine:
    """Replicas and everything that moves them. Owned by the event loop.

    `on_failed(error)` is told when the disk can no longer be trusted.
    """

    def __init__(
        self,
        dependencies: BrokerDependencies,
        logs: LogStore,
        on_failed: Callable[[StorageFailed], None],
    ) -> None:
        self._dependencies = dependencies
        self._background: set[asyncio.Future[None]] = set()
        self.logs = logs
        self.acks = PendingAcks()
        executor = self._executor = EffectExecutor(self.acks, on_failed)
        self.flusher, self.moving_flusher = (
            GroupFlusher(
                on_durable=executor.on_durable,
                on_failed=on_failed,
                on_group=dependencies.metrics.flushed,
            )
            for _ in range(2)
        )
        self.throttle = MovingThrottle(
            sending=Throttle(dependencies.clock, dependencies.metrics.moved_out),
            receiving=Throttle(dependencies.clock, dependencies.metrics.moved_in),
        )
        self.fetchers = ReplicaFetcherManager(self._fetch_context())
        self.replicas = ReplicaManager(
            dependencies.broker_state.broker_id, logs, self.fetchers, executor.execute
        )
        self.isr_writer = IsrWriter(
            dependencies.store,
            execute=executor.execute,
            on_committed=self._isr_committed,
            on_stepped_down=self.replicas.applied,
        )
        executor.connect(
            flusher=self.flusher,
            moving_flusher=self.moving_flusher,
            fetchers=self.fetchers,
            isr=self.isr_writer,
        )
        self.sessions = FetchSessions(
            find=self.replicas.find,
            execute=executor.execute,
            clock=dependencies.clock,
            sending=self.throttle.sending,
        )
        self._topic_settings = TopicSettings(dependencies.configuration.current)
        self._told: dict[str, PartitionSettings] = {}
        logs.limit_open_files(dependencies.configuration.current.open_files_max)
        self.replicas.load(logs.stored(), self._topic_settings.of({}))
        self.commands = self._commands()
        self.serving = self._serving()
        self.offset_finder = self._offset_finder()
        self.copies = self._copies()
        self.staging = self._staging()
        self.copy_store = StagedCopyStore(
            broker_state=dependencies.broker_state, replicas=self.replicas, staging=self.staging
        )
        self.publishing = Publishing(
            serving=self.serving, staging=self.staging, metrics=dependencies.metrics
        )
        self.replicas.on_dropped = self.staging.forget
        self.load = self._load_meter()
        self.maintenance = self._maintenance()
        self.shutdown = self._shutdown()

    def _fetch_context(self) -> FetchContext:
        dependencies, settings = self._dependencies, self._dependencies.settings
        return FetchContext(
            me=dependencies.broker_state,
            peers=dependencies.peers,
            flushes=self.flusher,
            moving_flushes=self.moving_flusher,
            execute=self._executor.execute,
            clock=dependencies.clock,
            random=dependencies.random,
            settings=ReplicaFetchSettings(
                wait_max_ms=settings.replica_fetch_wait_max_ms,
                min_bytes=settings.replica_fetch_min_bytes,
                max_bytes=settings.replica_fetch_max_bytes,
                lanes=settings.num_replica_fetchers,
            ),
            nonces=count(1),
            receiving=self.throttle.receiving,
        )

    def _commands(self) -> ControllerCommands:
        return ControllerCommands(
            broker_state=self._dependencies.broker_state,
            replicas=self.replicas,
            logs=self.logs,
            settings=self._topic_settings,
            execute=self._executor.execute,
            clock=self._dependencies.clock,
            in_background=self._in_background,
        )

    def _serving(self) -> Serving:
        return Serving(
            broker_state=self._dependencies.broker_state,
            replicas=self.replicas,
            metadata=self._dependencies.metadata,
            acks=self.acks,
            metrics=self._dependencies.metrics,
            executor=self._executor,
            clock=self._dependencies.clock,
        )

    def _offset_finder(self) -> OffsetFinder:
        return OffsetFinder(
            broker_state=self._dependencies.broker_state,
            metadata=self._dependencies.metadata,
            replicas=self.replicas,
            serving=self.serving,
            peers=self._dependencies.peers,
            clock=self._dependencies.clock,
        )

    def _copies(self) -> StagedCopies:
        return StagedCopies(
            broker_state=self._dependencies.broker_state,
            serving=self.serving,
            peers=self._dependencies.peers,
            metrics=self._dependencies.metrics,
            random=self._dependencies.random,
        )

    def _staging(self) -> Staging:
        return Staging(
            store=self.logs.staged,
            configuration=self._dependencies.configuration,
            broker_state=self._dependencies.broker_state,
            replicas=self.replicas,
            serving=self.serving,
            copies=self.copies,
            clock=self._dependencies.clock,
            in_background=self._in_background,
        )

    def _load_meter(self) -> LoadMeter:
        return LoadMeter(
            self._dependencies.broker_state.broker_id,
            configuration=self._dependencies.configuration,
            replicas=self.replicas,
            logs=self.logs,
            clock=self._dependencies.clock,
        )

    def _maintenance(self) -> Maintenance:
        return Maintenance(
            configuration=self._dependencies.configuration,
            broker_state=self._dependencies.broker_state,
            replicas=self.replicas,
            logs=self.logs,
            clock=self._dependencies.clock,
            execute=self._executor.execute,
        )

    def _shutdown(self) -> ControlledShutdown:
        return ControlledShutdown(
            peers=self._dependencies.peers,
            broker_state=self._dependencies.broker_state,
            replicas=self.replicas,
            metadata=self._dependencies.metadata,
            controller_url=self._dependencies.controller_url,
            backoff=Backoff(self._dependencies.random, first_ms=100, longest_ms=1_000),
        )

    def loops(self) -> list[Coroutine[Any, Any, None]]:
        """Return the endless tasks to run."""
        flushers = self.flusher.run(), self.moving_flusher.run()
        others = self.isr_writer.run(), self.staging.run(), self.copies.run(), self.load.run()
        return [*flushers, *others, *self.maintenance.loops()]

    def moving(self) -> list[MovingRow]:
        """Return how far the replicas have come that are being added to led partitions."""
        return [row for partition in self.replicas.growing for row in partition.moving()]

    def reconfigure(self) -> None:
        """Go by changed settings of this broker or the cluster, everywhere and at once."""
        settings = self._dependencies.configuration.current
        self.logs.limit_open_files(settings.open_files_max)
        self._topic_settings.rebase(settings)
        for partition in self.replicas.all():
            self.replicas.configure(partition, self._topic_settings.again(partition.settings))

    def take_configs(self, topics: Sequence[TopicRows]) -> None:
        """Go by what metadata says of topics' own settings, which change within an epoch."""
        for topic in topics:
            settings = self._topic_settings.of(topic.configs)
            if self._told.get(topic.topic_id) is settings:
                continue
            self._told[topic.topic_id] = settings
            for row in topic.partitions:
                partition = self.replicas.find((topic.topic_id, row.partition))
                if partition is not None:
                    self.replicas.configure(partition, settings)

    def fence_all(self) -> None:
        """Leave every role at once."""
        self.replicas.fence_all()
        self.sessions.close_all()

    async def finish_background(self) -> None:
        """Wait for deletions that are under way."""
        await asyncio.gather(*self._background, return_exceptions=True)

    def _in_background(self, work: Callable[[], None]) -> None:
        done = asyncio.get_running_loop().run_in_executor(None, work)
        self._background.add(done)
        done.add_done_callback(self._background.discard)

    def _isr_committed(
        self, partition: Partition, proposal: IsrProposal, members_before: int
    ) -> None:
        self._dependencies.metrics.isr_changed(proposal, members_before)
        self._dependencies.heartbeats.isr_changed(partition.topic, partition.partition)
        logger.info(
            "ISR changed",
            topic=partition.topic,
            partition=partition.partition,
            isr=proposal.isr,
            reason=proposal.reason,
        )
