"""Readers and consumers without groups: partitions chosen by hand.

`PartitionReader` (blocking) and `AsyncPartitionReader` read one partition.
`AsyncConsumer` reads several side by side; `Consumer` is the same one on a
thread of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import Self, TypeAlias

from leadline_client.background import LoopThread
from leadline_client.client import AsyncLeadlineClient, LeadlineClient
from leadline_client.reading import Position, ReadLimits, Start
from leadline_client.wire import Record

TopicPartition: TypeAlias = tuple[str, int]
_LIMITS = ReadLimits()


@dataclass(frozen=True, slots=True)
class ConsumedRecord:
    """A record and where it comes from."""

    topic: str
    partition: int
    record: Record


class PartitionReader:
    """Reads one partition in order, following its leader; blocks."""

    def __init__(
        self,
        client: LeadlineClient,
        topic: str,
        partition: int,
        start: Start = "earliest",
        *,
        limits: ReadLimits = _LIMITS,
    ) -> None:
        self.position = Position(client.core, topic, partition, start)
        self._client = client
        self._limits = limits

    def read(self) -> list[Record]:
        """Return the next records; empty when none came within the wait. See `Position.read`."""
        return self._client.run(self.position.read(self._limits))

    def seek_to_time(self, timestamp: int) -> int:
        """Go to the first record of `timestamp` (Unix ms) or later; return its offset."""
        return self._client.run(self.position.seek_to_time(timestamp))

    def read_to(self, end_offset: int) -> Iterator[Record]:
        """Yield the records before `end_offset`, waiting for those that are not there yet."""
        while self._client.run(self.position.locate()) < end_offset:
            yield from (record for record in self.read() if record.offset < end_offset)

    def __iter__(self) -> Iterator[Record]:
        while True:
            yield from self.read()


class AsyncPartitionReader:
    """Reads one partition in order, following its leader."""

    def __init__(
        self,
        client: AsyncLeadlineClient,
        topic: str,
        partition: int,
        start: Start = "earliest",
        *,
        limits: ReadLimits = _LIMITS,
    ) -> None:
        self.position = Position(client.core, topic, partition, start)
        self._client = client
        self._limits = limits

    async def read(self) -> list[Record]:
        """Return the next records; empty when none came within the wait. See `Position.read`."""
        return await self._client.run(self.position.read(self._limits))

    async def seek_to_time(self, timestamp: int) -> int:
        """Go to the first record of `timestamp` (Unix ms) or later; return its offset."""
        return await self._client.run(self.position.seek_to_time(timestamp))

    async def read_to(self, end_offset: int) -> AsyncIterator[Record]:
        """Yield the records before `end_offset`, waiting for those that are not there yet."""
        while await self._client.run(self.position.locate()) < end_offset:
            for record in await self.read():
                if record.offset < end_offset:
                    yield record

    async def __aiter__(self) -> AsyncIterator[Record]:
        while True:
            for record in await self.read():
                yield record


class AsyncConsumer:
    """Reads assigned partitions side by side: one long poll for each is under way."""

    def __init__(self, client: AsyncLeadlineClient, *, limits: ReadLimits = _LIMITS) -> None:
        self._client = client
        self._limits = limits
        self._readers: dict[TopicPartition, AsyncPartitionReader] = {}
        self._reads: dict[TopicPartition, asyncio.Task[list[Record]]] = {}

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        """The partitions that are read."""
        return tuple(self._readers)

    async def assign(self, partitions: Sequence[TopicPartition], start: Start = "earliest") -> None:
        """Read exactly `partitions` from now on; those read already keep their place."""
        for gone in [one for one in self._readers if one not in partitions]:
            await self._stop_read(gone)
            del self._readers[gone]
        for topic, number in partitions:
            if (topic, number) not in self._readers:
                self._readers[topic, number] = AsyncPartitionReader(
                    self._client, topic, number, start, limits=self._limits
                )

    async def seek(self, partition: TopicPartition, start: Start) -> None:
        """Read on from elsewhere; what was fetched and not delivered is dropped."""
        await self._stop_read(partition)
        self._readers[partition].position.seek(start)

    async def seek_to_time(self, partition: TopicPartition, timestamp: int) -> int:
        """Read on from the first record of `timestamp` (Unix ms) or later."""
        await self._stop_read(partition)
        return await self._readers[partition].seek_to_time(timestamp)

    async def position(self, partition: TopicPartition) -> int:
        """Return the offset of the next record to be delivered.

        Reading ahead is not counted: only `poll` moves it.
        """
        pending = self._reads.get(partition)
        if pending is not None and pending.done() and not pending.exception() and pending.result():
            return pending.result()[0].offset
        return await self._client.run(self._readers[partition].position.locate())

    async def poll(self, timeout_s: float = 1.0) -> list[ConsumedRecord]:
        """Return what has come for any partition; empty after `timeout_s` without anything.

        Raises whatever a partition's read raises; the others are not disturbed.
        """
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        while self._readers:
            self._start_reads()
            left_s = max(0.0, deadline_s - loop.time())
            done, _ = await asyncio.wait(
                self._reads.values(), timeout=left_s, return_when=asyncio.FIRST_COMPLETED
            )
            records = self._collect(done)
            if records or loop.time() >= deadline_s:
                return records
        return []

    async def __aiter__(self) -> AsyncIterator[ConsumedRecord]:
        while True:
            for record in await self.poll():
                yield record

    async def aclose(self) -> None:
        """Stop reading. The client stays open."""
        await self.assign([])

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _start_reads(self) -> None:
        for partition, reader in self._readers.items():
            if partition not in self._reads:
                self._reads[partition] = asyncio.create_task(reader.read())

    def _collect(self, done: set[asyncio.Task[list[Record]]]) -> list[ConsumedRecord]:
        records: list[ConsumedRecord] = []
        failure: BaseException | None = None
        for topic, number in [key for key, task in self._reads.items() if task in done]:
            task = self._reads[topic, number]
            if failure is not None or (task.exception() is not None and records):
                continue
            del self._reads[topic, number]
            failure = task.exception()
            if failure is None:
                records += [ConsumedRecord(topic, number, record) for record in task.result()]
        if failure is not None:
            raise failure
        return records

    async def _stop_read(self, partition: TopicPartition) -> None:
        task = self._reads.pop(partition, None)
        if task is None:
            return
        task.cancel()
        await asyncio.wait([task])


class Consumer:
    """A consumer for code without an event loop."""

    def __init__(self, bootstrap: str | Sequence[str], *, limits: ReadLimits = _LIMITS) -> None:
        self._thread = LoopThread("leadline-consumer")
        self._client = AsyncLeadlineClient(bootstrap)
        self._consumer = AsyncConsumer(self._client, limits=limits)

    def assign(self, partitions: Sequence[TopicPartition], start: Start = "earliest") -> None:
        """Read exactly `partitions` from now on; those read already keep their place."""
        self._thread.run(self._consumer.assign(partitions, start))

    def seek(self, partition: TopicPartition, start: Start) -> None:
        """Read on from elsewhere."""
        self._thread.run(self._consumer.seek(partition, start))

    def seek_to_time(self, partition: TopicPartition, timestamp: int) -> int:
        """Read on from the first record of `timestamp` (Unix ms) or later."""
        return self._thread.run(self._consumer.seek_to_time(partition, timestamp))

    def position(self, partition: TopicPartition) -> int:
        """Return the offset of the next record to be delivered."""
        return self._thread.run(self._consumer.position(partition))

    def poll(self, timeout_s: float = 1.0) -> list[ConsumedRecord]:
        """Return what has come for any partition; empty after `timeout_s` without anything."""
        return self._thread.run(self._consumer.poll(timeout_s))

    def __iter__(self) -> Iterator[ConsumedRecord]:
        while True:
            yield from self.poll()

    def close(self) -> None:
        """Stop reading and close the connections."""
        try:
            self._thread.run(self._consumer.aclose())
            self._thread.run(self._client.aclose())
        finally:
            self._thread.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
