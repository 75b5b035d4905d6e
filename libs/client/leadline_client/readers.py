"""Readers of one partition, without a group: one blocks, the other one is asynchronous."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Iterator
from typing import Generic

from leadline_client.client import AsyncClient, Client
from leadline_client.errors import DeserializationFailed
from leadline_client.reading import FetchPosition, ReadLimits, Start
from leadline_client.serializers import failures
from leadline_client.serializers.protocols import Deserializer, OnDeserializationError
from leadline_client.serializers.records import RecordDeserializer
from leadline_client.type_parameters import K, V
from leadline_client.wire import Record, ReplicaChoice, TopicPartition

_LIMITS = ReadLimits()


class PartitionReader(Generic[K, V]):
    """Reads one partition in order, and blocks meanwhile.

    It reads from the current leader, or with `replica="any"` from an in-sync replica, if there is
    one from one in `rack`. Deserializers make keys and values of bytes; without them, both are
    bytes. `position` is where it reads on: `position.seek(offset)` changes it.
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
        key_deserializer: Deserializer[K] | None = None,
        value_deserializer: Deserializer[V] | None = None,
        on_deserialization_error: OnDeserializationError = "raise",
    ) -> None:
        self.position = FetchPosition(client.core, topic, partition, start)
        self._client = client
        self._limits = limits.with_replica(replica, rack)
        self._deserializer = RecordDeserializer(key_deserializer, value_deserializer)
        self._on_deserialization_error = failures.checked(on_deserialization_error)

    def read(self) -> list[Record[K, V]]:
        """Return the next records; none if none came within the wait. See `FetchPosition.read`.

        Raises:
            DeserializationFailed: see `OnDeserializationError`.

        """
        stored = self._client.run(self.position.read(self._limits))
        records: list[Record[K, V]] = []
        for found in _deserialized(self.position, self._deserializer, stored):
            if isinstance(found, Record):
                records.append(found)
                continue
            try:
                failures.handle(self._on_deserialization_error, found)
            except Exception:  # Whatever the application raises; see `_stay_before`.
                _stay_before(self.position, found)
                if not records:
                    raise
                break  # The next read raises.
        return records

    def seek_to_time(self, timestamp: int) -> int:
        """Continue at the first record of `timestamp` (Unix ms) or later; return its offset."""
        return self._client.run(self.position.seek_to_time(timestamp))

    def read_to(self, end_offset: int) -> Iterator[Record[K, V]]:
        """Yield the records before `end_offset`, and wait for those that do not exist yet."""
        while self._client.run(self.position.locate()) < end_offset:
            yield from (record for record in self.read() if record.offset < end_offset)

    def __iter__(self) -> Iterator[Record[K, V]]:
        while True:
            yield from self.read()


class AsyncPartitionReader(Generic[K, V]):
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
        key_deserializer: Deserializer[K] | None = None,
        value_deserializer: Deserializer[V] | None = None,
        on_deserialization_error: OnDeserializationError = "raise",
    ) -> None:
        self.position = FetchPosition(client.core, topic, partition, start)
        self._client = client
        self._limits = limits.with_replica(replica, rack)
        self._deserializer = RecordDeserializer(key_deserializer, value_deserializer)
        self._on_deserialization_error = failures.checked(on_deserialization_error)

    async def read(self) -> list[Record[K, V]]:
        """Return the next records; none if none came within the wait. See `FetchPosition.read`.

        Raises:
            DeserializationFailed: see `OnDeserializationError`.

        """
        stored = await self._client.run(self.position.read(self._limits))
        records: list[Record[K, V]] = []
        for found in _deserialized(self.position, self._deserializer, stored):
            if isinstance(found, Record):
                records.append(found)
                continue
            try:
                waiting = failures.handle(self._on_deserialization_error, found)
                if inspect.isawaitable(waiting):
                    await waiting
            except Exception:  # Whatever the application raises; see `_stay_before`.
                _stay_before(self.position, found)
                if not records:
                    raise
                break  # The next read raises.
        return records

    async def seek_to_time(self, timestamp: int) -> int:
        """Continue at the first record of `timestamp` (Unix ms) or later; return its offset."""
        return await self._client.run(self.position.seek_to_time(timestamp))

    async def read_to(self, end_offset: int) -> AsyncIterator[Record[K, V]]:
        """Yield the records before `end_offset`, and wait for those that do not exist yet."""
        while await self._client.run(self.position.locate()) < end_offset:
            for record in await self.read():
                if record.offset < end_offset:
                    yield record

    async def __aiter__(self) -> AsyncIterator[Record[K, V]]:
        while True:
            for record in await self.read():
                yield record


def _deserialized(
    position: FetchPosition, deserializer: RecordDeserializer[K, V], stored: list[Record]
) -> Iterator[Record[K, V] | DeserializationFailed]:
    """Yield each record, or in its place what it failed with."""
    place = TopicPartition(position.topic, position.partition)
    for record in stored:
        try:
            yield deserializer.record(place, record)
        except DeserializationFailed as failed:
            yield failed


def _stay_before(position: FetchPosition, failed: DeserializationFailed) -> None:
    """Move a position that is behind a record back to it: it was read, but not delivered."""
    position.return_to(position.position_at(failed.offset))
