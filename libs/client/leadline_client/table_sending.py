"""Columns of records on their way to a producer, which sends the batches that they fill."""

from __future__ import annotations

import random
import time
from collections import deque
from concurrent.futures import Future
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from leadline_client.columnar.encode import Records, concat, encode
from leadline_client.columnar.murmur2 import partitions_of
from leadline_client.columnar.partitioning import StickyPartitions, by_partition
from leadline_client.payloads import EncodedBatch
from leadline_client.sent_records import RecordMetadata
from leadline_client.sync_producer import Producer
from leadline_client.wire import TopicPartition

_PARTITIONS = 1 << 16


class TableSender:
    """Sends columns of records to one topic, to `partition` or as the keys decide.

    Records wait here until they fill a batch of the producer's `batch_bytes`.
    """

    def __init__(self, producer: Producer[Any, Any], topic: str, partition: int | None) -> None:
        self._producer = producer
        self._settings = producer.settings
        self._topic = topic
        self._partition = partition
        self._batch_bytes = self._settings.batch_bytes
        first = random.randrange(_PARTITIONS)
        self._sticky = StickyPartitions(first, self._settings.batch_bytes)
        self._waiting: dict[int, list[Records]] = {}
        self._sizes: dict[int, int] = {}
        self._sent: deque[tuple[Future[RecordMetadata], int]] = deque()
        self._acknowledged = 0

    def add(self, records: Records) -> None:
        """Add records, in order, and send the batches that are full.

        Raises what an earlier batch has failed with, and for an unknown topic or partition.
        """
        count = self._producer.partition_count(self._topic, self._partition)
        for number, part in self._divided(records, count):
            self._waiting.setdefault(number, []).append(part)
            self._sizes[number] = self._sizes.get(number, 0) + pc.sum(part.sizes()).as_py()
            if self._sizes[number] >= self._batch_bytes:
                self._send(number, keep_rest=True)
        if sum(self._sizes.values()) > self._settings.buffer_bytes:
            self._send_all()
        while self._sent and self._sent[0][0].done():
            self._settle()

    def finish(self) -> int:
        """Send what waits; return how many records are acknowledged, which are all of them.

        Raises what a batch has failed with.
        """
        self._send_all()
        self._producer.flush()
        while self._sent:
            self._settle()
        return self._acknowledged

    def _divided(self, records: Records, count: int) -> list[tuple[int, Records]]:
        if not len(records):
            return []
        if self._partition is not None:
            return [(self._partition, records)]
        numbers = self._sticky.assign(records, partitions_of(records.key, count), count)
        return list(by_partition(records, numbers))

    def _send_all(self) -> None:
        for number in list(self._waiting):
            self._send(number, keep_rest=False)

    def _send(self, number: int, *, keep_rest: bool) -> None:
        """Send the records of a partition; `keep_rest` keeps what does not fill a batch."""
        parts = list(concat(self._waiting.pop(number)).split(self._batch_bytes))
        self._sizes[number] = 0
        if keep_rest and len(parts) > 1:
            rest = parts.pop()
            self._waiting[number] = [rest]
            self._sizes[number] = pc.sum(rest.sizes()).as_py()
        place = TopicPartition(self._topic, number)
        for part in parts:
            sent = self._producer.send_encoded(place, self._encoded(part))
            self._sent.append((sent, len(part)))

    def _encoded(self, records: Records) -> EncodedBatch:
        now_ms = time.time_ns() // 1_000_000
        data = encode(records, now_ms=now_ms, codec=self._settings.compression)
        return EncodedBatch(data, len(records), partial(self._halves, records))

    def _halves(self, records: Records) -> tuple[EncodedBatch, EncodedBatch]:
        """Encode the halves of a batch that is too large for the topic; fill smaller ones then.

        The producer's thread calls it.
        """
        self._batch_bytes = min(self._batch_bytes, pc.sum(records.sizes()).as_py() // 2)
        middle = len(records) // 2
        first, second = records.slice(0, middle), records.slice(middle, len(records) - middle)
        return self._encoded(first), self._encoded(second)

    def _settle(self) -> None:
        future, count = self._sent.popleft()
        future.result()
        self._acknowledged += count


def binary_column(column: pa.Array) -> pa.BinaryArray:
    """Return a column of bytes or text as bytes. Raises pyarrow's ArrowInvalid beyond 2 GiB."""
    if pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type):
        # The offsets of a slice may be beyond 2 GiB, those of a copy begin at 0.
        column = column.take(pa.arange(0, len(column)))
    return column.cast(pa.binary())
