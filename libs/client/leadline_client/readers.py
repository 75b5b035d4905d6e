"""Readers of one partition, without a group: one blocks, the other one is asynchronous."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

from leadline_client.client import AsyncClient, Client
from leadline_client.reading import FetchPosition, ReadLimits, Start
from leadline_client.wire import Record, ReplicaChoice

_LIMITS = ReadLimits()


class PartitionReader:
    """Reads one partition in order, and blocks meanwhile.

    It reads from the current leader, or with `replica="any"` from an in-sync replica, if there is
    one from one in `rack`.
    """

    def __init__(
        self,
        client: Client,
        topic: str,
        partition: int,
        start: Start = "earliest",
        *,
        limits: ReadLimits = _LIMITS,
        replica: ReplicaChoice = "leader",
        rack: str | None = None,
    ) -> None:
        self.position = FetchPosition(client.core, topic, partition, start)
        self._client = client
        self._limits = limits.with_replica(replica, rack)

    def read(self) -> list[Record]:
        """Return the next records; none if none came within the wait. See `FetchPosition.read`."""
        return self._client.run(self.position.read(self._limits))

    def seek_to_time(self, timestamp: int) -> int:
        """Continue at the first record of `timestamp` (Unix ms) or later; return its offset."""
        return self._client.run(self.position.seek_to_time(timestamp))

    def read_to(self, end_offset: int) -> Iterator[Record]:
        """Yield the records before `end_offset`, and wait for those that do not exist yet."""
        while self._client.run(self.position.locate()) < end_offset:
            yield from (record for record in self.read() if record.offset < end_offset)

    def __iter__(self) -> Iterator[Record]:
        while True:
            yield from self.read()


class AsyncPartitionReader:
    """Reads one partition in order; see `PartitionReader`."""

    def __init__(
        self,
        client: AsyncClient,
        topic: str,
        partition: int,
        start: Start = "earliest",
        *,
        limits: ReadLimits = _LIMITS,
        replica: ReplicaChoice = "leader",
        rack: str | None = None,
    ) -> None:
        self.position = FetchPosition(client.core, topic, partition, start)
        self._client = client
        self._limits = limits.with_replica(replica, rack)

    async def read(self) -> list[Record]:
        """Return the next records; none if none came within the wait. See `FetchPosition.read`."""
        return await self._client.run(self.position.read(self._limits))

    async def seek_to_time(self, timestamp: int) -> int:
        """Continue at the first record of `timestamp` (Unix ms) or later; return its offset."""
        return await self._client.run(self.position.seek_to_time(timestamp))

    async def read_to(self, end_offset: int) -> AsyncIterator[Record]:
        """Yield the records before `end_offset`, and wait for those that do not exist yet."""
        while await self._client.run(self.position.locate()) < end_offset:
            for record in await self.read():
                if record.offset < end_offset:
                    yield record

    async def __aiter__(self) -> AsyncIterator[Record]:
        while True:
            for record in await self.read():
                yield record
