"""Consumers: several partitions side by side, chosen by hand or shared out within a group.

`AsyncConsumer` runs on an event loop; `Consumer` is the same one on a thread of its
own. With a group, `subscribe` joins it; the coordinator says which partitions are
this consumer's, and committed offsets say where to go on.

    with Consumer("http://127.0.0.1:9091", "billing") as consumer:
        consumer.subscribe(["orders"])
        for one in consumer:
            print(one.topic, one.partition, one.record.value)
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import (
    AsyncIterator,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from concurrent.futures import Future as ThreadFuture
from typing import Self

from leadline_client.client import AsyncLeadlineClient
from leadline_client.consumer_coordinator import ConsumerCoordinator
from leadline_client.consumer_settings import (
    ConsumerSettings,
    Notice,
    Partitions,
    RebalanceListener,
)
from leadline_client.errors import InvalidRequest, LeadlineError
from leadline_client.event_loop_thread import EventLoopThread
from leadline_client.fetching import ConsumedRecord, Fetcher
from leadline_client.groups import committed
from leadline_client.membership import TopicPartition
from leadline_client.reading import ReadLimits, Start

_LIMITS = ReadLimits()

_DEFAULTS = ConsumerSettings()
_NOBODY = RebalanceListener()


class AsyncConsumer:
    """A consumer on the running event loop; one task at a time may poll it.

    `group` is needed for `subscribe` and `commit`, not for `assign`.
    """

    def __init__(
        self,
        client: AsyncLeadlineClient,
        group: str | None = None,
        *,
        settings: ConsumerSettings = _DEFAULTS,
        listener: RebalanceListener = _NOBODY,
        limits: ReadLimits = _LIMITS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._group = group
        self._settings = settings
        self._listener = listener
        self._fetcher = Fetcher(client, limits, self._recover)
        self._part: ConsumerCoordinator | None = None
        self._clock = clock

    @property
    def assignment(self) -> Partitions:
        """The partitions that are read: of a group, those that the application was told of."""
        return self._fetcher.partitions if self._part is None else self._part.assignment

    @property
    def threads(self) -> tuple[Partitions, ...]:
        """The assignment by thread, for a consumer that asked for several."""
        return () if self._part is None else self._part.threads

    @property
    def paused(self) -> Partitions:
        """The partitions that give nothing until they are resumed."""
        return self._fetcher.paused()

    async def subscribe(
        self, topics: Sequence[str] | None = None, *, pattern: str | None = None
    ) -> None:
        """Join the group for these topics, or for all whose whole name matches `pattern` (RE2).

        Returns at once: `poll` raises what goes wrong. Called again, it changes what
        is asked for.
        """
        if (topics is None) == (pattern is None):
            raise InvalidRequest("subscribe takes topics, or else a pattern")
        if self._part is None and self._fetcher.partitions:
            raise InvalidRequest("partitions were assigned by hand: subscribe with a new consumer")
        if self._part is None:
            self._part = self._participation(self._named_group())
        await self._part.subscribe(self._settings.subscription(topics, pattern))

    async def assign(self, partitions: Sequence[TopicPartition], start: Start = "earliest") -> None:
        """Read exactly `partitions` from now on; those read already keep their place."""
        if self._part is not None:
            raise InvalidRequest("the group assigns the partitions of a consumer that subscribed")
        self._fetcher.remove([one for one in self._fetcher.partitions if one not in partitions])
        for partition in partitions:
            self._fetcher.add(partition, start)

    async def seek(self, partition: TopicPartition, start: Start) -> None:
        """Read on from elsewhere; what was fetched and not delivered is dropped."""
        self._fetcher.seek(partition, start)
        if self._part is not None:
            self._part.sought(partition)

    async def seek_to_time(self, partition: TopicPartition, timestamp: int) -> int:
        """Read on from the first record of `timestamp` (Unix ms) or later."""
        offset = await self._fetcher.seek_to_time(partition, timestamp)
        if self._part is not None:
            self._part.sought(partition)
        return offset

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Give nothing of these; they stay this consumer's, and keep their place."""
        self._fetcher.pause(partitions, paused=True)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Give records of these again."""
        self._fetcher.pause(partitions, paused=False)

    async def position(self, partition: TopicPartition) -> int:
        """Return the offset of the next record to be delivered.

        Reading ahead is not counted: only `poll` moves it.
        """
        return await self._fetcher.position(partition)

    async def committed(self) -> dict[TopicPartition, int]:
        """Return the committed offsets of the group."""
        return await self._client.run(committed(self._client.core, self._named_group()))

    async def commit(
        self, offsets: Mapping[TopicPartition, int] | None = None, *, timeout_s: float = 30.0
    ) -> None:
        """Commit `offsets`, or else the position of every partition: all that was delivered.

        Raises:
            LeadlineError: nothing is committed; StaleGeneration, PartitionNotOwned and
                UnknownMember mean that a partition is somebody else's now.

        """
        part = self._part or self._participation(self._named_group())
        if offsets is None:
            known = ((one, self._fetcher.known_position(one)) for one in self.assignment)
            offsets = {one: offset for one, offset in known if offset >= 0}
        await part.commit(offsets, timeout_s)

    async def poll(
        self, timeout_s: float = 1.0, max_records: int | None = None
    ) -> list[ConsumedRecord]:
        """Return what has come for any partition; empty after `timeout_s` without anything.

        Calling it says that the records of the last poll are consumed. It calls the
        listener when partitions come or go. Raises whatever a partition's read
        raises, the others are not disturbed; and why the group cannot be joined.
        """
        deadline_s = self._clock() + timeout_s
        while isinstance(turn := await self.turn(deadline_s, max_records), Notice):
            await self._tell(turn)
        return turn

    async def turn(
        self, deadline_s: float, max_records: int | None = None
    ) -> Notice | list[ConsumedRecord]:
        """Go on until there are records, or a change that the application is to be told of.

        Who calls this instead of `poll` passes each notice to `told` when it was.
        """
        limit = max_records or self._settings.max_poll_records
        if self._part is not None:
            self._part.come_back()
        await asyncio.sleep(0)  # whoever polls without a pause must not keep pings unanswered
        while True:
            self._fetcher.news.clear()
            if self._part is not None and (notice := await self._part.next_notice()):
                return notice
            records = self._take(limit)
            left_s = deadline_s - self._clock()
            if records or left_s <= 0:
                return records
            try:
                await asyncio.wait_for(self._fetcher.news.wait(), left_s)
            except TimeoutError:
                return self._take(limit)

    def told(self, notice: Notice) -> None:
        """Take note that the application was told of a change."""
        if self._part is not None:
            self._part.done(notice)

    async def __aiter__(self) -> AsyncIterator[ConsumedRecord]:
        """Give record after record; each is consumed when the next is asked for."""
        while True:
            for record in await self.poll(max_records=1):
                yield record

    async def aclose(self, *, consumed: bool = True) -> None:
        """Commit, tell the listener, leave the group, stop reading. The client stays open.

        `consumed`: whether what the last poll gave counts as consumed. A static member
        does not leave: it has until its grace time is over to come back.
        """
        try:
            while (notice := await self.last_notice(consumed=consumed)) is not None:
                await self._tell(notice)
        finally:  # a member that consumes nothing would keep its partitions from the others
            if self._part is not None:
                await self._part.leave(quietly=self._settings.instance_id is not None)
                self._part = None
            await self._fetcher.aclose()

    async def last_notice(self, *, consumed: bool) -> Notice | None:
        """Return what the application is still to be told of at the close."""
        if self._part is None:
            return None
        if consumed:
            self._part.come_back()
        self._part.give_all_up()
        return await self._part.next_notice()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self.aclose(consumed=kind is None)

    def _take(self, limit: int) -> list[ConsumedRecord]:
        part = self._part
        if part is None:
            self._fetcher.start_reads()
            return self._fetcher.take(limit)
        part.check()
        self._fetcher.start_reads()
        if not part.may_give():
            return []
        records = self._fetcher.take(limit)
        part.gave(records)
        return records

    async def _tell(self, notice: Notice) -> None:
        try:
            waiting = self._listener.call(notice)
            if inspect.isawaitable(waiting):
                await waiting
        finally:  # the coordinator, and so the whole group, waits for it
            self.told(notice)

    def _recover(self, partition: TopicPartition, error: LeadlineError) -> bool:
        return self._part is not None and self._part.recover(partition, error)

    def _named_group(self) -> str:
        if self._group is None:
            raise InvalidRequest("the consumer has no group")
        return self._group

    def _participation(self, group: str) -> ConsumerCoordinator:
        return ConsumerCoordinator(
            self._client, group, self._fetcher, self._settings, clock=self._clock
        )


class Consumer:
    """A consumer for code without an event loop; the listener is called on the polling thread.

    One thread at a time may poll it; any thread may `close` it after that.
    """

    def __init__(
        self,
        bootstrap: str | Sequence[str],
        group: str | None = None,
        *,
        settings: ConsumerSettings = _DEFAULTS,
        listener: RebalanceListener = _NOBODY,
        limits: ReadLimits = _LIMITS,
    ) -> None:
        self._thread = EventLoopThread("leadline-consumer")
        self._client = AsyncLeadlineClient(bootstrap)
        self._consumer = AsyncConsumer(self._client, group, settings=settings, limits=limits)
        self._listener = listener

    @property
    def assignment(self) -> Partitions:
        """The partitions that are read: of a group, those that the application was told of."""
        return self._consumer.assignment

    @property
    def threads(self) -> tuple[Partitions, ...]:
        """The assignment by thread, for a consumer that asked for several."""
        return self._consumer.threads

    @property
    def paused(self) -> Partitions:
        """The partitions that give nothing until they are resumed."""
        return self._consumer.paused

    def subscribe(self, topics: Sequence[str] | None = None, *, pattern: str | None = None) -> None:
        """Join the group; see `AsyncConsumer.subscribe`."""
        self._thread.run(self._consumer.subscribe(topics, pattern=pattern))

    def assign(self, partitions: Sequence[TopicPartition], start: Start = "earliest") -> None:
        """Read exactly `partitions` from now on; those read already keep their place."""
        self._thread.run(self._consumer.assign(partitions, start))

    def seek(self, partition: TopicPartition, start: Start) -> None:
        """Read on from elsewhere."""
        self._thread.run(self._consumer.seek(partition, start))

    def seek_to_time(self, partition: TopicPartition, timestamp: int) -> int:
        """Read on from the first record of `timestamp` (Unix ms) or later."""
        return self._thread.run(self._consumer.seek_to_time(partition, timestamp))

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Give nothing of these; they stay this consumer's, and keep their place."""
        self._thread.call(lambda: self._consumer.pause(partitions))

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Give records of these again."""
        self._thread.call(lambda: self._consumer.resume(partitions))

    def position(self, partition: TopicPartition) -> int:
        """Return the offset of the next record to be delivered."""
        return self._thread.run(self._consumer.position(partition))

    def committed(self) -> dict[TopicPartition, int]:
        """Return the committed offsets of the group."""
        return self._thread.run(self._consumer.committed())

    def commit(
        self, offsets: Mapping[TopicPartition, int] | None = None, *, timeout_s: float = 30.0
    ) -> None:
        """Commit `offsets`, or else all that was delivered; see `AsyncConsumer.commit`."""
        self._thread.run(self._consumer.commit(offsets, timeout_s=timeout_s))

    def commit_async(
        self, offsets: Mapping[TopicPartition, int] | None = None, *, timeout_s: float = 30.0
    ) -> ThreadFuture[None]:
        """Commit without waiting; the future raises what `commit` would."""
        return self._thread.start(self._consumer.commit(offsets, timeout_s=timeout_s))

    def poll(self, timeout_s: float = 1.0, max_records: int | None = None) -> list[ConsumedRecord]:
        """Return what has come for any partition; see `AsyncConsumer.poll`."""
        deadline_s = time.monotonic() + timeout_s
        while True:
            turn = self._thread.run(self._consumer.turn(deadline_s, max_records))
            if not isinstance(turn, Notice):
                return turn
            self._tell(turn)

    def __iter__(self) -> Iterator[ConsumedRecord]:
        """Give record after record; each is consumed when the next is asked for."""
        while True:
            yield from self.poll(max_records=1)

    def close(self, *, consumed: bool = True) -> None:
        """Leave the group, stop reading, close the connections; see `AsyncConsumer.aclose`."""
        try:
            while notice := self._thread.run(self._consumer.last_notice(consumed=consumed)):
                self._tell(notice)
        finally:
            self._end(consumed=consumed)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(consumed=kind is None)

    def _tell(self, notice: Notice) -> None:
        try:
            self._listener.call(notice)
        finally:
            self._thread.call(lambda: self._consumer.told(notice))

    def _end(self, *, consumed: bool) -> None:
        try:
            self._thread.run(self._consumer.aclose(consumed=consumed))
            self._thread.run(self._client.aclose())
        finally:
            self._thread.close()
