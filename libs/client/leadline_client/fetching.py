"""Reading several partitions side by side: one long poll for each is under way.

A partition's feed holds what was read and not given yet. Its position is the
offset of the next record to be given, so reading ahead never counts as progress.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from leadline_client.client import AsyncLeadlineClient
from leadline_client.errors import LeadlineError, PartitionNotOwned
from leadline_client.membership import TopicPartition
from leadline_client.reading import Position, ReadLimits, Start
from leadline_client.wire import Record

_RECOVERY_PAUSE_S: Final = 0.2

Recover: TypeAlias = Callable[[TopicPartition, LeadlineError], bool]
"""Deals with a failed read, for instance by a seek; False: the application is to know of it."""


@dataclass(frozen=True, slots=True)
class ConsumedRecord:
    """A record and where it comes from."""

    topic: str
    partition: int
    record: Record


@dataclass(slots=True, eq=False)
class _Feed:
    """One partition: where its reader stands, and what was read and not given yet."""

    reader: Position
    buffer: deque[Record] = field(default_factory=deque)
    read: asyncio.Task[None] | None = None
    failure: Exception | None = None
    stuck: LeadlineError | None = None
    paused: bool = False

    @property
    def idle(self) -> bool:
        """Whether to read on."""
        return self.read is None and not (self.buffer or self.failure or self.stuck or self.paused)

    @property
    def position(self) -> int:
        """The offset of the next record to be given; -1 as long as nobody asked the leader."""
        return self.buffer[0].offset if self.buffer else self.reader.offset


class Fetcher:
    """The feeds of one consumer. `news` is set whenever there may be something to take."""

    def __init__(
        self, client: AsyncLeadlineClient, limits: ReadLimits, recover: Recover = lambda *_: False
    ) -> None:
        self.news = asyncio.Event()
        self._client = client
        self._limits = limits
        self._recover = recover
        self._feeds: dict[TopicPartition, _Feed] = {}
        self._turns: deque[TopicPartition] = deque()
        self._ending: set[asyncio.Task[None]] = set()

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        """What is read."""
        return tuple(self._feeds)

    def add(self, partition: TopicPartition, start: Start) -> None:
        """Read a partition from `start`; one that is read already keeps its place."""
        if partition not in self._feeds:
            self._feeds[partition] = _Feed(Position(self._client.core, *partition, start))
            self._turns.append(partition)

    def add_stuck(self, partition: TopicPartition, problem: LeadlineError) -> None:
        """Read a partition only after a seek; until then every `take` without records says why."""
        self.add(partition, "latest")
        self._feeds[partition].stuck = problem
        self.news.set()

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these no longer, and drop what was read of them and not given."""
        for partition in partitions:
            feed = self._feeds.pop(partition, None)
            if feed is not None:
                self._turns.remove(partition)
                self._clear(feed)

    def seek(self, partition: TopicPartition, start: Start) -> None:
        """Read on from elsewhere, dropping what was read and not given."""
        feed = self._feed(partition)
        self._clear(feed)
        feed.reader.seek(start)
        feed.stuck = None
        self.news.set()

    async def seek_to_time(self, partition: TopicPartition, timestamp: int) -> int:
        """Read on from the first record of `timestamp` (Unix ms) or later; return its offset."""
        feed = self._feed(partition)
        if feed.position >= 0:
            feed.reader.seek(feed.position)  # where to go on if the search fails
        self._clear(feed)
        feed.stuck = None
        return await self._client.run(feed.reader.seek_to_time(timestamp))

    def restart(self, partition: TopicPartition, start: Start) -> None:
        """Read as if for the first time: the topic may be another one of the same name."""
        paused = self._feeds[partition].paused
        self.remove([partition])
        self.add(partition, start)
        self._feeds[partition].paused = paused
        self.news.set()

    def pause(self, partitions: Iterable[TopicPartition], *, paused: bool) -> None:
        """Give nothing of these until they are resumed; their place stays."""
        for feed in [self._feed(partition) for partition in partitions]:
            feed.paused = paused
        self.news.set()

    def paused(self) -> tuple[TopicPartition, ...]:
        """Return the partitions that are paused."""
        return tuple(key for key, feed in self._feeds.items() if feed.paused)

    def known_position(self, partition: TopicPartition) -> int:
        """Return the offset of the next record to be given; -1: not known, or not read at all."""
        feed = self._feeds.get(partition)
        return -1 if feed is None else feed.position

    async def position(self, partition: TopicPartition) -> int:
        """Return the offset of the next record to be given, asking the leader if need be."""
        feed = self._feed(partition)
        return feed.position if feed.position >= 0 else await self._located(feed)

    def _feed(self, partition: TopicPartition) -> _Feed:
        feed = self._feeds.get(partition)
        if feed is None:  # it may have been taken away since the application was told of it
            raise PartitionNotOwned(f"{partition[0]}-{partition[1]} is not read by this consumer")
        return feed

    async def _located(self, feed: _Feed) -> int:
        await self._client.run(feed.reader.locate())
        return feed.position

    def start_reads(self) -> None:
        """Have every feed read that is empty and not paused."""
        for partition, feed in self._feeds.items():
            if feed.idle:
                feed.read = asyncio.create_task(self._read(partition, feed))

    def take(self, limit: int) -> list[ConsumedRecord]:
        """Return up to `limit` records that have come, the partitions in turn.

        Raises:
            LeadlineError: nothing came, and a read failed. It is tried again afterwards.

        """
        taken: list[ConsumedRecord] = []
        for _ in range(len(self._turns)):
            topic, number = self._turns[0]
            feed = self._feeds[topic, number]
            while feed.buffer and not feed.paused and len(taken) < limit:
                taken.append(ConsumedRecord(topic, number, feed.buffer.popleft()))
            if len(taken) == limit:
                return taken
            self._turns.rotate(-1)
        if not taken:
            self._raise_failure()
        return taken

    async def aclose(self) -> None:
        """Stop reading."""
        self.remove(self.partitions)
        while self._ending:
            await asyncio.wait(self._ending)

    def _raise_failure(self) -> None:
        for feed in self._feeds.values():
            failure, feed.failure = feed.failure or feed.stuck, None
            if failure is not None:
                raise failure

    async def _read(self, partition: TopicPartition, feed: _Feed) -> None:
        try:
            # Filled in the very step in which the reader moves on: no commit can come between.
            feed.buffer.extend(await self._client.run(feed.reader.read(self._limits)))
            feed.read = None
        except Exception as error:
            if isinstance(error, LeadlineError) and self._recover(partition, error):
                await asyncio.sleep(_RECOVERY_PAUSE_S)
            else:
                feed.failure = error
            feed.read = None
        self.news.set()

    def _clear(self, feed: _Feed) -> None:
        feed.buffer.clear()
        feed.failure = None
        if feed.read is not None:
            feed.read.cancel()
            self._ending.add(feed.read)
            feed.read.add_done_callback(self._ending.discard)
            feed.read = None
