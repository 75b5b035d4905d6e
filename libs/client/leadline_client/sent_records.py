"""What becomes of records that were sent together."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Sequence
from concurrent.futures import Future as ThreadFuture
from concurrent.futures import wait
from typing import NamedTuple, TypeAlias


class RecordMetadata(NamedTuple):
    """The partition and offset of an acknowledged record; the offset is -1 with acks=0."""

    topic: str
    partition: int
    offset: int


Outcome: TypeAlias = RecordMetadata | BaseException
"""Where a record is, or the error of its batch."""


def _record_of(first: RecordMetadata, place: int) -> RecordMetadata:
    topic, partition, offset = first
    return RecordMetadata(topic, partition, offset + place if offset >= 0 else offset)


def _outcomes(
    count: int,
    parts: Sequence[tuple[Sequence[int], asyncio.Future[RecordMetadata]]]
    | Sequence[tuple[Sequence[int], ThreadFuture[RecordMetadata]]],
) -> list[Outcome]:
    """Return the outcome of each record; all futures are done."""
    found: list[Outcome] = [asyncio.CancelledError()] * count
    for indexes, future in parts:
        error = asyncio.CancelledError() if future.cancelled() else future.exception()
        for place, index in enumerate(indexes):
            found[index] = error or _record_of(future.result(), place)
    return found


def _acknowledged(outcomes: Sequence[Outcome]) -> list[RecordMetadata]:
    """Return where all records are; raises the error of the first that failed."""
    records = []
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
        records.append(outcome)
    return records


class AsyncSentRecords:
    """The records of one `AsyncProducer.send_many`; await it for their metadata, in their order.

    That raises the error of the first record that failed, once all are acknowledged or have failed:
    `outcomes` tells of each.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._parts: list[tuple[Sequence[int], asyncio.Future[RecordMetadata]]] = []

    def __len__(self) -> int:
        return self._count

    def __await__(self) -> Generator[object, None, list[RecordMetadata]]:
        return _acknowledged((yield from self.outcomes().__await__()))

    async def outcomes(self) -> list[Outcome]:
        """Wait until each record is acknowledged or has failed; return the outcomes in order."""
        if self._parts:
            await asyncio.wait([future for _, future in self._parts])
        return _outcomes(self._count, self._parts)

    def part(self, indexes: Sequence[int]) -> asyncio.Future[RecordMetadata]:
        """Return a future for the records at some indexes, of which it gets the first one's."""
        future: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
        self._parts.append((indexes, future))
        return future


class SentRecords:
    """The records of one `Producer.send_many`."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._parts: list[tuple[Sequence[int], ThreadFuture[RecordMetadata]]] = []

    def __len__(self) -> int:
        return self._count

    def result(self, timeout_s: float | None = None) -> list[RecordMetadata]:
        """Return the metadata of the records, in their order, once all are acknowledged.

        Raises the error of the first record that failed, once none is under way any more;
        `outcomes` tells of each. Raises TimeoutError after `timeout_s`.
        """
        return _acknowledged(self.outcomes(timeout_s))

    def outcomes(self, timeout_s: float | None = None) -> list[Outcome]:
        """Wait until each record is acknowledged or has failed; return the outcomes in order.

        Raises TimeoutError after `timeout_s`.
        """
        if wait([future for _, future in self._parts], timeout_s).not_done:
            raise TimeoutError(f"some records are not acknowledged after {timeout_s} s")
        return _outcomes(self._count, self._parts)

    def part(self, indexes: Sequence[int]) -> ThreadFuture[RecordMetadata]:
        """Return a future for the records at some indexes, of which it gets the first one's."""
        future: ThreadFuture[RecordMetadata] = ThreadFuture()
        # It cannot be cancelled: its records may be sent at any moment.
        future.set_running_or_notify_cancel()
        self._parts.append((indexes, future))
        return future
