"""The life cycle of a broker: start, fencing, controlled shutdown, close.

A broker starts fenced and without logs. `start` connects to the cluster, opens the logs and
registers; from then on the controller's commands give it roles.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import structlog

from leadline_broker.domain.state import Addresses, Directories
from leadline_broker.runtime.cluster.broker_state import BrokerState
from leadline_broker.runtime.cluster.configuration import Configuration
from leadline_broker.runtime.cluster.controller_check import ControllerCheck
from leadline_broker.runtime.cluster.coordinator_finder import CoordinatorFinder
from leadline_broker.runtime.cluster.metadata import ClusterMetadataCache
from leadline_broker.runtime.cluster.registrar import BrokerRegistrar
from leadline_broker.runtime.dependencies import BrokerDependencies
from leadline_broker.runtime.engine import Engine
from leadline_broker.runtime.metrics import BrokerMetrics
from leadline_broker.runtime.partition_metrics import Limits, ReplicaSource
from leadline_broker.runtime.ports import ClusterStore, LogStore, Peers
from leadline_broker.runtime.replication.disk_watch import ends_in_time
from leadline_broker.runtime.unopened_logs import open_later
from leadline_client.errors import BrokerFenced, StorageFailed
from leadline_common.clock import Clock
from leadline_common.identity import InternalAddress, ServiceIdentity
from leadline_common.keep_running import keep_running
from leadline_common.metrics import Metrics
from leadline_common.problems import Problem
from leadline_common.settings import BrokerSettings, stated
from leadline_common.zk.connection_record import ConnectionRecord

logger = structlog.get_logger(__name__)

OpenLogs = Callable[[str, Callable[[], None]], LogStore]
"""Opens and recovers the logs of a cluster id; called in a thread.

