"""confluent-kafka: librdkafka, which is C, with a Python binding.

It does what makes it worth its C, batches and reading; the rest is left to aiokafka.
"""

from __future__ import annotations

import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from peers.clients.work import (
    BATCH_BYTES,
    LINGER_MS,
    MAX_POLL_RECORDS,
    MOST_CONSUME_S,
    READ_AT_ONCE_S,
    Stopwatch,
    Work,
)

SERVE_EVERY = 1_000


def connect(bootstrap: str) -> ConfluentDriver:
    """Return the driver of a cluster."""
    return ConfluentDriver(bootstrap)


class NotDone(RuntimeError):
    """Records were refused, or did not come."""


class ConfluentDriver:
    """The part of `Driver` that is measured of this client."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._acknowledged = 0

    async def produce(self, work: Work, watch: Stopwatch) -> None:
        """Send all records as fast as one batching producer can."""
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": LINGER_MS,
                "batch.size": BATCH_BYTES,
            }
        )
        value, partitions = work.value, work.partitions
        for number in work.warm_up:
            producer.produce(work.topic, value, partition=number, on_delivery=self._delivered)
        producer.flush()
        self._acknowledged = 0
        watch.start()
        for number in range(work.records):
            if number % SERVE_EVERY == 0:
                producer.poll(0)
            while True:
                try:
                    producer.produce(
                        work.topic,
                        value,
                        partition=number % partitions,
                        on_delivery=self._delivered,
                    )
                    break
                except BufferError:  # The queue of the library is full.
                    producer.poll(0.01)
        producer.flush()
        watch.stop(work.records, work.records * work.value_bytes)
        if self._acknowledged != work.records:
            raise NotDone(f"{self._acknowledged} of {work.records} records were acknowledged")

    async def produce_many(self, work: Work, watch: Stopwatch) -> None:
        """Send all records one by one: there is no other idempotent way."""
        await self.produce(work, watch)

    async def consume(self, work: Work, watch: Stopwatch) -> None:
        """Read all records of the topic from the beginning, with one consumer without a group."""
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": "unused",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
            }
        )
        consumer.assign(
            [
                TopicPartition(work.topic, number, OFFSET_BEGINNING)
                for number in range(work.partitions)
            ]
        )
        first, _ = self._read(consumer, 1, MOST_CONSUME_S)
        left, size = work.records - first, 0
        watch.start()
        give_up = time.monotonic() + MOST_CONSUME_S
        while left > 0 and time.monotonic() < give_up:
            count, count_bytes = self._read(consumer, left, READ_AT_ONCE_S)
            left -= count
            size += count_bytes
        watch.stop(work.records - first - left, size)
        consumer.close()
        if left > 0:
            raise NotDone(f"{left} of {work.records} records did not come")

    def _delivered(self, error: object, _: object) -> None:
        self._acknowledged += error is None

    @staticmethod
    def _read(consumer: Consumer, left: int, timeout_s: float) -> tuple[int, int]:
        """Return how many records were read, and the bytes of their values.

        `consume` waits until it has as many as it is asked for, so never for more than are `left`.
        """
        messages = consumer.consume(min(MAX_POLL_RECORDS, left), timeout_s)
        for message in messages:
            if message.error():
                raise NotDone(str(message.error()))
        return len(messages), sum(len(message.value() or b"") for message in messages)
