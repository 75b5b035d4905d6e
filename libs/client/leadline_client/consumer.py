"""Consumers of several partitions, which the application or a group's coordinator assigns.

With a group, `subscribe` joins it: the coordinator assigns partitions to the consumer, which
begins at their committed offsets. Methods take partitions as plain (topic, partition)
tuples or as `TopicPartition`.

    async with AsyncConsumer("http://127.0.0.1:9091", "billing") as consumer:
        await consumer.subscribe(["orders"])
        async for consumed in consumer:
            print(consumed.topic, consumed.partition, consumed.value)
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterable
from functools import partial
from itertools import starmap
from typing import Generic, Self, TypeAlias
from weakref import finalize

from leadline_client.client import AsyncSource, async_client
from leadline_client.clock import monotonic_s
from leadline_client.consumer_coordinator import ConsumerCoordinator
from leadline_client.consumer_end import Ending, end, end_unclosed
from leadline_client.consumer_settings import (
    ConsumerSettings,
    Notice,
    Partitions,
    RebalanceListener,
    Topics,
)
from leadline_client.errors import DeserializationFailed, InvalidRequest
from leadline_client.extras import require_websockets
from leadline_client.fetching import ConsumedRecord, Fetcher
from leadline_client.groups import GroupMetadata, PartitionPositionMap, committed
from leadline_client.reading import ReadLimits, Start
from leadline_client.security import Security
from leadline_client.serializers import failures
from leadline_client.serializers.protocols import Deserializer, OnDeserializationError
from leadline_client.serializers.records import RecordDeserializer
from leadline_client.type_parameters import K, V
from leadline_client.wire import TopicPartition

DEFAULT_LIMITS = ReadLimits()
DEFAULT_SETTINGS = ConsumerSettings()
NO_CALLBACKS = RebalanceListener()
Step: TypeAlias = Notice | DeserializationFailed | list[ConsumedRecord[K, V]]


class AsyncConsumer(Generic[K, V]):
    """A consumer on the running event loop; only one task at a time may poll it.

    `source`: a client, which stays open at the close, or addresses of brokers with their
    `security`. `subscribe` and `commit` need a `group`, `assign` does not. Deserializers make keys
    and values of bytes; without them, both are bytes. `on_deserialization_error` says what becomes
    of a record that cannot be deserialized: by default `poll` raises, and stays before it.
    """

    def __init__(
        self,
        source: AsyncSource,
        group: str | None = None,
        *,
        settings: ConsumerSettings = DEFAULT_SETTINGS,
        listener: RebalanceListener = NO_CALLBACKS,
        limits: ReadLimits = DEFAULT_LIMITS,
        key_deserializer: Deserializer[K] | None = None,
        value_deserializer: Deserializer[V] | None = None,
        on_deserialization_error: OnDeserializationError = "raise",
        security: Security | None = None,
        clock: Callable[[], float] = monotonic_s,
    ) -> None:
        self._on_deserialization_error = failures.checked(on_deserialization_error)
        client, self._owns_client = async_client(source, security)
        self._client = client
        self._group = group
        self._settings = settings
        self._listener = listener
        read = limits.with_replica(settings.replica, settings.rack)
        deserializer = RecordDeserializer(key_deserializer, value_deserializer)
        self._fetcher = Fetcher(client, read, deserializer)
        self._coordinator: ConsumerCoordinator | None = None
        self._clock = clock
        self._closed = False
        self._ending = asyncio.Lock()
        self._finalizer: finalize[..., AsyncConsumer[K, V]] | None = None

    @property
    def assignment(self) -> Partitions:
        """The assigned partitions; with a group, those of which the listener has been called."""
        return (
            self._fetcher.partitions if self._coordinator is None else self._coordinator.assignment
        )

    @property
    def threads(self) -> tuple[Partitions, ...]:
        """The assignment by thread, if the settings ask for several threads."""
        return () if self._coordinator is None else self._coordinator.threads

    @property
    def group_metadata(self) -> GroupMetadata | None:
        """What `Client.commit_offsets` needs to commit as this member; None while it is none.

        It has the member's secret: give it to nobody who may not commit in its name.
        """
        return None if self._coordinator is None else self._coordinator.session.group_metadata

    @property
    def paused(self) -> Partitions:
        """The paused partitions."""
        return self._fetcher.paused()

    async def subscribe(self, topics: Topics | None = None, *, pattern: str | None = None) -> None:
        """Join the group for these topics, for all whose whole name matches `pattern`, or both.

        Patterns are RE2. A mapping gives each topic the number of threads that read it, as in
        Kafka 0.8: `{"orders": 4, "audit": 1}`; all others are read by `settings.threads`. See
        `threads`. Returns at once; later errors are raised by `poll`. Another call changes
        the subscription.
        """
        self._check_open()
        if topics is None and pattern is None:
            raise InvalidRequest("subscribe takes topics, a pattern, or both")
        if self._coordinator is None and self._fetcher.partitions:
            raise InvalidRequest("assign was called: subscribe with a new consumer")
        require_websockets()
        subscription = self._settings.subscription(topics, pattern)
        if self._coordinator is None:
            self._coordinator = self._new_coordinator(self._named_group())
            self._fetcher.recover = self._coordinator.recover
            loop, ending = asyncio.get_running_loop(), self._ending_of(self._coordinator)
            self._finalizer = finalize(self, end_unclosed, loop, ending)
            self._finalizer.atexit = False
        await self._coordinator.subscribe(subscription)

    async def assign(
        self, partitions: Iterable[tuple[str, int]], start: Start = "earliest"
    ) -> None:
        """Read exactly `partitions` from now on; those read already keep their positions."""
        self._check_open()
        if self._coordinator is not None:
            raise InvalidRequest(
                "the group assigns the partitions of a consumer that has subscribed"
            )
        assigned = [TopicPartition(*partition) for partition in partitions]
        self._fetcher.remove(set(self._fetcher.partitions).difference(assigned))
        for topic_partition in assigned:
            self._fetcher.add(topic_partition, start)

    async def seek(self, partition: tuple[str, int], start: Start) -> None:
        """Continue at `start`; records that were fetched but not delivered are dropped."""
        self._check_open()
        topic_partition = TopicPartition(*partition)
        self._fetcher.seek(topic_partition, start)
        if self._coordinator is not None:
            self._coordinator.mark_sought(topic_partition)

    async def seek_to_time(self, partition: tuple[str, int], timestamp: int) -> int:
        """Continue at the first record of `timestamp` (Unix ms) or later, or else at the end.

        Returns its offset. If the search fails, the position does not change.
        """
        self._check_open()
        topic_partition = TopicPartition(*partition)
        offset = await self._fetcher.seek_to_time(topic_partition, timestamp)
        if self._coordinator is not None:
            self._coordinator.mark_sought(topic_partition)
        return offset

    def pause(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Deliver no records of these; they stay assigned and keep their positions."""
        self._fetcher.pause(starmap(TopicPartition, partitions), paused=True)

    def resume(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Deliver records of these again."""
        self._fetcher.pause(starmap(TopicPartition, partitions), paused=False)

    async def position(self, partition: tuple[str, int]) -> int:
        """Return the offset of the next record to deliver.

        Only `poll` moves it, not reading ahead.
        """
        self._check_open()
        return await self._fetcher.position(TopicPartition(*partition))

    async def committed(self) -> dict[TopicPartition, int]:
        """Return the committed offsets of the group."""
        self._check_open()
        return await self._client.run(committed(self._client.core, self._named_group()))

    async def commit(
        self, offsets: PartitionPositionMap | None = None, *, timeout_s: float = 30.0
    ) -> None:
        """Commit `offsets`, or else the position of every partition: all delivered records.

        With an offset up to which this consumer has read goes the leader epoch of the record
        before it, by which the next consumer notices a truncation.

        Raises:
            LeadlineError: nothing was committed; StaleGeneration and UnknownMember mean that
                another member may own a partition now.
            PartitionNotOwned: the partitions that it names were lost, and not committed; the others
                may be.

        """
        self._check_open()
        coordinator = self._coordinator or self._new_coordinator(self._named_group())
        if offsets is None:
            offsets = coordinator.positions()
        positions = {
            TopicPartition(*key): self._fetcher.position_at(TopicPartition(*key), position)
            if isinstance(position, int)
            else position
            for key, position in offsets.items()
        }
        await coordinator.commit(positions, timeout_s)

    async def poll(
        self, timeout_s: float = 1.0, max_records: int | None = None
    ) -> list[ConsumedRecord[K, V]]:
        """Return new records of any partitions; none if none came within `timeout_s`.

        A call declares the records of the previous poll consumed. It calls the listener
        when the assignment changes. It raises the error of a failed read, which does not
        affect other partitions, and the error that keeps the consumer out of its group.

        Raises:
            DeserializationFailed: see `OnDeserializationError`.

        """
        deadline_s = self._clock() + timeout_s
        while True:
            step = await self.poll_step(deadline_s, max_records)
            if isinstance(step, Notice):
                await self._call_listener(step)
                continue
            if not isinstance(step, DeserializationFailed):
                return step
            waiting = failures.handle(self._on_deserialization_error, step)
            if inspect.isawaitable(waiting):
                await waiting
            self.skip(step)
            if self._clock() >= deadline_s:  # However many records are left out one after another.
                return []

    async def poll_step(self, deadline_s: float, max_records: int | None = None) -> Step[K, V]:
        """Wait until there are records, or a notice for which the listener must be called.

        A caller of this instead of `poll` passes each notice to `notice_handled` afterwards, and
        each record that could not be deserialized to `skip`, unless it is to come again.
        """
        self._check_open()
        limit = max_records or self._settings.max_poll_records
        if self._coordinator is not None:
            self._coordinator.mark_consumed()
        await asyncio.sleep(0)  # Polls without a pause must not delay answers to pings.
        while True:
            self._fetcher.news.clear()
            if self._coordinator is not None and (notice := await self._coordinator.next_notice()):
                return notice
            step = self._take(limit)
            left_s = deadline_s - self._clock()
            if step or left_s <= 0:
                return step
            try:
                # Unlike `wait_for` of Python 3.11, this never loses a cancellation.
                async with asyncio.timeout(left_s):
                    await self._fetcher.news.wait()
            except TimeoutError:
                return self._take(limit)

    def give_back(self, step: Step[K, V]) -> None:
        """Undo a `poll_step` whose outcome nobody has got: it comes again."""
        if isinstance(step, list):
            self._fetcher.give_back(step)
        elif isinstance(step, Notice) and self._coordinator is not None:
            self._coordinator.put_back(step)

    def notice_handled(self, notice: Notice) -> None:
        """Note that the listener has returned."""
        if self._coordinator is not None:
            self._coordinator.notice_handled(notice)

    def skip(self, failed: DeserializationFailed) -> None:
        """Leave out a record that could not be deserialized; it counts as consumed."""
        topic_partition = TopicPartition(failed.topic, failed.partition)
        if self._fetcher.skip(topic_partition, failed.offset) and self._coordinator is not None:
            self._coordinator.mark_sought(topic_partition)

    async def __aiter__(self) -> AsyncIterator[ConsumedRecord[K, V]]:
        """Yield record after record; asking for the next one declares a record consumed."""
        while True:
            for record in await self.poll(max_records=1):
                yield record

    async def aclose(self, *, consumed: bool = True) -> None:
        """Commit, call the listener, leave the group, stop reading, close a client of its own.

        `consumed`: whether the records of the last poll count as consumed. A static member
        does not leave: it keeps its partitions if it returns within its grace time. Every other
        call raises InvalidRequest from then on.
        """
        try:
            while (notice := await self.closing_notice(consumed=consumed)) is not None:
                await self._call_listener(notice)
        finally:
            self._closed = True  # Until here the listener may commit.
            async with self._ending:  # Another call must not close the client before.
                await self._end()

    async def _end(self) -> None:
        """Leave the group, stop reading, close the client; all of it, also if it is cancelled."""
        coordinator, self._coordinator = self._coordinator, None
        if self._finalizer is not None:
            self._finalizer.detach()
        await self._ending_of(coordinator)()

    def _ending_of(self, coordinator: ConsumerCoordinator | None) -> Ending:
        """Return what `_end` does, without a reference to this consumer."""
        owned = self._client if self._owns_client else None
        is_static = self._settings.instance_id is not None
        return partial(end, coordinator, self._fetcher, owned, quietly=is_static)

    async def closing_notice(self, *, consumed: bool) -> Notice | None:
        """Return the next notice for which the listener must be called at the close."""
        if self._coordinator is None:
            return None
        if consumed:
            self._coordinator.mark_consumed()
        self._coordinator.revoke_all()
        return await self._coordinator.next_notice()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self.aclose(consumed=kind is None)

    def _take(self, limit: int) -> list[ConsumedRecord[K, V]] | DeserializationFailed:
        coordinator = self._coordinator
        if coordinator is not None:
            coordinator.check()
        self._fetcher.start_reads()
        if coordinator is not None and not coordinator.may_deliver():
            return []
        try:
            records = self._fetcher.take(limit)
        except DeserializationFailed as failed:
            return failed
        if coordinator is not None:
            coordinator.mark_delivered(records)
        return records

    async def _call_listener(self, notice: Notice) -> None:
        try:
            waiting = self._listener.call(notice)
            if inspect.isawaitable(waiting):
                await waiting
        finally:  # The coordinator, and with it the whole group, waits for this.
            self.notice_handled(notice)

    def _check_open(self) -> None:
        if self._closed:
            raise InvalidRequest("the consumer is closed")

    def _named_group(self) -> str:
        if self._group is None:
            raise InvalidRequest("the consumer has no group")
        return self._group

    def _new_coordinator(self, group: str) -> ConsumerCoordinator:
        return ConsumerCoordinator(
            self._client, group, self._fetcher, self._settings, clock=self._clock
        )
