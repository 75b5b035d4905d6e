"""The broker as its HTTP API sees it: one object, on one event loop.

It starts fenced and without logs: `start` finds the cluster, opens the logs,
registers, and returns; from then on the controller's commands give it roles.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from random import Random
from typing import Any

import structlog

from leadline_broker.runtime.cluster.broker_state import BrokerState
from leadline_broker.runtime.cluster.configuration import Configuration
from leadline_broker.runtime.cluster.coordinator_finder import CoordinatorFinder
from leadline_broker.runtime.cluster.heartbeat import Heartbeats
from leadline_broker.runtime.cluster.metadata import ClusterMetadataCache
from leadline_broker.runtime.cluster.registrar import BrokerRegistrar
from leadline_broker.runtime.engine import BrokerDependencies, Engine
from leadline_broker.runtime.metrics import BrokerMetrics
from leadline_broker.runtime.ports import ClusterStore, LogStore, Peers
from leadline_broker.runtime.serving.producer_ids import ProducerIds
from leadline_broker.runtime.serving.views import FetchedData, ReplicaInfo
from leadline_client.errors import BrokerFenced, StorageFailed
from leadline_client.wire import Acks, PartitionOffsets, ProduceResult
from leadline_common.clock import Clock
from leadline_common.metrics import Metrics
from leadline_common.rpc import (
    CommandResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    LeaderAndIsrRequest,
    ReplicaFetchRequest,
    ReplicaFetchResponse,
    StopReplicaRequest,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from leadline_common.settings import BrokerSettings, stated

logger = structlog.get_logger(__name__)

OpenLogs = Callable[[str], LogStore]
"""Opens and recovers the logs of a cluster id; called in a thread."""


class Broker:
    """One broker: its replicas, its place in the cluster, and what it serves.

    Attributes:
        metadata: the cluster as the controller described it.

    """

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        store: ClusterStore,
        peers: Peers,
        open_logs: OpenLogs,
        clock: Clock,
        metrics: Metrics,
        random: Random,
    ) -> None:
        """Put the parts together; nothing is opened before `start`."""
        self.metadata = ClusterMetadataCache()
        self._store = store
        self._peers = peers
        self._open_logs = open_logs
        self._broker_state = BrokerState(settings.broker_id, store.lease_valid)
        self._producer_ids = ProducerIds(store)
        self._heartbeats = Heartbeats(
            peers,
            self._broker_state,
            interval_ms=settings.heartbeat_interval_ms,
            controller_url=self._controller_url,
            describe=self._describe,
            heard=self._heard,
        )
        self._registrar = BrokerRegistrar(
            store,
            self._broker_state,
            rack=settings.broker_rack,
            settings=stated(settings),
            random=random,
            on_fenced=self._fence,
            on_registered=self._heartbeats.trigger,
        )
        self._configuration = Configuration(settings, store)
        self.coordinator = CoordinatorFinder(store)
        self._dependencies = BrokerDependencies(
            settings=settings,
            configuration=self._configuration,
            broker_state=self._broker_state,
            store=store,
            peers=peers,
            metadata=self.metadata,
            metrics=BrokerMetrics(metrics),
            heartbeats=self._heartbeats,
            controller_url=self._controller_url,
            clock=clock,
            random=random,
        )
        self._engine: Engine | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._failed: asyncio.Future[None] | None = None

    # -- life ------------------------------------------------------------------

    async def start(self, url: str) -> None:
        """Join the cluster as the broker at `url` (seed 1: on_broker_startup, made safe).

        Waits for ZooKeeper and for the cluster's first controller, however long.

        Raises:
            WrongDirectory: the log directory is in use or another broker's.
            StorageFailed: what must be remembered cannot be read.

        """
        self._failed = asyncio.get_running_loop().create_future()
        self._broker_state.url = url
        cluster_id = await self._registrar.connect()
        await self._configuration.refresh()
        logs = await asyncio.to_thread(self._open_logs, cluster_id)
        engine = self._engine = Engine(self._dependencies, logs, self._storage_failed)
        self._dependencies.metrics.watch(
            engine.replicas,
            sessions=lambda: len(engine.sessions),
            waiting=lambda: len(engine.acks),
            throttle=lambda: engine.throttle.bytes_per_s,
            lease_left_ms=self._store.lease_left_ms,
            staged_bytes=lambda: engine.staging.used_bytes,
        )
        self._configuration.on_change = engine.reconfigure
        for loop in (*engine.loops(), self._configuration.run()):
            self._spawn(loop)
        await self._registrar.register()
        self._spawn(self._registrar.run())
        self._spawn(self._heartbeats.run())
        self._spawn(self.coordinator.run())

    async def failed(self) -> None:
        """Wait until the broker cannot go on; raises the reason."""
        if self._failed is not None:
            await asyncio.shield(self._failed)

    async def hand_over(self) -> None:
        """Let others lead what is led here, and go on serving meanwhile (controlled shutdown).

        Takes `controlled.shutdown.timeout.ms` at most.
        """
        engine, settings = self._engine, self._configuration.current
        if engine is not None and settings.controlled_shutdown_enable:
            await engine.shutdown.run(settings.controlled_shutdown_timeout_ms)

    def stop_serving(self) -> None:
        """Refuse from now on, and answer everybody who waits."""
        self._broker_state.stopping = True
        self._fence()
        if self._engine is not None:
            self._engine.offset_finder.stop()

    async def close(self) -> None:
        """Stop in good order: logs flushed, marker left, registration gone at once."""
        self.stop_serving()
        engine = self._engine
        if engine is not None:
            await engine.fetchers.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if engine is not None:
            await engine.finish_background()
            with suppress(StorageFailed):  # The high watermarks are learnt anew.
                await engine.maintenance.checkpoint()
            incarnation = self._broker_state.last_incarnation
            clean = await asyncio.to_thread(engine.logs.close, incarnation)
            logger.info("logs closed", clean=clean, incarnation=incarnation)
        await self._store.close()
        await self._peers.close()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        task.add_done_callback(self._task_ended)
        self._tasks.append(task)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        """End the broker with any of its endless tasks: half a broker is worse than none."""
        if task.cancelled():
            return
        error = task.exception() or RuntimeError("an endless task ended")
        logger.error("broker fails", exc_info=error)
        self._fail(error)

    def _storage_failed(self, error: StorageFailed) -> None:
        """Give up everything: nobody knows what is on the disk, and an fsync is not tried twice."""
        logger.error("storage failed", reason=error.message)
        self._broker_state.stopping = True
        # Not at once: an effect of some replica is being carried out just now.
        asyncio.get_running_loop().call_soon(self._fence)
        self._fail(error)

    def _fail(self, error: BaseException) -> None:
        if self._failed is not None and not self._failed.done():
            self._failed.set_exception(error)

    def _fence(self) -> None:
        self._broker_state.fence()
        if self._engine is not None:
            self._engine.fence_all()

    @property
    def engine(self) -> Engine:
        """What runs on its logs; raises BrokerFenced while it starts."""
        if self._engine is None:
            raise BrokerFenced("the broker is starting")
        return self._engine

    # -- who it is -------------------------------------------------------------

    @property
    def broker_id(self) -> int:
        """The number of this broker."""
        return self._broker_state.broker_id

    @property
    def url(self) -> str:
        """The address under which it is registered."""
        return self._broker_state.url

    @property
    def incarnation(self) -> int:
        """The registration in force (rule R9); -1 while there is none."""
        return self._broker_state.incarnation

    @property
    def granted(self) -> bool:
        """Whether the controller has given this incarnation its full grant."""
        return self._broker_state.granted

    def readiness(self) -> list[str]:
        """Return why this broker is not ready to serve; nothing when it is."""
        reasons = []
        if self._engine is None:
            reasons.append("starting: no cluster or no logs yet")
        if not self._store.is_connected():
            reasons.append("no session with ZooKeeper")
        if not self._broker_state.granted:
            reasons.append("no grant from the controller in this incarnation")
        elif not self._broker_state.lease_valid():
            reasons.append("the lease has run out")
        return reasons

    def _controller_url(self) -> str:
        known = self._registrar.controller or self.metadata.controller
        return known.url if known else ""

    def _describe(self, isr_changes: list[tuple[str, int]]) -> HeartbeatRequest:
        engine = self.engine
        engine.throttle.asking()
        return HeartbeatRequest(
            broker_id=self.broker_id,
            incarnation=self.incarnation,
            controller_epoch=engine.commands.controller_epoch,
            granted=self.granted,
            metadata_version=self.metadata.version,
            replicas=engine.replicas.applied_count,
            digest=engine.replicas.digest,
            isr_changes=isr_changes,
            moving=engine.moving(),
        )

    def _heard(self, answer: HeartbeatResponse) -> None:
        """Do as the controller says; a deposed one that still answers says nothing."""
        engine = self.engine
        if answer.controller_epoch >= engine.commands.controller_epoch:
            engine.throttle.heard(answer.moving_bytes_per_s)

    # -- what clients ask ------------------------------------------------------

    async def produce(
        self,
        topic: str,
        partition: int,
        data: bytearray,
        *,
        acks: Acks,
        timeout_ms: int,
        leader_epoch: int | None = None,
    ) -> ProduceResult:
        """Append v2 batches, which are stamped in place, and wait as `acks` says.

        Raises:
            UnknownTopic, UnknownPartition, NotLeader, LeaderNotAvailable,
            FencedLeaderEpoch, UnknownLeaderEpoch, BrokerFenced, CorruptBatch,
            BodyTooLarge, NotEnoughReplicas, OutOfOrderSequence, ProducerFenced,
            StorageFailed: nothing was appended.
            RequestTimedOut, NotEnoughReplicasAfterAppend, LeadershipLost: the
            outcome is unknown.

        """
        return await self.engine.serving.produce(
            topic, partition, data, acks=acks, timeout_ms=timeout_ms, leader_epoch=leader_epoch
        )

    async def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        max_bytes: int,
        min_bytes: int,
        wait_ms: int,
        leader_epoch: int | None = None,
        any_replica: bool = False,
    ) -> FetchedData:
        """Return committed batches from the one that holds `offset`.

        Waits up to `wait_ms` for `min_bytes`. At least one batch, if there is
        one, even if it is larger than `max_bytes`. With `any_replica` an in-sync
        follower answers too, up to the high watermark that it knows (seed 4).

        Raises:
            OffsetOutOfRange: before the log start or beyond the log end.
            OffsetNotAvailable: a follower does not have it: ask the leader.
            UnknownTopic, UnknownPartition, NotLeader, LeaderNotAvailable,
            FencedLeaderEpoch, UnknownLeaderEpoch, BrokerFenced, StorageFailed.

        """
        return await self.engine.serving.fetch(
            topic,
            partition,
            offset,
            max_bytes=max_bytes,
            min_bytes=min_bytes,
            wait_ms=wait_ms,
            leader_epoch=leader_epoch,
            any_replica=any_replica,
        )

    def offsets(self, topic: str, partition: int) -> PartitionOffsets:
        """Return the ends of a partition that this broker leads (OffsetNotAvailable: KIP-207)."""
        return self.engine.serving.offsets(topic, partition)

    def replicas(self) -> list[ReplicaInfo]:
        """Return every local replica, by topic and partition."""
        partitions = self.engine.replicas.all()
        rows = [partition.describe() for partition in partitions]
        return sorted(rows, key=lambda row: (row.topic, row.partition))

    async def allocate_producer_id(self) -> tuple[int, int]:
        """Return a producer id that nobody else has, and its first epoch."""
        if self._engine is None:
            raise BrokerFenced("the broker is starting")
        return await self._producer_ids.allocate()

    # -- what other services ask -----------------------------------------------

    def leader_and_isr(self, request: LeaderAndIsrRequest) -> CommandResponse:
        """Take the roles that the controller grants; see `ControllerCommands`."""
        granted, engine = self.granted, self.engine
        moves = any(row.adding for topic in request.topics for row in topic.partitions)
        if moves:
            engine.throttle.begin()
        answer = engine.commands.leader_and_isr(request)
        if moves or not granted:
            self._heartbeats.trigger()
        return answer

    def stop_replica(self, request: StopReplicaRequest) -> CommandResponse:
        """Stop replicas, and delete their logs if told to; see `ControllerCommands`."""
        return self.engine.commands.stop_replica(request)

    def update_metadata(self, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
        """Take the cluster's metadata from the controller.

        Raises:
            InvalidRequest, StaleIncarnation, StaleControllerEpoch: not for this
                broker, or not from the present controller.
            StaleVersion: see `ClusterMetadataCache.apply`.

        """
        commands = self.engine.commands
        self._broker_state.require_addressed(request.broker_id, request.incarnation)
        commands.obey(request.controller.epoch)
        version = self.metadata.apply(request)
        self.engine.take_configs(request.topics)
        self._broker_state.learn(request.brokers)
        return UpdateMetadataResponse(commands.controller_epoch, version)

    async def replica_fetch(self, request: ReplicaFetchRequest) -> ReplicaFetchResponse:
        """Serve a follower; see `FetchSessions`."""
        return await self.engine.sessions.fetch(request, self.incarnation)
