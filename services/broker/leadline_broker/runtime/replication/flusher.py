"""Group commit: all dirty logs are fsynced side by side, group after group (rule R4).

The kernel does it by itself where it can, and four threads do the rest. The file system joins
fsyncs that wait at the same time, so several logs cost little more than one. While one group is
written to the disk the next one forms, so a slower disk gets larger groups. A failed fsync is never
retried: the kernel may have dropped the pages and would report success.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

import structlog

from leadline_broker.domain.replica import Role
from leadline_broker.runtime.replication.partition import Partition
from leadline_client.errors import StorageFailed
from leadline_common.log_rate import LogRate
from leadline_common.started_threads import started_threads

logger = structlog.get_logger(__name__)

_RETRY_S: Final = 0.2
"""How long to wait for space on a full disk, or for a descriptor."""
_THREADS: Final = 4


@dataclass(frozen=True, slots=True)
class FlushedGroup:
    """The fsyncs of one group: seconds for all and for each, and what was appended since the last.

    The seconds end when the event loop learns of it. Records and bytes are counted when the fsyncs
    begin; some that follow may be durable too.
    """

    group_seconds: float
    log_seconds: Sequence[float]
    records: int
    size: int


@dataclass(eq=False, kw_only=True)
class GroupFlusher:
    """Fsyncs marked logs in groups. Owned by the event loop, except for the fsyncs.

    `on_durable(partition)` is called on the loop after each log's fsync, `on_failed(error)`
    when an fsync has failed, which stops the broker, and `on_group(group)` after each group.
    `flushing` is set when the group is fsynced that is being fsynced now; None if there is none.
    """

    on_durable: Callable[[Partition], None]
    on_failed: Callable[[StorageFailed], None]
    on_group: Callable[[FlushedGroup], None]
    _dirty: dict[Partition, None] = field(default_factory=dict, init=False)
    _wake: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _next_group: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    flushing: asyncio.Event | None = field(default=None, init=False)
    _flushed: Sequence[list[_Flushed]] = field(default=(), init=False)
    _postponed: LogRate = field(default_factory=LogRate, init=False)

    def __post_init__(self) -> None:
        # Started now: if none could be when records wait for it, the broker would end.
        self._threads = started_threads("fsync", _THREADS)

    @property
    def ended(self) -> int:
        """How many fsyncs of the latest group have ended so far."""
        return sum(map(len, self._flushed))

    def progress(self) -> object:
        """Return what changes with each fsync that ends, None without any that runs."""
        return None if self.flushing is None else (self.flushing, self.ended)

    def mark(self, partition: Partition) -> None:
        """Fsync the log with the next group."""
        self._dirty[partition] = None
        self._wake.set()

    async def settled(self) -> None:
        """Wait until all logs that are marked now are fsynced."""
        flushed = self._next_group if self._dirty else self.flushing
        if flushed is not None:
            await flushed.wait()

    async def run(self) -> None:
        """Flush group after group; never returns."""
        try:
            while True:
                await self._wake.wait()
                if any(partition.subscribers for partition in self._dirty):
                    # Followers that wait are sent the records first: to start an fsync takes the
                    # kernel a third of a millisecond, in which theirs could begin.
                    await asyncio.sleep(0)
                self._wake.clear()
                group, self._dirty = list(self._dirty), {}
                done = self.flushing = self._next_group
                self._next_group = asyncio.Event()
                appended = [partition.take_unflushed() for partition in group]
                started = time.perf_counter()
                flushed = await self._flush(group)
                seconds = time.perf_counter() - started
                self.flushing = None
                records = sum(traffic.records_in for traffic in appended)
                size = sum(traffic.bytes_in for traffic in appended)
                each = [one.seconds for one in flushed]
                self.on_group(FlushedGroup(seconds, each, records, size))
                self._report(flushed)
                done.set()
        finally:
            # A thread may wait for an fsync of the kernel that another flusher has begun, and of
            # whose end this loop has to tell: the loop must not wait for the thread.
            await asyncio.to_thread(self._threads.shutdown)

    async def _flush(self, group: Sequence[Partition]) -> list[_Flushed]:
        """Fsync the logs of a group side by side."""
        loop = asyncio.get_running_loop()
        begun = _Begun(loop.create_future())
        others = [partition for partition in group if not begun.begin(partition)]
        parts = [others[start::_THREADS] for start in range(min(_THREADS, len(others)))]
        results: list[list[_Flushed]] = [[] for _ in parts]
        self._flushed = *results, begun.flushed
        work = [partial(_flush_all, *each) for each in zip(parts, results, strict=True)]
        await asyncio.gather(*[loop.run_in_executor(self._threads, part) for part in work])
        if begun.running:
            await begun.all_ended
        return [one for part in self._flushed for one in part]

    def _report(self, flushed: Sequence[_Flushed]) -> None:
        for partition, failure, _ in flushed:
            if failure is None:
                self.on_durable(partition)
            elif partition.log.failed:
                self.on_failed(failure)
            elif partition.log.has_unsynced:
                # No space or descriptor, or the log was closed: only that is not retried.
                self._log_postponed(partition, failure)
                asyncio.get_running_loop().call_later(_RETRY_S, self._mark_again, partition)

    def _log_postponed(self, partition: Partition, reason: StorageFailed) -> None:
        """Log it once in a while: all logs are tried again and again, and for the same reason."""
        kind, now_ms = type(reason).__name__, time.perf_counter() * 1000
        if (more_before := self._postponed.admit(kind, now_ms)) is not None:
            logger.warning(
                "flush postponed",
                partition=partition.key,
                error=reason.message,
                more_before=more_before,
            )

    def _mark_again(self, partition: Partition) -> None:
        if partition.replica.role is not Role.FENCED:
            self.mark(partition)


class _Flushed(NamedTuple):
    """One fsync: its error, if there was one, and its seconds."""

    partition: Partition
    failure: StorageFailed | None
    seconds: float


@dataclass(eq=False, slots=True)
class _Begun:
    """The flushes of a group that run without a thread."""

    all_ended: asyncio.Future[None]
    running: int = 0
    flushed: list[_Flushed] = field(default_factory=list)
    _started_s: float = field(default_factory=time.perf_counter)

    def begin(self, partition: Partition) -> bool:
        """Start the flush of a log; return whether that is possible."""
        has_begun = partition.log.begin_flush(partial(self._on_flushed, partition))
        self.running += has_begun
        return has_begun

    def _on_flushed(self, partition: Partition, failure: StorageFailed | None) -> None:
        self.flushed.append(_Flushed(partition, failure, time.perf_counter() - self._started_s))
        self.running -= 1
        if not self.running and not self.all_ended.done():
            self.all_ended.set_result(None)


def _flush_all(group: Sequence[Partition], results: list[_Flushed]) -> None:
    """Flush each log, in a thread, and add to `results`."""
    for partition in group:
        failure = None
        started = time.perf_counter()
        try:
            partition.log.flush()
        except StorageFailed as problem:
            failure = problem
        results.append(_Flushed(partition, failure, time.perf_counter() - started))
