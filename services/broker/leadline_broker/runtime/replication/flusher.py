"""Group commit: one thread fsyncs whatever logs are dirty, again and again (rule R4).

While one group is on its way to the disk the next one gathers, so the slower
the disk, the larger the groups. A failed fsync is never tried again: the kernel
may have dropped the pages and would report success.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import structlog

from leadline_broker.domain.replica import Role
from leadline_broker.runtime.replication.partition import Partition
from leadline_client.errors import StorageFailed

logger = structlog.get_logger(__name__)

_RETRY_S: Final = 0.2
"""How long to wait for room on a full disk."""


class GroupFlusher:
    """Fsyncs marked logs in groups. Owned by the event loop, but for the fsyncs.

    `on_durable(partition)` is called on the loop after each log's fsync;
    `on_failed(error)` when an fsync has failed, which ends the broker;
    `on_group(size)` tells how many logs each group had.
    """

    def __init__(
        self,
        *,
        on_durable: Callable[[Partition], None],
        on_failed: Callable[[StorageFailed], None],
        on_group: Callable[[int], None],
    ) -> None:
        self._on_durable = on_durable
        self._on_failed = on_failed
        self._on_group = on_group
        self._dirty: dict[Partition, None] = {}
        self._wake = asyncio.Event()
        self._gathering: asyncio.Future[None] | None = None
        self._flushing: asyncio.Future[None] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="fsync")

    def mark(self, partition: Partition) -> None:
        """Have the log fsynced with the next group."""
        self._dirty[partition] = None
        self._wake.set()

    async def settled(self) -> None:
        """Wait until all logs that are marked now were fsynced."""
        waiting = self._flushing
        if self._dirty:
            if self._gathering is None:
                self._gathering = asyncio.get_running_loop().create_future()
            waiting = self._gathering
        if waiting is not None:
            await asyncio.shield(waiting)

    async def run(self) -> None:
        """Flush for ever."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                group, self._dirty = list(self._dirty), {}
                done = self._flushing = self._gathering or loop.create_future()
                self._gathering = None
                flushes = [partition.log.flush for partition in group]
                failures = await loop.run_in_executor(self._thread, _flush_all, flushes)
                self._flushing = None
                self._report(group, failures)
                done.set_result(None)
        finally:
            self._thread.shutdown(wait=True)

    def _report(self, group: list[Partition], failures: list[StorageFailed | None]) -> None:
        self._on_group(len(group))
        for partition, failure in zip(group, failures, strict=True):
            if failure is None:
                self._on_durable(partition)
            elif partition.log.failed:
                self._on_failed(failure)
            elif partition.log.durable_end_offset < partition.log.log_end_offset:
                # No room, or the log was closed meanwhile: only the former comes back.
                logger.warning("flush postponed", partition=partition.key, error=failure.message)
                asyncio.get_running_loop().call_later(_RETRY_S, self._mark_again, partition)

    def _mark_again(self, partition: Partition) -> None:
        if partition.replica.role is not Role.FENCED:
            self.mark(partition)


def _flush_all(flushes: Sequence[Callable[[], int]]) -> list[StorageFailed | None]:
    """Flush each log, in a thread; return what went wrong with it, or None."""
    results: list[StorageFailed | None] = []
    for flush in flushes:
        try:
            flush()
        except StorageFailed as failure:
            results.append(failure)
        else:
            results.append(None)
    return results
