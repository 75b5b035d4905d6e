"""Leadline's own asynchronous client."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from leadline_client import (
    AsyncClient,
    AsyncConsumer,
    AsyncProducer,
    ConsumerSettings,
    OutgoingRecord,
    ProducerSettings,
    RebalanceListener,
    batches,
)
from leadline_client.fetching import ConsumedRecord
from peers.clients.membership import Group, Member
from peers.clients.pacing import Acknowledgement, Send, SendOne, each_in_turn, paced
from peers.clients.work import (
    BATCH_BYTES,
    LINGER_MS,
    MAX_POLL_RECORDS,
    MOST_CONSUME_S,
    READ_AT_ONCE_S,
    Stopwatch,
    Work,
)

BATCHING = ProducerSettings(linger_ms=LINGER_MS, batch_bytes=BATCH_BYTES)
AT_ONCE = ProducerSettings(linger_ms=0)
MANY = 1_000
"""Records in a list."""


def connect(bootstrap: str) -> LeadlineDriver:
    """Return the driver of a cluster."""
    return LeadlineDriver(bootstrap)


class LeadlineDriver:
    """See `Driver`."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    async def produce(self, work: Work, watch: Stopwatch) -> None:
        """Send all records as fast as one batching producer can."""
        topic, value, partitions = work.topic, work.value, work.partitions
        async with AsyncProducer(self._bootstrap, settings=BATCHING) as producer:
            for number in work.warm_up:
                await (await producer.send(topic, value, partition=number))
            watch.start()
            sent = [
                await producer.send(topic, value, partition=number % partitions)
                for number in range(work.records)
            ]
            await producer.flush()
            watch.stop(work.records, work.records * work.value_bytes)
            for future in sent:
                future.result()

    async def produce_many(self, work: Work, watch: Stopwatch) -> None:
        """Send lists of records as fast as one batching producer can."""
        topic, partitions = work.topic, work.partitions
        async with AsyncProducer(self._bootstrap, settings=BATCHING) as producer:
            for number in work.warm_up:
                await (await producer.send(topic, work.value, partition=number))
            lists = [
                [work.value] * min(MANY, work.records - first)
                for first in range(0, work.records, MANY)
            ]
            watch.start()
            sent = [
                await producer.send_many(topic, values, partition=turn % partitions)
                for turn, values in enumerate(lists)
            ]
            await producer.flush()
            watch.stop(work.records, work.records * work.value_bytes)
            for records in sent:
                await records

    async def produce_batches(self, work: Work, watch: Stopwatch) -> None:
        """Send each record as a batch of its own; each client waits before it sends the next."""
        record = OutgoingRecord(work.value)

        def send(client: AsyncClient) -> Send:
            async def one(number: int) -> asyncio.Future[Any]:
                batch = batches.encode([record], now_ms=time.time_ns() // 1_000_000)
                partition = number % work.partitions
                return asyncio.ensure_future(
                    _awaited(client.produce_batches(work.topic, partition, batch))
                )

            return one

        async with AsyncExitStack() as stack:
            clients = [
                await stack.enter_async_context(AsyncClient(self._bootstrap))
                for _ in range(work.clients)
            ]
            await each_in_turn(work, watch, map(send, clients))

    async def send_singly(self, work: Work, watch: Stopwatch) -> None:
        """Send each record alone; each client waits for it before it sends the next."""
        async with AsyncExitStack() as stack:
            producers = [
                await stack.enter_async_context(AsyncProducer(self._bootstrap, settings=AT_ONCE))
                for _ in range(work.clients)
            ]
            await each_in_turn(work, watch, (_sender(work, producer) for producer in producers))

    async def send_paced(self, work: Work, watch: Stopwatch) -> None:
        """Send records at a fixed pace; note how long after its due time each is acknowledged."""
        async with AsyncProducer(self._bootstrap, settings=AT_ONCE) as producer:
            send = _sender(work, producer)
            for number in work.warm_up:
                await (await send(number))
            await paced(work, watch, send)

    async def consume(self, work: Work, watch: Stopwatch) -> None:
        """Read all records of the topic from the beginning, with one consumer without a group."""
        settings = ConsumerSettings(max_poll_records=MAX_POLL_RECORDS)
        async with AsyncConsumer(self._bootstrap, settings=settings) as consumer:
            await consumer.assign([(work.topic, number) for number in range(work.partitions)])
            first = await consumer.poll(MOST_CONSUME_S)
            left, size = work.records - len(first), 0
            watch.start()
            async with asyncio.timeout(MOST_CONSUME_S):
                while left > 0:
                    records = await consumer.poll(READ_AT_ONCE_S)
                    left -= len(records)
                    size += _size(records)
            watch.stop(work.records - len(first) - left, size)

    @asynccontextmanager
    async def sender(self, topic: str, partition: int) -> AsyncIterator[SendOne]:
        """Open a producer; yield what sends one record and returns once it is acknowledged."""
        async with AsyncProducer(self._bootstrap, settings=AT_ONCE) as producer:

            async def send() -> None:
                await (await producer.send(topic, b"x", partition=partition))

            yield send

    async def live_in_group(self, work: Work, watch: Stopwatch) -> None:
        """Have `clients` members join a group, one more join, and one leave; note the times."""
        group = Group(work, lambda: GroupMember(self._bootstrap, work.topic, group))
        await group.live(watch)


class GroupMember(Member):
    """One consumer of a group, with a client of its own."""

    def __init__(self, bootstrap: str, topic: str, group: Group) -> None:
        super().__init__(group)
        self._topic = topic
        self._consumer: AsyncConsumer[bytes, bytes] = AsyncConsumer(
            bootstrap,
            group.name,
            settings=ConsumerSettings(assignor="roundrobin"),
            listener=RebalanceListener(self._gained, self._lost, self._lost),
        )

    async def consume(self) -> None:
        """Join and poll until cancelled."""
        await self._consumer.subscribe([self._topic])
        while True:
            await self._consumer.poll(READ_AT_ONCE_S)
            self.polled()

    async def leave(self) -> None:
        """Leave the group."""
        await self._consumer.aclose()

    def _gained(self, partitions: Iterable[tuple[str, int]]) -> None:
        self.owns(self.owned.union(partitions))

    def _lost(self, partitions: Iterable[tuple[str, int]]) -> None:
        self.owns(self.owned.difference(partitions))


def _sender(work: Work, producer: AsyncProducer[Any, Any]) -> Send:
    topic, value, partitions = work.topic, work.value, work.partitions

    def send(number: int) -> Awaitable[Acknowledgement]:
        return producer.send(topic, value, partition=number % partitions)

    return send


async def _awaited(answer: Awaitable[object]) -> object:
    return await answer


def _size(records: Iterable[ConsumedRecord[Any, Any]]) -> int:
    return sum(len(one.value or b"") for one in records)
