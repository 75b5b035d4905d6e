"""The parts of a broker that need its logs, and how they are connected."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from itertools import count
from typing import Any

from leadline_broker.domain.effects import IsrProposal
from leadline_broker.runtime.cluster.directory_version import DirectoryVersion
from leadline_broker.runtime.cluster.heartbeat import Heartbeats
from leadline_broker.runtime.dependencies import BrokerDependencies
from leadline_broker.runtime.ports import LogStore
from leadline_broker.runtime.replication.commands import ControllerCommands
from leadline_broker.runtime.replication.controlled_shutdown import ControlledShutdown
from leadline_broker.runtime.replication.disk_watch import DiskWatch
from leadline_broker.runtime.replication.effect_executor import EffectExecutor, PendingAcks
from leadline_broker.runtime.replication.fetch_sessions import FetchSessions
from leadline_broker.runtime.replication.fetcher_manager import ReplicaFetcherManager
from leadline_broker.runtime.replication.fetchers import FetchContext
from leadline_broker.runtime.replication.flusher import GroupFlusher
from leadline_broker.runtime.replication.isr_log import IsrLog
from leadline_broker.runtime.replication.isr_writer import IsrWriter
from leadline_broker.runtime.replication.maintenance import Maintenance
from leadline_broker.runtime.replication.partition import Partition
from leadline_broker.runtime.replication.remembered_producers import RememberedProducers
from leadline_broker.runtime.replication.removals import Removals
from leadline_broker.runtime.replication.repairs import Repairs
from leadline_broker.runtime.replication.replica_manager import ReplicaManager
from leadline_broker.runtime.replication.scrubber import Scrubber
from leadline_broker.runtime.replication.throttle import MovingThrottle, Throttle
from leadline_broker.runtime.replication.topic_settings import TopicSettings
from leadline_broker.runtime.serving.batch_checks import BatchChecks
from leadline_broker.runtime.serving.group_polls import GroupPolls
from leadline_broker.runtime.serving.load import LoadMeter
from leadline_broker.runtime.serving.offset_finder import OffsetFinder
from leadline_broker.runtime.serving.producer_ids import ProducerIds
from leadline_broker.runtime.serving.producer_sequences import ProducerSequences
from leadline_broker.runtime.serving.routing import RoutedRecords, RoutedRequests
from leadline_broker.runtime.serving.serving import Serving
from leadline_broker.runtime.serving.topic_appends import TopicAppends
from leadline_broker.runtime.staging.publishing import Publishing
from leadline_broker.runtime.staging.staged_copies import StagedCopies
from leadline_broker.runtime.staging.staged_copy_store import StagedCopyStore
from leadline_broker.runtime.staging.staging import Staging
from leadline_client.backoff import Backoff
from leadline_client.errors import StorageFailed
from leadline_common.cluster_time import ClusterTime
from leadline_common.rpc import UNKNOWN_TIME, HeartbeatRequest, HeartbeatResponse
from leadline_common.slices import slices


class Engine:
    """The replicas of a broker and everything that works on them. Owned by the event loop.

    Its parts are attributes; the HTTP API uses them directly. `on_failed(error)` is called when
    the disk can no longer be trusted, `on_hanging(error)` when it does not answer.
    """

    def __init__(
        self,
        dependencies: BrokerDependencies,
        logs: LogStore,
        on_failed: Callable[[StorageFailed], None],
        on_hanging: Callable[[StorageFailed], None],
    ) -> None:
        self._dependencies = dependencies
        self.removals = Removals()
        self._topic_settings = TopicSettings(dependencies.configuration.current)
        self.logs, self.clock, metrics = logs, dependencies.clock, dependencies.metrics
        self.time = ClusterTime(dependencies.clock)
        self.acks = PendingAcks()
        self._executor = EffectExecutor(self.acks, on_failed, self.removals.add, metrics.truncated)
        self.flusher, self.moving_flusher = self._flusher(on_failed), self._flusher(on_failed)
        self.throttle = MovingThrottle(
            sending=Throttle(dependencies.clock, metrics.moved_out.inc),
            receiving=Throttle(dependencies.clock, metrics.moved_in.inc),
        )
        self.fetchers = ReplicaFetcherManager(self._fetch_context())
        self.throttle.on_regrouped = self.fetchers.regroup
        self.replicas = ReplicaManager(
            dependencies.broker_state.broker_id, logs, self.fetchers, self._executor.execute
        )
        self._isr_log = IsrLog(lambda flush: asyncio.get_running_loop().call_soon(flush))
        self.isr_writer = IsrWriter(
            dependencies.store,
            execute=self._executor.execute,
            on_committed=self._isr_committed,
            on_applied=self.replicas.applied,
        )
        self._executor.connect(
            flusher=self.flusher,
            moving_flusher=self.moving_flusher,
            fetchers=self.fetchers,
            isr_writer=self.isr_writer,
        )
        logs.limit_open_files(dependencies.configuration.current.open_files_max)
        self.replicas.load(logs.stored(), self._topic_settings.before_known())
        self.repairs = self._repairs()
        self.sessions, self.heartbeats = self._sessions(), self._heartbeats()
        self.commands = self._commands()
        self.producer_ids = ProducerIds(dependencies.store)
        self.producers = self._remembered_producers()
        self.serving = self._serving()
        self.offset_finder = self._offset_finder()
        self.routed, self.routed_requests = self._routed(), self._routed_requests()
        self.topic_appends = self._topic_appends()
        self.group_polls = self._group_polls()
        self.copies = self._copies()
        self.staging = self._staging()
        self._disk_watch = self._watch_of_disk(on_hanging)
        self.copy_store = StagedCopyStore(
            broker_state=dependencies.broker_state, replicas=self.replicas, staging=self.staging
        )
        self.publishing = Publishing(self.serving, self.staging, self.producers, metrics=metrics)
        self.replicas.on_dropped = self.staging.forget
        self.load = self._load()
        self.maintenance = self._maintenance()
        self.controlled_shutdown = self._controlled_shutdown()

    def _flusher(self, on_failed: Callable[[StorageFailed], None]) -> GroupFlusher:
        return GroupFlusher(
            on_durable=self._executor.on_durable,
            on_failed=on_failed,
            on_group=self._dependencies.metrics.flushed,
        )

    def _fetch_context(self) -> FetchContext:
        return FetchContext(
            broker_state=self._dependencies.broker_state,
            peers=self._dependencies.peers,
            flusher=self.flusher,
            moving_flusher=self.moving_flusher,
            execute=self._executor.execute,
            clock=self._dependencies.clock,
            random=self._dependencies.random,
            settings=self._dependencies.settings,
            nonces=count(1),
            throttle=self.throttle,
            acks=self.acks,
        )

    def _sessions(self) -> FetchSessions:
        return FetchSessions(
            broker_state=self._dependencies.broker_state,
            find=self.replicas.find,
            execute=self._executor.execute,
            clock=self._dependencies.clock,
            throttle=self.throttle,
            read=self.repairs.read,
        )

    def _repairs(self) -> Repairs:
        return Repairs(
            broker_state=self._dependencies.broker_state,
            peers=self._dependencies.peers,
            clock=self._dependencies.clock,
            find=self.replicas.find,
            on_found=self._dependencies.metrics.damaged.inc,
            on_repaired=self._dependencies.metrics.repaired.inc,
            mark=self.flusher.mark,
        )

    def _scrubber(self) -> Scrubber:
        return Scrubber(
            configuration=self._dependencies.configuration,
            partitions=self.replicas.all,
            find=self.replicas.find,
            read=self.repairs.read,
            clock=self._dependencies.clock,
            random=self._dependencies.random,
            on_checked=self._dependencies.metrics.scrubbed.inc,
        )

    def _load(self) -> LoadMeter:
        return LoadMeter(
            self._dependencies.broker_state.broker_id,
            configuration=self._dependencies.configuration,
            replicas=self.replicas,
            logs=self.logs,
            clock=self._dependencies.clock,
        )

    def _heartbeats(self) -> Heartbeats:
        return Heartbeats(
            self._dependencies.peers,
            self._dependencies.broker_state,
            interval_ms=self._dependencies.settings.heartbeat_interval_ms,
            controller=self._dependencies.controller,
            build_request=self._heartbeat_request,
            on_response=self.on_heartbeat_response,
        )

    def _commands(self) -> ControllerCommands:
        return ControllerCommands(
            broker_state=self._dependencies.broker_state,
            replicas=self.replicas,
            logs=self.logs,
            metadata=self._dependencies.metadata,
            settings=self._topic_settings,
            heartbeats=self.heartbeats,
            throttle=self.throttle,
            execute=self._executor.execute,
            clock=self._dependencies.clock,
            in_background=self.removals.add,
        )

    def _remembered_producers(self) -> RememberedProducers:
        configuration = self._dependencies.configuration
        return RememberedProducers(
            replicas=self.replicas,
            clock=self._dependencies.clock,
            most=lambda: configuration.current.producer_ids_max,
        )

    def _serving(self) -> Serving:
        configuration, clock = self._dependencies.configuration, self._dependencies.clock
        return Serving(
            broker_state=self._dependencies.broker_state,
            replicas=self.replicas,
            metadata=self._dependencies.metadata,
            acks=self.acks,
            metrics=self._dependencies.metrics,
            executor=self._executor,
            checks=BatchChecks(
                lambda: configuration.current.message_max_decompressed_bytes, clock.monotonic_ms
            ),
            sequences=self._sequences(),
            producer_ids=self.producer_ids,
            repairs=self.repairs,
            clock=clock,
            time=self.time,
        )

    def _sequences(self) -> ProducerSequences:
        held = self._dependencies.metrics.held
        return ProducerSequences(producers=self.producers, on_held=held.inc)

    def _offset_finder(self) -> OffsetFinder:
        return OffsetFinder(
            broker_state=self._dependencies.broker_state,
            metadata=self._dependencies.metadata,
            replicas=self.replicas,
            serving=self.serving,
            peers=self._dependencies.peers,
            clock=self._dependencies.clock,
        )

    def _routed(self) -> RoutedRecords:
        return RoutedRecords(
            broker_state=self._dependencies.broker_state,
            metadata=self._dependencies.metadata,
            serving=self.serving,
            peers=self._dependencies.peers,
            clock=self._dependencies.clock,
            random=self._dependencies.random,
        )

    def _routed_requests(self) -> RoutedRequests:
        state = self._dependencies.broker_state
        return RoutedRequests(broker_state=state, serving=self.serving)

    def _topic_appends(self) -> TopicAppends:
        metadata, random = self._dependencies.metadata, self._dependencies.random
        return TopicAppends(metadata=metadata, routed=self.routed, random=random)

    def _group_polls(self) -> GroupPolls:
        return GroupPolls(
            coordinators=self._dependencies.coordinators,
            peers=self._dependencies.peers,
            routed=self.routed,
            offset_finder=self.offset_finder,
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
            in_background=self.removals.add,
        )

    def _maintenance(self) -> Maintenance:
        return Maintenance(
            configuration=self._dependencies.configuration,
            broker_state=self._dependencies.broker_state,
            replicas=self.replicas,
            logs=self.logs,
            directory_version=DirectoryVersion(self.logs, self._dependencies.store),
            producers=self.producers,
            clock=self._dependencies.clock,
            time=self.time,
            execute=self._executor.execute,
        )

    def _controlled_shutdown(self) -> ControlledShutdown:
        return ControlledShutdown(
            peers=self._dependencies.peers,
            broker_state=self._dependencies.broker_state,
            replicas=self.replicas,
            metadata=self._dependencies.metadata,
            controller=self._dependencies.controller,
            backoff=Backoff(self._dependencies.random.random, first_ms=100, longest_ms=1_000),
        )

    def loops(self) -> list[Coroutine[Any, Any, None]]:
        """Return the coroutines to run from the start; they never return."""
        flushers = self.flusher.run(), self.moving_flusher.run(), self._disk_watch.run()
        others = self.isr_writer.run(), self.staging.run(), self.copies.run(), self.load.run()
        repairs = self.repairs.run(), self._scrubber().run()
        return [*flushers, *others, *repairs, *self.maintenance.loops()]

    async def reconfigure(self) -> None:
        """Apply changed settings of this broker or of the cluster; to some replicas in each turn.

        Roles that arrive meanwhile have the new ones.
        """
        settings = self._dependencies.configuration.current
        self.logs.limit_open_files(settings.open_files_max)
        self._topic_settings.rebase(settings)
        async for some in slices(self.replicas.all()):
            for partition in some:
                if partition in self.replicas:
                    updated = self._topic_settings.updated(partition.settings)
                    self.replicas.configure(partition, updated)

    def take_opened(self) -> None:
        """Add the replicas whose logs have been opened since the last registration, fenced.

        Raises:
            StorageFailed: see `LogStore.take_opened`.

        """
        self.replicas.load(self.logs.take_opened(), self._topic_settings.before_known())

    def fence_all(self) -> None:
        """Fence every replica and close every fetch session at once."""
        self.replicas.fence_all()
        self.sessions.close_all()

    def _watch_of_disk(self, on_hanging: Callable[[StorageFailed], None]) -> DiskWatch:
        configuration = self._dependencies.configuration
        watched = self.flusher.progress, self.moving_flusher.progress, self.staging.oldest_write
        return DiskWatch(
            watched, lambda: configuration.current.log_flush_timeout_ms, on_hanging=on_hanging
        )

    def progress(self) -> tuple[int, ...]:
        """Return what changes with all that the disk ends while the broker stops."""
        flushed = self.flusher.ended, self.moving_flusher.ended
        return *flushed, self.staging.writing, len(self.removals), self.logs.closed

    def _heartbeat_request(self, isr_changes: list[tuple[str, int]]) -> HeartbeatRequest:
        self.throttle.on_heartbeat_sent()
        state = self._dependencies.broker_state
        return HeartbeatRequest(
            broker_id=state.broker_id,
            incarnation=state.incarnation,
            controller_epoch=self.commands.controller_epoch,
            granted=state.granted,
            metadata_version=self._dependencies.metadata.version,
            replicas=self.replicas.applied_count,
            digest=self.replicas.digest,
            isr_changes=isr_changes,
            moving=[row for partition in self.replicas.growing for row in partition.moving()],
            late=self.commands.late_roles.rows(self.replicas.applied_epoch),
            time_ms=self.clock.wall_ms(),
        )

    def on_heartbeat_response(self, response: HeartbeatResponse) -> None:
        """Apply the rates and the time that the controller says; ignore a former controller."""
        if response.controller_epoch >= self.commands.controller_epoch:
            self.throttle.on_heartbeat_response(response.moving)
            if response.time_ms != UNKNOWN_TIME:
                self.time.hear(response.time_ms or self.clock.wall_ms())

    def _isr_committed(
        self, partition: Partition, proposal: IsrProposal, members_before: int
    ) -> None:
        self._dependencies.metrics.isr_changed(proposal, members_before)
        self.heartbeats.isr_changed(partition.topic_partition)
        self._isr_log.add(partition.topic_partition, proposal)
