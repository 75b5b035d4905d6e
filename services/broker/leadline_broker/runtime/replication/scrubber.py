"""Reads all closed segments from the disk once in a while, so that no damage waits for a reader.

A damaged batch that nobody reads is not repaired, and the replicas that still have it may be lost
meanwhile. What is found damaged is read in the ordinary way, which begins its repair
(`repairs.py`).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Final

import structlog

from leadline_broker.domain.state import ReplicaKey
from leadline_broker.runtime.cluster.configuration import Configuration
from leadline_broker.runtime.replication.partition import Partition
from leadline_broker.runtime.replication.repairs import ReadLog
from leadline_broker.runtime.stored_batches import SegmentScrub
from leadline_client.errors import DamagedBatch, LeadlineError, StorageFailed
from leadline_common.clock import Clock
from leadline_common.slices import slices

logger = structlog.get_logger(__name__)

_FIRST_MS: Final = 600_000
"""How long after its start a broker begins at the latest: other work is more urgent before."""
_LOOK_MS: Final = 10_000
"""How often to look whether the settings have changed."""


@dataclass(eq=False, kw_only=True)
class Scrubber:
    """Checks the closed segments of all replicas, at a limited rate. Owned by the event loop.

    Each pass begins at a random replica, so that a broker that is restarted often leaves out none
    for good.
    `read` begins the repair of what it finds damaged. `on_checked(bytes)` is called for each part.
    """

    configuration: Configuration
    partitions: Callable[[], list[Partition]]
    find: Callable[[ReplicaKey], Partition | None]
    read: ReadLog
    clock: Clock
    random: Random
    on_checked: Callable[[int], None]

    async def run(self) -> None:
        """Scrub again and again; never returns."""
        began_ms = self.clock.monotonic_ms()
        await self._wait(began_ms, _FIRST_MS)
        while True:
            began_ms = self.clock.monotonic_ms()
            await self.scrub_all()
            await self._wait(began_ms)

    async def _wait(self, since_ms: int, most_ms: float = math.inf) -> None:
        """Wait until it is time for the next pass, and scrubbing is not turned off."""
        while True:
            settings = self.configuration.current
            due_ms = since_ms + min(settings.log_scrub_interval_ms, most_ms)
            left_ms = due_ms - self.clock.monotonic_ms()
            if left_ms <= 0 and settings.log_scrub_bytes_per_s:
                return
            pause_ms = min(left_ms, _LOOK_MS) if left_ms > 0 else _LOOK_MS
            await asyncio.sleep(pause_ms / 1000)

    async def scrub_all(self) -> None:
        """Check every closed segment that there is now."""
        partitions = self.partitions()
        first = self.random.randrange(len(partitions) or 1)
        async for some in slices([*partitions[first:], *partitions[:first]]):
            for partition in some:
                for segment in _closed_segments(partition):
                    await self._scrub(partition, segment)

    async def _scrub(self, partition: Partition, segment: SegmentScrub) -> None:
        """Check a segment up to its end, or to its first damage: the repair looks behind that."""
        while not segment.has_ended and self._is_there(partition):
            rate = self.configuration.current.log_scrub_bytes_per_s
            if not rate:
                return
            try:
                size = await asyncio.to_thread(segment.check_part)
            except DamagedBatch as damage:
                self._report(partition, segment, damage)
                return
            except StorageFailed as error:
                logger.info("segment not scrubbed", partition=partition.key, reason=error.message)
                return
            self.on_checked(size)
            await asyncio.sleep(size / rate)

    def _report(self, partition: Partition, segment: SegmentScrub, damage: DamagedBatch) -> None:
        if self._is_there(partition):
            logger.info("scrub found damage", partition=partition.key, reason=damage.message)
            with suppress(LeadlineError):  # It was truncated or deleted meanwhile, or is repaired.
                self.read(partition, segment.offset, 1, partition.log.log_end_offset)

    def _is_there(self, partition: Partition) -> bool:
        return self.find(partition.key) is partition


def _closed_segments(partition: Partition) -> Sequence[SegmentScrub]:
    if not partition.log.log_end_offset:  # Perhaps it has no files, and is not to be opened.
        return ()
    try:
        return partition.log.batches.closed()
    except StorageFailed:  # The log was closed or has failed meanwhile.
        return ()