It calls the second argument before it reads each segment, from any thread, and stops when that
raises.
"""


class OpeningStopped(Exception):
    """The broker stops before its logs are open."""


class Broker:
    """One broker. Owned by the event loop.

    Attributes:
        state: its registration and grant, and the addresses of other brokers.
        metadata: the cluster's metadata, as sent by the controller.
        coordinator_finder: watches the group coordinator.

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
        record: ConnectionRecord | None = None,
    ) -> None:
        """Connect the parts; nothing is opened before `start`. The store writes the `record`."""
        self.state = BrokerState(settings.broker_id, store.lease_valid)
        self.metadata = ClusterMetadataCache()
        self.coordinator_finder = CoordinatorFinder(store)
        self._store = store
        self._record = record or ConnectionRecord()
        self._log_dir = Path(settings.log_dir)
        self._peers = peers
        self._open_logs = open_logs
        self._configuration = Configuration(settings, store)
        self._registrar = BrokerRegistrar(
            store,
            self.state,
            rack=settings.broker_rack,
            settings=stated(settings),
            random=random,
            directories=self._directories,
            on_fenced=self._fence,
            on_registered=self._registered,
        )
        self.controller_check = ControllerCheck(store, self.state, self._registrar.answered)
        self._dependencies = BrokerDependencies(
            settings=settings,
            configuration=self._configuration,
            broker_state=self.state,
            store=store,
            peers=peers,
            metadata=self.metadata,
            metrics=BrokerMetrics(
                metrics, Limits(settings.metrics_partitions_max, settings.metrics_topics_max)
            ),
            controller=self._controller,
            coordinators=self.coordinator_finder,
            clock=clock,
            random=random,
        )
        # From the start: a broker has a lease for as long as it recovers its logs, too.
        self._dependencies.metrics.read_from(
            {"lease_left_seconds": lambda: store.lease_left_ms() / 1000}
        )
        self._engine: Engine | None = None
        self._opening: asyncio.Task[LogStore] | None = None
        self._opened_segments = 0
        self._is_closing = False
        self._tasks: list[asyncio.Task[None]] = []
        self._failed: asyncio.Future[None] | None = None
        self._is_hanging = False

    @property
    def cluster_id(self) -> str:
        """The id of the cluster that this broker belongs to, "" until it has joined one."""
        return self._registrar.cluster_id

    @property
    def settings(self) -> BrokerSettings:
        """The settings in force."""
        return self._configuration.current

    @property
    def engine(self) -> Engine:
        """The parts that need the logs.

        Raises:
            BrokerFenced: the broker is starting and has not opened its logs yet.

        """
        if self._engine is None:
            raise BrokerFenced("the broker is starting")
        return self._engine

    async def start(self, addresses: Addresses) -> None:
        """Join the cluster as the broker at these addresses.

        Replication V3, section E (on_broker_startup), with rule R9. Waits for ZooKeeper and for
        the cluster's first controller without a time limit.

        Raises:
            WrongDirectory: the log directory is in use or belongs to another broker.
            StorageFailed: the log directory cannot be read.

        """
        self._failed = asyncio.get_running_loop().create_future()
        self.state.addresses = addresses
        cluster_id = await self._registrar.connect()
        await self._configuration.refresh()
        self._opening = asyncio.create_task(
            asyncio.to_thread(self._open_logs, cluster_id, self._count_opened)
        )
        logs = await asyncio.shield(self._opening)
        engine = self._engine = Engine(
            self._dependencies, logs, self._storage_failed, self._disk_hangs
        )
        self._watch_metrics(engine)
        self._configuration.on_change = engine.reconfigure
        for loop in engine.loops():
            self._spawn(loop)
        self._spawn(keep_running(self._configuration.run, "configuration"))
        await self._registrar.register()
        self._spawn(self._registrar.run())
        self._spawn(keep_running(engine.heartbeats.run, "heartbeats"))
        self._spawn(keep_running(self.coordinator_finder.run, "coordinator-finder"))
        self._spawn(open_later(logs, self._registrar.register_again))

    def _count_opened(self) -> None:
        if self._is_closing:
            raise OpeningStopped
        self._opened_segments += 1

    def _watch_metrics(self, engine: Engine) -> None:
        self._dependencies.metrics.watch(
            ReplicaSource(engine.replicas.all, self._log_dir, engine.logs.space),
            {
                "fetch_sessions": lambda: len(engine.sessions),
                "parked_produces": lambda: len(engine.acks),
                "moving_throttle_bytes": lambda: engine.throttle.bytes_per_s,
                "staged_bytes": lambda: engine.staging.used_bytes,
                "late_roles": lambda: len(engine.commands.late_roles),
                "producers": engine.producers.count_producers,
                "clock_ahead_seconds": lambda: engine.time.ahead_ms() / 1000,
            },
        )

    async def failed(self) -> None:
        """Wait until the broker fails, and raise the reason."""
        if self._failed is not None:
            await asyncio.shield(self._failed)

    def readiness(self) -> list[str]:
        """Return the reasons why this broker is not ready; empty when it is."""
        reasons = []
        if self._engine is None:
            reasons.append("starting: no cluster or no logs yet")
        if not self._store.is_connected():
            reasons.append(self._record.no_session(self._registrar.problem))
        if not self.state.granted:
            reasons.append("no grant from the controller in this incarnation")
        elif not self.state.lease_valid():
            reasons.append("the lease has expired")
        if self._engine is not None and self.state.granted:
            reasons += self._engine.commands.late_roles.problems()
        return reasons

    def problems(self) -> list[Problem]:
        """Return why this broker is not ready, and what is wrong although it is."""
        problems = [*map(Problem, self.readiness()), *self._full_disk()]
        if self._engine is not None:  # The other replicas are served, so that it stays ready.
            problems += [Problem(one, serving=True) for one in self._engine.fetchers.problems()]
        return problems

    def _full_disk(self) -> list[Problem]:
        """Return that the disk is full; the broker serves what it has, so that it stays ready."""
        free, needed = self._free_bytes(), self.settings.message_max_bytes
        if free is None or free >= needed:
            return []
        reason = (
            f"the disk of {self._log_dir} is full: {free} bytes are free, and a batch of records "
            f"may have {needed} (message.max.bytes)"
        )
        return [Problem(reason, serving=True)]

    def _free_bytes(self) -> int | None:
        """Return the free space on the disk of the logs, None while it is not known."""
        if self._engine is None:
            return None
        try:
            return self._engine.logs.space()[1]
        except OSError:  # The disk is gone, which others notice.
            return None

    async def controlled_shutdown(self) -> None:
        """Move the leaders to other brokers while this one still serves.

        Takes at most `controlled.shutdown.timeout.ms`, and up to 1.5 s for answers to clients.
        """
        engine, settings = self._engine, self._configuration.current
        if engine is not None and settings.controlled_shutdown_enable:
            await engine.controlled_shutdown.run(settings.controlled_shutdown_timeout_ms)

    def stop_serving(self) -> None:
        """Refuse requests from now on, and answer all waiting ones."""
        self.state.stopping = True
        self._fence()
        self.metadata.stop()
        if self._engine is not None:
            self._engine.offset_finder.stop()

    async def close(self) -> bool:
        """Shut down cleanly: flush the logs, write the marker, remove the registration.

        Logs that are being recovered stay as they are after the segment at hand: the next start
        recovers them.

        One that has failed removes its registration first, so that others lead at once.

        Returns:
            Whether everything has ended; False if threads wait for a disk that does not answer.

        """
        self._is_closing = True
        self.stop_serving()
        if self._has_failed:
            self._cancel_tasks()
            await self._store.close()
        has_ended = not self._is_hanging and await self._has_ended_in_time()
        await self._store.close()
        await self._peers.close()
        return has_ended

    async def _has_ended_in_time(self) -> bool:
        """End all work and close the logs; return whether the disk answers."""
        for work in (self._end_work, self._close_logs):
            if not await ends_in_time(work(), self._progress, self._flush_timeout_ms):
                waited_s = self._flush_timeout_ms() / 1000
                logger.error("the disk does not answer: logs not closed", waited_s=waited_s)
                return False
        return True

    def _progress(self) -> object:
        return self._opened_segments if self._engine is None else self._engine.progress()

    def _flush_timeout_ms(self) -> int:
        return self.settings.log_flush_timeout_ms

    async def _end_work(self) -> None:
        if self._opening is not None:
            await asyncio.gather(self._opening, return_exceptions=True)
        if self._engine is not None:
            await self._engine.fetchers.close()
        self._cancel_tasks()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._engine is not None:
            await self._engine.staging.finish()
            await self._engine.removals.finish()
            with suppress(StorageFailed):  # Replicas learn their high watermarks again.
                await self._engine.maintenance.checkpoint()

    async def _close_logs(self) -> None:
        if self._engine is not None:
            incarnation = self.state.last_incarnation
            clean = await asyncio.to_thread(self._engine.logs.close, incarnation)
            logger.info("logs closed", clean=clean, incarnation=incarnation)

    def _cancel_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        task.add_done_callback(self._task_ended)
        self._tasks.append(task)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        """Fail the whole broker if one of its permanent tasks ends."""
        if task.cancelled():
            return
        error = task.exception() or RuntimeError("a permanent task ended")
        logger.error("broker failed", exc_info=error)
        self._fail(error)

    def _storage_failed(self, error: StorageFailed) -> None:
        """Fail the broker: the content of the disk is unknown, and an fsync is never retried."""
        logger.error("storage failed", reason=error.message)
        self.state.stopping = True
        # Not at once, because an effect of some replica is being executed.
        asyncio.get_running_loop().call_soon(self._fence)
        self._fail(error)

    def _disk_hangs(self, error: StorageFailed) -> None:
        self._is_hanging = True
        self._storage_failed(error)

    @property
    def _has_failed(self) -> bool:
        return self._failed is not None and self._failed.done()

    def _fail(self, error: BaseException) -> None:
        if self._failed is not None and not self._has_failed:
            self._failed.set_exception(error)

    def _fence(self) -> None:
        self.state.fence()
        if self._engine is not None:
            self._engine.fence_all()

    async def _directories(self) -> Directories:
        self.engine.take_opened()
        return await self.engine.maintenance.directory_version.directories()

    def _registered(self) -> None:
        self.engine.heartbeats.trigger()

    def _controller(self) -> InternalAddress | None:
        found = self._registrar.controller or self.metadata.active_controller
        if found is None or not found.internal_url:
            return None
        return InternalAddress(ServiceIdentity("controller", found.id), found.internal_url)
