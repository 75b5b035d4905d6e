"""Concurrent reading of several partitions, with one long poll for each.

A partition's buffer holds the records that were read but not delivered. Its position is
the offset of the next record to deliver, so reading ahead does not move it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Generic, NamedTuple, TypeAlias, cast

from leadline_client.client import AsyncClient
from leadline_client.codec import SupportsStored
from leadline_client.errors import DeserializationFailed, LeadlineError, PartitionNotOwned
from leadline_client.named_tuples import maker_of
from leadline_client.reading import FetchPosition, ReadLimits, Start
from leadline_client.record_buffer import RecordBuffer
from leadline_client.serializers.records import RecordDeserializer
from leadline_client.type_parameters import K, V
from leadline_client.wire import LogPosition, Record, TopicPartition, record_of

_RECOVERY_PAUSE_S: Final = 0.2

Recover: TypeAlias = Callable[[TopicPartition, LeadlineError], bool]
"""Handles a failed read, for instance by a seek; False: raise it to the application."""


class ConsumedRecord(NamedTuple, Generic[K, V]):
    """A record with its topic and partition, and otherwise with the fields of `Record`."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: K | None
    value: V | None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @property
    def record(self) -> Record[K, V]:
        """The record without its topic and partition; made at each call."""
        return record_of(self[2:])

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition with its topic."""
        return TopicPartition(self.topic, self.partition)


_make: Final[Callable[[tuple[Any, ...]], ConsumedRecord[Any, Any]]] = maker_of(ConsumedRecord)


def _consumed(
    topic: str, partition: int, stored: Iterable[SupportsStored]
) -> list[ConsumedRecord[bytes, bytes]]:
    """Return the records of a partition that a codec has read."""
    return [
        _make((topic, partition, one.offset, one.timestamp, one.key, one.value, tuple(one.headers)))
        for one in stored
    ]


@dataclass(slots=True, eq=False)
class _PartitionBuffer:
    """The records of one partition that were read but not delivered."""

    reader: FetchPosition
    records: RecordBuffer[ConsumedRecord[bytes, bytes]] = field(default_factory=RecordBuffer)
    read: asyncio.Task[None] | None = None
    failure: Exception | None = None
    stuck: LeadlineError | None = None
    paused: bool = False

    @property
    def idle(self) -> bool:
        """Whether to start a read."""
        return self.read is None and not (self.records or self.failure or self.stuck or self.paused)

    @property
    def position(self) -> int:
        """The offset of the next record to deliver; -1 until the leader was asked for it."""
        return self.records.first.offset if self.records else self.reader.offset


@dataclass(slots=True)
class TopicIdGroup:
    """Partitions, and the ids of their topics as far as these were read."""

    partitions: list[TopicPartition] = field(default_factory=list)
    topic_ids: dict[str, str] = field(default_factory=dict)

    def fits(self, topic: str, topic_id: str | None) -> bool:
        """Tell whether a partition of the topic with this id belongs here; None: not known."""
        return topic_id is None or self.topic_ids.get(topic, topic_id) == topic_id


class Fetcher(Generic[K, V]):
    """Reads the partitions of one consumer.

    `news` is set when `take` may return records or raise, and when the assignment may have changed.
    Without a `recover`, each failed read is raised to the application.
    """

    recover: Recover | None = None

    def __init__(
        self,
        client: AsyncClient,
        limits: ReadLimits,
        deserializer: RecordDeserializer[K, V],
    ) -> None:
        self.news = asyncio.Event()
        self._client = client
        self._limits = limits
        self._deserializer = deserializer
        self._buffers: dict[TopicPartition, _PartitionBuffer] = {}
        self._order: deque[TopicPartition] = deque()
        self._cancelled: set[asyncio.Task[None]] = set()

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        """The partitions that are read."""
        return tuple(self._buffers)

    def add(self, topic_partition: TopicPartition, start: Start) -> None:
        """Read a partition from `start`; if it is read already, its position does not change."""
        if topic_partition not in self._buffers:
            self._buffers[topic_partition] = _PartitionBuffer(
                FetchPosition(self._client.core, *topic_partition, start)
            )
            self._order.append(topic_partition)

    def expect_topics(
        self,
        added: Iterable[tuple[TopicPartition, LogPosition | None]],
        topic_ids: Mapping[str, str],
    ) -> None:
        """Read committed positions only in their topics, which may have been recreated since.

        A failed read says that they were.
        """
        for topic_partition, position in added:
            topic_id = topic_ids.get(topic_partition.topic)
            if topic_id and position is not None:
                self._buffer(topic_partition).reader.expect_topic(topic_id)

    def by_topic_id(self, partitions: Iterable[TopicPartition]) -> list[TopicIdGroup]:
        """Group partitions so that in no group a topic has two ids.

        There is more than one group while a recreated topic has been noticed in some partitions
        only: in the others there may be records of the deleted topic to deliver.
        """
        groups: list[TopicIdGroup] = []
        for one in partitions:
            buffer = self._buffers.get(one)
            topic_id = None if buffer is None else buffer.reader.topic_id
            group = next((group for group in groups if group.fits(one.topic, topic_id)), None)
            if group is None:
                groups.append(group := TopicIdGroup())
            group.partitions.append(one)
            if topic_id is not None:
                group.topic_ids[one.topic] = topic_id
        return groups

    def add_stuck(self, topic_partition: TopicPartition, problem: LeadlineError) -> None:
        """Read a partition only after a seek; until then, `take` raises `problem`."""
        self.add(topic_partition, "latest")
        self._buffers[topic_partition].stuck = problem
        self.news.set()

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop reading these, and drop their buffered records."""
        for topic_partition in partitions:
            buffer = self._buffers.pop(topic_partition, None)
            if buffer is not None:
                self._order.remove(topic_partition)
                self._clear(buffer)

    def seek(self, topic_partition: TopicPartition, start: Start) -> None:
        """Continue at `start`, and drop buffered records."""
        buffer = self._buffer(topic_partition)
        self._clear(buffer)
        buffer.reader.seek(start)
        buffer.stuck = None
        self.news.set()

    async def seek_to_time(self, topic_partition: TopicPartition, timestamp: int) -> int:
        """Continue at the first record of `timestamp` (Unix ms) or later, or else at the end.

        Returns its offset. Until that is found, and if the search fails, reading goes on as before.
        """
        self._buffer(topic_partition)
        search = self._client.core.position_for_timestamp(*topic_partition, timestamp)
        position = await self._client.run(search)
        self.seek(topic_partition, position)
        return position.offset

    def restart(self, topic_partition: TopicPartition, start: Start) -> None:
        """Read from `start` without any state: the topic may have been recreated."""
        paused = self._buffers[topic_partition].paused
        self.remove([topic_partition])
        self.add(topic_partition, start)
        self._buffers[topic_partition].paused = paused
        self.news.set()

    def pause(self, partitions: Iterable[TopicPartition], *, paused: bool) -> None:
        """Pause or resume delivery of these; their positions do not change."""
        for buffer in [self._buffer(topic_partition) for topic_partition in partitions]:
            buffer.paused = paused
        self.news.set()

    def paused(self) -> tuple[TopicPartition, ...]:
        """Return the partitions that are paused."""
        return tuple(key for key, buffer in self._buffers.items() if buffer.paused)

    def known_position(self, topic_partition: TopicPartition) -> LogPosition | None:
        """Return the position of the next record to deliver; None if it is unknown or not read."""
        buffer = self._buffers.get(topic_partition)
        if buffer is None or buffer.position < 0:
            return None
        return buffer.reader.position_at(buffer.position)

    def position_at(self, topic_partition: TopicPartition, offset: int) -> LogPosition:
        """Return an offset with the leader epoch of the record before it, if that was read."""
        buffer = self._buffers.get(topic_partition)
        return LogPosition(offset) if buffer is None else buffer.reader.position_at(offset)

    async def position(self, topic_partition: TopicPartition) -> int:
        """Return the offset of the next record to deliver; ask the leader if it is not known."""
        buffer = self._buffer(topic_partition)
        if buffer.position < 0:
            await self._client.run(buffer.reader.locate())
        return buffer.position

    def _buffer(self, topic_partition: TopicPartition) -> _PartitionBuffer:
        buffer = self._buffers.get(topic_partition)
        if buffer is None:  # It may have been revoked since the application got it.
            raise PartitionNotOwned(f"{topic_partition} is not read by this consumer")
        return buffer

    def start_reads(self) -> None:
        """Start a read of every partition whose buffer is empty, unless it is paused."""
        for topic_partition, buffer in self._buffers.items():
            if buffer.idle:
                buffer.read = asyncio.create_task(self._read(topic_partition, buffer))

    def take(self, limit: int) -> list[ConsumedRecord[K, V]]:
        """Return up to `limit` buffered records, from the partitions in turn.

        Raises:
            DeserializationFailed: the first record cannot be deserialized. It stays the next one
                of its partition until a `skip` or a `seek`; other partitions come first then.
            LeadlineError: there are none, and a read failed. The next call of `start_reads`
                retries it.

        """
        taken: list[ConsumedRecord[K, V]] = []
        for _ in range(len(self._order)):
            try:
                self._take_from(self._order[0], limit, taken)
            except DeserializationFailed:
                if taken:
                    return taken
                self._order.rotate(-1)
                raise
            if len(taken) == limit:
                return taken
            self._order.rotate(-1)
        if not taken:
            self._raise_failure()
        return taken

    def _take_from(
        self, topic_partition: TopicPartition, limit: int, taken: list[ConsumedRecord[K, V]]
    ) -> None:
        """Move records of one partition to `taken`; those before one that fails are moved too."""
        buffer = self._buffers[topic_partition]
        if buffer.paused:
            return
        while buffer.records and (left := limit - len(taken)):
            before = len(taken)
            try:
                # What came before an error stays in the list.
                taken.extend(self._deserialized(topic_partition, buffer.records.some(left)))
            finally:
                buffer.records.drop(len(taken) - before)

    def _deserialized(
        self, place: TopicPartition, stored: list[ConsumedRecord[bytes, bytes]]
    ) -> Iterable[ConsumedRecord[K, V]]:
        if self._deserializer.keeps_bytes:
            return cast("list[ConsumedRecord[K, V]]", stored)
        key_and_value = self._deserializer.key_and_value
        return (
            _make((*place, one.offset, one.timestamp, *key_and_value(place, one), one.headers))
            for one in stored
        )

    def skip(self, topic_partition: TopicPartition, offset: int) -> bool:
        """Leave out the next record, if it still is the one at `offset`; return whether it was."""
        buffer = self._buffers.get(topic_partition)
        if buffer is None or not buffer.records or buffer.records.first.offset != offset:
            return False
        buffer.records.drop(1)
        return True

    def give_back(self, records: Iterable[ConsumedRecord[K, V]]) -> None:
        """Deliver records again that were taken and that nobody has got."""
        firsts: dict[TopicPartition, int] = {}
        for one in records:
            firsts.setdefault(one.topic_partition, one.offset)
        for topic_partition, offset in firsts.items():
            buffer = self._buffers.get(topic_partition)
            if buffer is not None:  # Nobody else reads it meanwhile.
                position = buffer.reader.position_at(offset)
                self._clear(buffer)
                buffer.reader.return_to(position)
        self.news.set()

    async def aclose(self) -> None:
        """Stop reading."""
        self.remove(self.partitions)
        while self._cancelled:
            await asyncio.wait(self._cancelled)

    def _raise_failure(self) -> None:
        for buffer in self._buffers.values():
            failure, buffer.failure = buffer.failure or buffer.stuck, None
            if failure is not None:
                raise failure

    async def _read(self, topic_partition: TopicPartition, buffer: _PartitionBuffer) -> None:
        try:
            # No await comes between the new position and its records, and so no commit.
            make = partial(_consumed, *topic_partition)
            chunks = await self._client.run(buffer.reader.read_chunks(self._limits, make))
            buffer.records.fill(chunks)
            buffer.read = None
        except Exception as error:
            if isinstance(error, LeadlineError) and self._is_recovered(topic_partition, error):
                await asyncio.sleep(_RECOVERY_PAUSE_S)
            else:
                buffer.failure = error
            buffer.read = None
        self.news.set()

    def _is_recovered(self, topic_partition: TopicPartition, error: LeadlineError) -> bool:
        return self.recover is not None and self.recover(topic_partition, error)

    def _clear(self, buffer: _PartitionBuffer) -> None:
        buffer.records.clear()
        buffer.failure = None
        if buffer.read is not None:
            buffer.read.cancel()
            self._cancelled.add(buffer.read)
            buffer.read.add_done_callback(self._cancelled.discard)
            buffer.read = None
