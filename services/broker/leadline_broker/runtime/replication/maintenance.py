"""Periodic work: ISR checks, high watermark checkpoints, retention, strays, deletions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Final

import structlog

from leadline_broker.domain.state import ReplicaKey
from leadline_broker.runtime.cluster.broker_state import BrokerState
from leadline_broker.runtime.cluster.configuration import Configuration
from leadline_broker.runtime.cluster.directory_version import DirectoryVersion
from leadline_broker.runtime.ports import LogStore
from leadline_broker.runtime.replication.partition import Execute, Partition
from leadline_broker.runtime.replication.remembered_producers import (
    CROWDED_EXPIRATION_MS,
    RememberedProducers,
)
from leadline_broker.runtime.replication.replica_manager import ReplicaManager
from leadline_client.errors import StorageFailed
from leadline_common.clock import Clock
from leadline_common.cluster_time import ClusterTime
from leadline_common.settings import BrokerSettings
from leadline_common.slices import batched, in_turns, slices

logger = structlog.get_logger(__name__)

_LONGEST_ISR_CHECK_MS: Final = 500
_ISR_CHECK_PAUSE_S: Final = 0.05
"""Pause after 500 partitions, whose check takes 5 ms: roles and fetches need the processor more."""
_STRAY_CHECK_MS: Final = 600_000
_DELETION_RETRY_MS: Final = 5_000


@dataclass(eq=False, kw_only=True)
class Maintenance:
    """The periodic work of a broker. Owned by the event loop, except for writing files."""

    configuration: Configuration
    broker_state: BrokerState
    replicas: ReplicaManager
    logs: LogStore
    directory_version: DirectoryVersion
    producers: RememberedProducers
    clock: Clock
    time: ClusterTime
    execute: Execute
    _checkpointed: dict[ReplicaKey, int] | None = field(default_factory=dict, init=False)
    _writing: asyncio.Future[None] | None = field(default=None, init=False)
    _must_raise_version: bool = field(default=False, init=False)

    def loops(self) -> list[Coroutine[Any, Any, None]]:
        """Return the coroutines to run; they never return."""
        return [
            self._every(_isr_check_ms, self.check_isrs),
            self._every(
                lambda settings: settings.replica_high_watermark_checkpoint_interval_ms,
                self.checkpoint_and_raise_version,
            ),
            self._every(
                lambda settings: settings.log_retention_check_interval_ms, self.apply_retention
            ),
            self._every(_stray_check_ms, self.purge_strays),
            self._every(lambda _: _DELETION_RETRY_MS, self.finish_deletions),
        ]

    async def _every(
        self,
        interval_ms: Callable[[BrokerSettings], int],
        work: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        while True:
            await asyncio.sleep(interval_ms(self.configuration.current) / 1000)
            try:
                await work()
            except StorageFailed as error:
                logger.warning("maintenance postponed", work=work.__name__, reason=error.message)

    async def check_isrs(self) -> None:
        """Let partitions with an incomplete ISR or uncommitted records shrink or grow their ISR.

        Replication V3, section G: maybe_change_ISR. Without a lease nothing is proposed: after
        a long pause of this process every follower seems to lag. After the loss of a broker there
        are tens of thousands, and nothing is in less of a hurry than a lag of seconds.
        """
        unsettled = batched(list(self.replicas.unsettled))
        async for some in in_turns(unsettled, _ISR_CHECK_PAUSE_S):
            if not self.broker_state.lease_valid():
                return
            now = self.clock.monotonic_ms()
            for partition in some:
                self.execute(partition, partition.replica.maybe_change_isr(now))
                self.replicas.applied(partition)

    async def checkpoint_and_raise_version(self) -> None:
        """Write the high watermarks if any has changed, and raise the directory's version then.

        From then on a copy of the directory from before, in which records may be missing, is known
        to be older.
        """
        if await self.checkpoint():
            self._must_raise_version = True
        if self._must_raise_version:
            self._must_raise_version = not await self.directory_version.raise_version()

    async def checkpoint(self) -> bool:
        """Write the high watermarks if any has changed, and return whether one has.

        A thread that writes goes on if this is cancelled, as when the broker stops. The next call
        waits for it: it could bring back the entry of a log that is gone.
        """
        while self._writing is not None and not self._writing.done():
            await asyncio.wait({self._writing})
        high_watermarks: dict[ReplicaKey, int] = {}
        async for some in slices(self.replicas.all()):
            high_watermarks |= {
                partition.key: partition.replica.state.high_watermark
                for partition in some
                if partition.log.log_end_offset
            }
        if high_watermarks == self._checkpointed:
            return False
        self._checkpointed = None  # Until the thread ends, there may be these or those before.
        write = asyncio.to_thread(self.logs.checkpoint_high_watermarks, high_watermarks)
        self._writing = asyncio.create_task(write)
        await asyncio.shield(self._writing)
        self._checkpointed = high_watermarks
        return True

    async def apply_retention(self) -> None:
        """Delete closed segments past their retention, and forget idle producers."""
        is_crowded = self.producers.is_crowded
        for partition in self.replicas.all():
            if partition.log.log_end_offset and not partition.log.failed:
                await self._apply_retention(partition)
                self._forget_idle_producers(partition, is_crowded=is_crowded)
                await asyncio.sleep(0)

    def _forget_idle_producers(self, partition: Partition, *, is_crowded: bool) -> None:
        """Forget the producers and applications that have written nothing for their time.

        Time is monotonic. If the wall clock is set forward, a producer that was forgotten could
        write a batch twice; if it was ahead, none would be forgotten for as long.
        """
        producers, settings = partition.log.producers, self.configuration.current
        idle_ms = settings.producer_id_expiration_ms
        if is_crowded:
            idle_ms = min(idle_ms, CROWDED_EXPIRATION_MS)
        now_ms = self.clock.monotonic_ms()
        producers.mark_active(now_ms)
        producers.expire(now_ms - idle_ms)
        producers.publishes.expire(now_ms - settings.publish_app_retention_ms)

    async def _apply_retention(self, partition: Partition) -> None:
        """Apply the retention of one partition; its failure must not affect the others."""
        removed_bytes = 0
        try:
            while size_bytes := self._delete_expired(partition):
                removed_bytes += size_bytes
                if (removal := partition.log.removal()) is not None:
                    await asyncio.to_thread(removal)
        except StorageFailed as error:
            logger.warning("retention postponed", partition=partition.key, reason=error.message)
        if removed_bytes:
            logger.info(
                "segments deleted by retention",
                partition=partition.key,
                removed_bytes=removed_bytes,
            )

    def _delete_expired(self, partition: Partition) -> int:
        return partition.log.apply_retention(
            self.time.earliest_ms(),
            partition.settings.retention_ms,
            partition.settings.retention_bytes,
            partition.replica.state.high_watermark,
        )

    async def finish_deletions(self) -> None:
        """Go on with deletions that the disk has refused.

        The controller that ordered them repeats that, but the next one does not know of them.
        """
        for key in list(self.logs.unfinished):
            if key in self.logs.unfinished:  # Still: the name may be that of a new log by now.
                await asyncio.to_thread(self.logs.delete(key))

    async def purge_strays(self) -> None:
        """Delete the strays whose grace period has ended."""
        purged = await asyncio.to_thread(
            self.logs.purge_strays,
            self.time.earliest_ms(),
            self.configuration.current.stray_grace_ms,
        )
        for name in purged:
            logger.warning("stray replica deleted", name=name)


def _isr_check_ms(settings: BrokerSettings) -> int:
    return min(_LONGEST_ISR_CHECK_MS, settings.replica_lag_time_max_ms // 4)


def _stray_check_ms(settings: BrokerSettings) -> int:
    return min(_STRAY_CHECK_MS, max(1, settings.stray_grace_ms))
