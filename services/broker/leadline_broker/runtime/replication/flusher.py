"""Group commit: one thread fsyncs all dirty logs, group after group (rule R4).

While one group is written to the disk the next one forms, so a slower disk gets larger
groups. A failed fsync is never retried: the kernel may have dropped the pages and would
report success.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

import structlog

from leadline_broker.domain.replica import Role
from leadline_broker.runtime.replication.partition import Partition
from leadline_client.errors import StorageFailed

logger = structlog.get_logger(__name__)

_RETRY_S: Final = 0.2
"""How long to wait for space on a full disk."""


@dataclass(frozen=True, slots=True)
class FlushedGroup:
    """The fsyncs of one group: seconds for each log, and what was appended since the last one.

    Records and bytes are counted when the fsyncs begin; some that follow may be durable too.
    """

    seconds: Sequence[float]
    records: int
    size: int


@dataclass(eq=False, kw_only=True)
class GroupFlusher:
    """Fsyncs marked logs in groups. Owned by the event loop, except for the fsyncs.

    `on_durable(partition)` is called on the loop after each log's fsync, `on_failed(error)`
    when an fsync has failed, which stops the broker, and `on_group(group)` after each group.
    """

    on_durable: Callable[[Partition], None]
    on_failed: Callable[[StorageFailed], None]
    on_group: Callable[[FlushedGroup], None]
    _dirty: dict[Partition, None] = field(default_factory=dict, init=False)
    _wake: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _next_group: asyncio.Future[None] | None = field(default=None, init=False)
    _flushing: asyncio.Future[None] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="fsync")

    def mark(self, partition: Partition) -> None:
        """Fsync the log with the next group."""
        self._dirty[partition] = None
        self._wake.set()

    async def settled(self) -> None:
        """Wait until all logs that are marked now are fsynced."""
        waiting = self._flushing
        if self._dirty:
            if self._next_group is None:
                self._next_group = asyncio.get_running_loop().create_future()
            waiting = self._next_group
        if waiting is not None:
            await asyncio.shield(waiting)

    async def run(self) -> None:
        """Flush group after group; never returns."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                group, self._dirty = list(self._dirty), {}
                done = self._flushing = self._next_group or loop.create_future()
                self._next_group = None
                flushes = [partition.log.flush for partition in group]
                appended = [partition.take_unflushed() for partition in group]
                failures, seconds = await loop.run_in_executor(self._thread, _flush_all, flushes)
                self._flushing = None
                records = sum(traffic.records_in for traffic in appended)
                size = sum(traffic.bytes_in for traffic in appended)
                self.on_group(FlushedGroup(seconds, records, size))
                self._report(group, failures)
                done.set_result(None)
        finally:
            self._thread.shutdown(wait=True)

    def _report(self, group: list[Partition], failures: list[StorageFailed | None]) -> None:
        for partition, failure in zip(group, failures, strict=True):
            if failure is None:
                self.on_durable(partition)
            elif partition.log.failed:
                self.on_failed(failure)
            elif partition.log.durable_end_offset < partition.log.log_end_offset:
                # No space, or the log was closed meanwhile; only the former is retried.
                logger.warning("flush postponed", partition=partition.key, error=failure.message)
                asyncio.get_running_loop().call_later(_RETRY_S, self._mark_again, partition)

    def _mark_again(self, partition: Partition) -> None:
        if partition.replica.role is not Role.FENCED:
            self.mark(partition)


def _flush_all(
    flushes: Sequence[Callable[[], int]],
) -> tuple[list[StorageFailed | None], list[float]]:
    """Flush each log, in a thread; return the error of each, or None, and the seconds of each."""
    results: list[StorageFailed | None] = []
    seconds: list[float] = []
    for flush in flushes:
        started = time.perf_counter()
        try:
            flush()
        except StorageFailed as failure:
            results.append(failure)
        else:
            results.append(None)
        seconds.append(time.perf_counter() - started)
    return results, seconds
