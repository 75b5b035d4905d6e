"""Appending the records of requests to their partitions, through whichever broker leads them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Final

from leadline_broker.api.v3.errors import NO_SUCH_PARTITION, NO_SUCH_TOPIC, V3Error
from leadline_broker.api.v3.records.requests import ParsedRecord
from leadline_broker.runtime.cluster.metadata import ClusterMetadataCache
from leadline_broker.runtime.serving.batch_checks import SMALL_BYTES
from leadline_client import batches
from leadline_client.errors import LeadlineError, Refused
from leadline_client.partitioner import StickyPartitioner
from leadline_client.wire import NO_LEADER

BATCH_RECORDS: Final = 500
BATCH_BYTES: Final = 256 * 1024
"""The most that is appended as one record batch: far below what topics accept by default."""

Append = Callable[[str, int, bytearray], Awaitable[int]]
"""Appends batches to a partition, and returns their first offset."""


@dataclass(frozen=True, slots=True)
class Appended:
    """Where a record was appended."""

    partition: int
    offset: int


Result = Appended | V3Error | LeadlineError
"""What became of a record."""


@dataclass(slots=True)
class _Run:
    """Records of one partition that are appended together, by their places in the request."""

    partition: int
    places: list[int] = field(default_factory=list)
    size: int = 0

    def has_room_for(self, record: ParsedRecord) -> bool:
        return len(self.places) < BATCH_RECORDS and self.size + record.size <= BATCH_BYTES

    def add(self, place: int, record: ParsedRecord) -> None:
        self.places.append(place)
        self.size += record.size


class TopicAppender:
    """Appends the records of one request to one topic.

    Those of one partition keep their order. They may share a record batch, but not their fate: if
    a batch is refused, each of its records is tried by itself.
    """

    def __init__(
        self, topic: str, metadata: ClusterMetadataCache, append: Append, random: Random
    ) -> None:
        self._topic = topic
        self._metadata = metadata
        self._append = append
        self._partitioner = StickyPartitioner(random.random)

    async def append_all(self, records: Sequence[ParsedRecord | V3Error]) -> list[Result]:
        """Append records; return what became of each, errors among them included."""
        results: list[Result | None] = [
            record if isinstance(record, V3Error) else None for record in records
        ]
        runs: dict[int, list[_Run]] = {}
        for place, record in enumerate(records):
            if isinstance(record, V3Error):
                continue
            try:
                self._place(runs, self._partition_of(record), place, record)
            except V3Error as error:
                results[place] = error
        parsed = [record for record in records if not isinstance(record, V3Error)]
        await asyncio.gather(*(self._append_runs(one, records, results) for one in runs.values()))
        self._rotate(parsed)
        return [result for result in results if result is not None]

    def _place(
        self, runs: dict[int, list[_Run]], partition: int, place: int, record: ParsedRecord
    ) -> None:
        own = runs.setdefault(partition, [_Run(partition)])
        if not own[-1].has_room_for(record) and own[-1].places:
            own.append(_Run(partition))
        own[-1].add(place, record)

    def _partition_of(self, record: ParsedRecord) -> int:
        numbers = self._metadata.partition_numbers(self._topic)
        if not numbers:
            raise V3Error(NO_SUCH_TOPIC, f"there is no topic {self._topic}")
        if record.partition is None:
            if record.key is None:
                numbers = self._led(numbers)
            return numbers[self._partitioner.choose(record.key, len(numbers))]
        if record.partition not in numbers:
            message = f"topic {self._topic} has no partition {record.partition}"
            raise V3Error(NO_SUCH_PARTITION, message)
        return record.partition

    def _led(self, numbers: list[int]) -> list[int]:
        """Return the partitions that have a leader, all of them if none has."""
        rows = ((one, self._metadata.partition(self._topic, one)) for one in numbers)
        return [one for one, row in rows if row is not None and row.leader != NO_LEADER] or numbers

    def _rotate(self, appended: Sequence[ParsedRecord]) -> None:
        """Send the next records without a key to another partition (KIP-480)."""
        count = len(self._led(self._metadata.partition_numbers(self._topic)))
        if count and any(one.key is None and one.partition is None for one in appended):
            self._partitioner.batch_closed(self._partitioner.choose(None, count), count)

    async def _append_runs(
        self,
        runs: Sequence[_Run],
        records: Sequence[ParsedRecord | V3Error],
        results: list[Result | None],
    ) -> None:
        """Append the runs of one partition one after another."""
        for run in runs:
            chosen = [one for p in run.places if isinstance(one := records[p], ParsedRecord)]
            found = await self._append_run(run.partition, chosen)
            for place, result in zip(run.places, found, strict=True):
                results[place] = result

    async def _append_run(self, partition: int, records: Sequence[ParsedRecord]) -> list[Result]:
        try:
            base = await self._append(self._topic, partition, await _encoded(records))
        except Refused as error:
            if len(records) == 1:
                return [error]
            # The reason may be one of the records: nothing was appended, so each can be repeated.
            return [(await self._append_run(partition, [one]))[0] for one in records]
        except LeadlineError as error:
            return [error] * len(records)
        return [Appended(partition, base + number) for number in range(len(records))]


async def _encoded(records: Sequence[ParsedRecord]) -> bytearray:
    """Return a batch of records, which a thread makes if that takes long."""
    encode = partial(batches.encode, records, now_ms=0)  # Each record has a time.
    small = sum(record.size for record in records) <= SMALL_BYTES
    return bytearray(encode() if small else await asyncio.to_thread(encode))
