"""The parts of a running broker that stand on its logs, and how they are joined."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from itertools import count
from random import Random
from typing import Any

import structlog

from leadline_broker.domain.effects import IsrProposal
from leadline_broker.runtime.acks import PendingAcks
from leadline_broker.runtime.carrier import EffectCarrier
from leadline_broker.runtime.commands import Commands
from leadline_broker.runtime.fetch_sessions import FetchSessions
from leadline_broker.runtime.fetcher import FetchContext, Fetchers, FetchSettings
from leadline_broker.runtime.flusher import GroupFlusher
from leadline_broker.runtime.heartbeat import Heartbeats
from leadline_broker.runtime.isr_writer import IsrWriter
from leadline_broker.runtime.maintenance import Maintenance
from leadline_broker.runtime.metadata import MetadataCache
from leadline_broker.runtime.metrics import BrokerMetrics
from leadline_broker.runtime.partition import Partition
from leadline_broker.runtime.ports import ClusterStore, LogStore, Peers
from leadline_broker.runtime.replica_manager import ReplicaManager
from leadline_broker.runtime.serving import Serving
from leadline_broker.runtime.standing import Standing
from leadline_broker.runtime.topic_settings import TopicSettings
from leadline_client.errors import StorageFailed
from leadline_common.clock import Clock
from leadline_common.settings import BrokerSettings

logger = structlog.get_logger(__name__)


class Engine:
    """Replicas and everything that moves them. Owned by the event loop.

    `on_failed(error)` is told when the disk can no longer be trusted.
    """

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        standing: Standing,
        store: ClusterStore,
        peers: Peers,
        metadata: MetadataCache,
        metrics: BrokerMetrics,
        clock: Clock,
        random: Random,
        logs: LogStore,
        heartbeats: Heartbeats,
        on_failed: Callable[[StorageFailed], None],
    ) -> None:
        self.logs = logs
        self.acks = PendingAcks()
        self._metrics = metrics
        self._heartbeats = heartbeats
        self._background: set[asyncio.Future[None]] = set()
        carrier = EffectCarrier(self.acks, on_failed)
        self.flusher = GroupFlusher(
            on_durable=carrier.on_durable, on_failed=on_failed, on_group=metrics.flushed
        )
        self.fetchers = Fetchers(
            FetchContext(
                me=standing,
                peers=peers,
                flushes=self.flusher,
                carry_out=carrier.carry_out,
                clock=clock,
                random=random,
                settings=_fetch_settings(settings),
                nonces=count(1),
            )
        )
        self.replicas = ReplicaManager(standing.broker_id, logs, self.fetchers, carrier.carry_out)
        self.isr_writer = IsrWriter(
            store,
            carry_out=carrier.carry_out,
            on_committed=self._isr_committed,
            on_stepped_down=self.replicas.applied,
        )
        carrier.connect(flusher=self.flusher, fetchers=self.fetchers, isr=self.isr_writer)
        self.sessions = FetchSessions(
            find=self.replicas.find, carry_out=carrier.carry_out, clock=clock
        )
        topic_settings = TopicSettings(settings)
        self.replicas.load(logs.stored(), topic_settings.of({}))
        self.commands = Commands(
            standing=standing,
            replicas=self.replicas,
            logs=logs,
            settings=topic_settings,
            carry_out=carrier.carry_out,
            clock=clock,
            in_background=self._in_background,
        )
        self.serving = Serving(
            standing=standing,
            replicas=self.replicas,
            metadata=metadata,
            acks=self.acks,
            metrics=metrics,
            carrier=carrier,
            clock=clock,
        )
        self.maintenance = Maintenance(
            settings=settings,
            standing=standing,
            replicas=self.replicas,
            logs=logs,
            clock=clock,
            carry_out=carrier.carry_out,
        )

    def loops(self) -> list[Coroutine[Any, Any, None]]:
        """Return the endless tasks to run."""
        return [self.flusher.run(), self.isr_writer.run(), *self.maintenance.loops()]

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
        self._metrics.isr_changed(proposal, members_before)
        self._heartbeats.isr_changed(partition.topic, partition.partition)
        logger.info(
            "ISR changed",
            topic=partition.topic,
            partition=partition.partition,
            isr=proposal.isr,
            reason=proposal.reason,
        )


def _fetch_settings(settings: BrokerSettings) -> FetchSettings:
    return FetchSettings(
        wait_max_ms=settings.replica_fetch_wait_max_ms,
        min_bytes=settings.replica_fetch_min_bytes,
        max_bytes=settings.replica_fetch_max_bytes,
        lanes=settings.num_replica_fetchers,
    )
