"""Reads of the history that requests ask for: in bounded time, and a bounded number at once.

A database's disk can hang. Its threads then hang, too, and every further read would wait behind
them for ever, with its request. A read that has begun cannot be ended: it counts until it ends,
although nobody waits for it any more, so that no more of them pile up than may.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from leadline_client.errors import HistoryUnavailable
from leadline_controller.domain.history import (
    AuditQuery,
    AuditRecord,
    FailureRecord,
    PartitionChange,
    PastCluster,
    TaskRecord,
)
from leadline_controller.runtime.ports import HistoryReads

READ_WITHIN_S: Final = 20.0
"""How long a request waits for one read."""
MAX_READS: Final = 32
"""How many reads run or wait at a time in a process."""

_Result = TypeVar("_Result")


@dataclass(eq=False, slots=True)
class ReadLimits:
    """Bounds the reads of one process."""

    within_s: float = READ_WITHIN_S
    at_once: int = MAX_READS
    _running: set[asyncio.Task[Any]] = field(default_factory=set, init=False)

    async def read(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        """Return what a read returns.

        Raises:
            HistoryUnavailable: it takes too long, or too many others do.

        """
        if len(self._running) >= self.at_once:
            work.close()
            raise HistoryUnavailable("too many reads of the history wait for its disk: ask again")
        reading = asyncio.create_task(work, name="history-read")
        self._running.add(reading)
        reading.add_done_callback(self._ended)
        done, _ = await asyncio.wait({reading}, timeout=self.within_s)
        if not done:
            raise HistoryUnavailable(
                f"the database of the history has not answered within {self.within_s:g} s"
            )
        return reading.result()

    def _ended(self, reading: asyncio.Task[Any]) -> None:
        self._running.discard(reading)
        if not reading.cancelled():
            reading.exception()  # the caller may have left


@dataclass(eq=False, frozen=True, slots=True)
class BoundedReads:
    """Implements `runtime.ports.HistoryReads`; see `ReadLimits.read` for its errors."""

    history: HistoryReads
    limits: ReadLimits

    async def ids(self) -> tuple[int, int]:
        """Return the oldest and the newest stored id."""
        return await self.limits.read(self.history.ids())

    async def find(
        self, query: AuditQuery, *, cursor: int | None, newest_first: bool, limit: int
    ) -> list[AuditRecord]:
        """Return a page of records."""
        return await self.limits.read(
            self.history.find(query, cursor=cursor, newest_first=newest_first, limit=limit)
        )

    async def partition_history(
        self, topic: str, partition: int, *, after_id: int, limit: int
    ) -> list[PartitionChange]:
        """Return the changes of a partition."""
        return await self.limits.read(
            self.history.partition_history(topic, partition, after_id=after_id, limit=limit)
        )

    async def failures(self, broker: int | None, limit: int) -> list[FailureRecord]:
        """Return the latest failures."""
        return await self.limits.read(self.history.failures(broker, limit))

    async def tasks(self, limit: int) -> list[TaskRecord]:
        """Return the latest tasks."""
        return await self.limits.read(self.history.tasks(limit))

    async def past(self, *, time_ms: int | None, zxid: int | None) -> PastCluster:
        """Rebuild the cluster as of a time or a transaction."""
        return await self.limits.read(self.history.past(time_ms=time_ms, zxid=zxid))
