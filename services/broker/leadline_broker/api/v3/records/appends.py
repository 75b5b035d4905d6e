"""Appending the records of requests to their partitions, through whichever broker leads them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from leadline_broker.api.v3.errors import V3Error
from leadline_broker.api.v3.records.requests import ParsedRecord
from leadline_broker.runtime.serving.batch_checks import SMALL_BYTES
from leadline_broker.runtime.serving.topic_appends import TopicAppends
from leadline_client import batches
from leadline_client.errors import (
    BodyTooLarge,
    CorruptBatch,
    InvalidRequest,
    InvalidTimestamp,
    LeadlineError,
)

BATCH_RECORDS: Final = 500
BATCH_BYTES: Final = 256 * 1024
"""The most that is appended as one record batch: far below what topics accept by default."""
_OF_A_RECORD: Final = (BodyTooLarge, CorruptBatch, InvalidRequest, InvalidTimestamp)
"""Refusals whose reason may be one record of a batch; all others would meet each record."""


@dataclass(frozen=True, slots=True)
class Appended:
    """Where a record was appended."""

    partition: int
    offset: int


Result = Appended | V3Error | LeadlineError
"""What became of a record."""
Placed = tuple[int, ParsedRecord]
"""A record with its place in the request."""


@dataclass(slots=True)
class _Run:
    """Records of one partition that are appended together."""

    placed: list[Placed] = field(default_factory=list)
    size: int = 0

    def has_room_for(self, record: ParsedRecord) -> bool:
        return len(self.placed) < BATCH_RECORDS and self.size + record.size <= BATCH_BYTES

    def add(self, place: int, record: ParsedRecord) -> None:
        self.placed.append((place, record))
        self.size += record.size


@dataclass(slots=True)
class TopicAppender:
    """Appends the records of one request to one topic.

    Those of one partition keep their order, and so do those without a key, which go to one
    partition. They may share a record batch, but not their fate: if a batch is refused because of
    a record, each of its records is tried by itself.
    """

    topic: str
    appends: TopicAppends
    timeout_ms: int
    _keyless: int | None = field(default=None, init=False)

    async def append_all(self, records: Sequence[ParsedRecord | V3Error]) -> list[Result]:
        """Append records; return what became of each, errors among them included."""
        results: dict[int, Result] = {
            place: record for place, record in enumerate(records) if isinstance(record, V3Error)
        }
        parsed = [
            (place, record)
            for place, record in enumerate(records)
            if isinstance(record, ParsedRecord)
        ]
        by_partition = self._placed(parsed, results)
        await asyncio.gather(
            *(self._append_in_order(one, placed, results) for one, placed in by_partition.items())
        )
        return [results[place] for place in range(len(records))]

    def _placed(
        self, parsed: Iterable[Placed], results: dict[int, Result]
    ) -> dict[int, list[Placed]]:
        """Return the records by partition, in order; what has no partition gets its result."""
        found: dict[int, list[Placed]] = {}
        layout = None
        for place, record in parsed:
            try:
                layout = layout or self.appends.layout(self.topic, self._keyless)
                number = layout.place(record.partition, record.key)
            except LeadlineError as error:
                results[place] = error
            else:
                found.setdefault(number, []).append((place, record))
        self._keyless = layout.keyless if layout else self._keyless
        return found

    async def _append_in_order(
        self, partition: int, placed: Iterable[Placed], results: dict[int, Result]
    ) -> None:
        """Append the records of one partition, one batch after another."""
        for run in _runs(placed):
            records = [record for _, record in run.placed]
            outcomes = await self._append(partition, records)
            for (place, _), outcome in zip(run.placed, outcomes, strict=True):
                results[place] = outcome

    async def _append(self, partition: int, records: Sequence[ParsedRecord]) -> list[Result]:
        try:
            batch = await _encoded(records)
            done = await self.appends.routed.produce(
                self.topic, partition, batch, acks="all", timeout_ms=self.timeout_ms
            )
        except LeadlineError as error:
            if isinstance(error, _OF_A_RECORD) and len(records) > 1:
                # Nothing was appended, so that each record can be tried.
                return [(await self._append(partition, [one]))[0] for one in records]
            return [error] * len(records)
        return [Appended(partition, done.base_offset + number) for number in range(len(records))]


def _runs(placed: Iterable[Placed]) -> list[_Run]:
    """Return records in order, as many together as one batch takes."""
    runs = [_Run()]
    for place, record in placed:
        if runs[-1].placed and not runs[-1].has_room_for(record):
            runs.append(_Run())
        runs[-1].add(place, record)
    return runs


async def _encoded(records: Sequence[ParsedRecord]) -> bytearray:
    """Return a batch of records, which a thread makes if that takes long."""
    encode = partial(batches.encode, records, now_ms=0)  # each record has a time
    small = sum(record.size for record in records) <= SMALL_BYTES
    return bytearray(encode() if small else await asyncio.to_thread(encode))
