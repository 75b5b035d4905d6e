"""aiokafka, the asynchronous client of Kafka."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition

from peers.clients.membership import Group, Member
from peers.clients.pacing import Send, SendOne, each_in_turn, paced
from peers.clients.work import (
    BATCH_BYTES,
    LINGER_MS,
    MAX_POLL_RECORDS,
    MOST_CONSUME_S,
    READ_AT_ONCE_S,
    Stopwatch,
    Work,
)

MOST_REQUEST_BYTES = 8 << 20
"""Room for a full batch of each partition that one broker leads; the limit of a batch stays."""


def connect(bootstrap: str) -> AiokafkaDriver:
    """Return the driver of a cluster."""
    # A new topic's leaders answer with errors for a moment, which the client retries and logs.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    return AiokafkaDriver(bootstrap)


class AiokafkaDriver:
    """See `Driver`."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    async def produce(self, work: Work, watch: Stopwatch) -> None:
        """Send all records as fast as one batching producer can."""
        topic, value, partitions = work.topic, work.value, work.partitions
        async with self._producer(linger_ms=LINGER_MS, max_batch_size=BATCH_BYTES) as producer:
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
        """Send all records one by one: there is no other idempotent way."""
        await self.produce(work, watch)

    async def produce_batches(self, work: Work, watch: Stopwatch) -> None:
        """Send each record as a batch of its own; each client waits before it sends the next."""
        value = work.value

        def send(producer: AIOKafkaProducer) -> Send:
            def one(number: int) -> Awaitable[asyncio.Future[Any]]:
                batch = producer.create_batch()
                batch.append(key=None, value=value, timestamp=time.time_ns() // 1_000_000)
                batch.close()
                return producer.send_batch(batch, work.topic, partition=number % work.partitions)

            return one

        async with AsyncExitStack() as stack:
            producers = [
                await stack.enter_async_context(
                    self._producer(idempotent=False, max_batch_size=MOST_REQUEST_BYTES)
                )
                for _ in range(work.clients)
            ]
            await each_in_turn(work, watch, map(send, producers))

    async def send_singly(self, work: Work, watch: Stopwatch) -> None:
        """Send each record alone; each client waits for it before it sends the next."""
        async with AsyncExitStack() as stack:
            producers = [
                await stack.enter_async_context(self._producer()) for _ in range(work.clients)
            ]
            await each_in_turn(work, watch, (_sender(work, producer) for producer in producers))

    async def send_paced(self, work: Work, watch: Stopwatch) -> None:
        """Send records at a fixed pace; note how long after its due time each is acknowledged."""
        async with self._producer() as producer:
            send = _sender(work, producer)
            for number in work.warm_up:
                await (await send(number))
            await paced(work, watch, send)

    async def consume(self, work: Work, watch: Stopwatch) -> None:
        """Read all records of the topic from the beginning, with one consumer without a group."""
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap, max_poll_records=MAX_POLL_RECORDS
        )
        async with consumer:
            partitions = [TopicPartition(work.topic, number) for number in range(work.partitions)]
            consumer.assign(partitions)
            await consumer.seek_to_beginning(*partitions)
            first, _ = _counted(await consumer.getmany(timeout_ms=int(MOST_CONSUME_S * 1000)))
            left, size = work.records - first, 0
            watch.start()
            async with asyncio.timeout(MOST_CONSUME_S):
                while left > 0:
                    count, count_bytes = _counted(
                        await consumer.getmany(timeout_ms=int(READ_AT_ONCE_S * 1000))
                    )
                    left -= count
                    size += count_bytes
            watch.stop(work.records - first - left, size)

    @asynccontextmanager
    async def sender(self, topic: str, partition: int) -> AsyncIterator[SendOne]:
        """Open a producer; yield what sends one record and returns once it is acknowledged."""
        async with self._producer() as producer:

            async def send() -> None:
                await producer.send_and_wait(topic, b"x", partition=partition)

            yield send

    async def live_in_group(self, work: Work, watch: Stopwatch) -> None:
        """Have `clients` members join a group, one more join, and one leave; note the times."""
        group = Group(work, lambda: GroupMember(self._bootstrap, work.topic, group))
        await group.live(watch)

    def _producer(
        self, *, linger_ms: int = 0, max_batch_size: int = BATCH_BYTES, idempotent: bool = True
    ) -> AIOKafkaProducer:
        return AIOKafkaProducer(
            bootstrap_servers=self._bootstrap,
            acks="all",
            linger_ms=linger_ms,
            max_batch_size=max_batch_size,
            max_request_size=MOST_REQUEST_BYTES,
            enable_idempotence=idempotent,
        )


class GroupMember(Member, ConsumerRebalanceListener):
    """One consumer of a group, with a client of its own."""

    def __init__(self, bootstrap: str, topic: str, group: Group) -> None:
        super().__init__(group)
        self._topic = topic
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap, group_id=group.name, max_poll_records=MAX_POLL_RECORDS
        )

    async def consume(self) -> None:
        """Join and poll until cancelled."""
        self._consumer.subscribe([self._topic], listener=self)
        await self._consumer.start()
        while True:
            await self._consumer.getmany(timeout_ms=int(READ_AT_ONCE_S * 1000))
            self.polled()

    async def leave(self) -> None:
        """Leave the group."""
        await self._consumer.stop()

    def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        """Take note that the partitions are another's."""
        del revoked
        self.owns(())

    def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """Take note of all partitions that are this member's from now on."""
        self.owns((one.topic, one.partition) for one in assigned)


def _sender(work: Work, producer: AIOKafkaProducer) -> Send:
    topic, value, partitions = work.topic, work.value, work.partitions

    def send(number: int) -> Awaitable[asyncio.Future[Any]]:
        return producer.send(topic, value, partition=number % partitions)

    return send


def _counted(found: dict[TopicPartition, list[Any]]) -> tuple[int, int]:
    """Return how many records were read, and the bytes of their values."""
    count = size = 0
    for records in found.values():
        count += len(records)
        size += sum(len(record.value or b"") for record in records)
    return count, size
