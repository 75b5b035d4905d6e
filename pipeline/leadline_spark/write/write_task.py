"""A task of a write: take rows from Spark, and deliver records to the leaders of partitions."""

from __future__ import annotations

import random
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext

from leadline_client.columnar.encode import NO_PRODUCER
from leadline_client.wire import Metadata, TopicPartition
from leadline_spark.cluster.cluster_client import ClusterClient, document, leader_url
from leadline_spark.cluster.waiting import until_answered
from leadline_spark.errors import LeadlineSparkError
from leadline_spark.write.partition_buffers import PartitionBuffers, PartitionWriter
from leadline_spark.write.partition_writers import AppendWriter, StageWriter, leader_client
from leadline_spark.write.publishing import StagedBatches, WriteResult, drop
from leadline_spark.write.records import RowPartitioner
from leadline_spark.write.sink_settings import SinkSettings
from leadline_spark.write.spill_file import SpillFile

if TYPE_CHECKING:
    import pyarrow as pa

_NEW_TOPIC_S = 10.0
"""How long a topic may be unknown: it may have just been created."""
_RETRY_S = 0.2
_STARTS: Final = 1 << 16


def write_task(settings: SinkSettings, batches: Iterator[pa.RecordBatch]) -> WriteResult:
    """Write all rows of one task. Raises LeadlineSparkError."""
    context = TaskContext.get()
    return WriteTask(settings, context.partitionId() if context else 0).run(batches)


def first_partition(settings: SinkSettings, number: int, random: Callable[[], float]) -> int:
    """Return where the records without a key of task `number` begin, modulo the partition count.

    It is random, as in every producer (KIP-480): many small writes fill all partitions. A write
    that is repeated exactly once must place its records again as it did the first time, so there
    the application's name and version take the place of `random`, which returns numbers in [0, 1).
    """
    if settings.app is None:
        return int(random() * _STARTS) + number
    return zlib.crc32(settings.app.encode()) + (settings.version or 0) + number


class WriteTask:
    """One task of a write; `number` is the same in every attempt at it."""

    def __init__(self, settings: SinkSettings, number: int) -> None:
        self._settings = settings
        self._number = number
        self._cluster = ClusterClient(settings.connection)
        self._metadata: dict[str, Metadata] = {}
        self._producer = NO_PRODUCER
        self._stage_writers: list[StageWriter] = []
        self._spill_file = SpillFile()
        # The timestamp of all staged records that have none of their own.
        self._now_ms = time.time_ns() // 1_000_000

    def run(self, batches: Iterator[pa.RecordBatch]) -> WriteResult:
        """Write all rows, and return what was done."""
        settings = self._settings
        partitioner = RowPartitioner(
            self._partition_count,
            topic=settings.topic,
            keep_timestamps=settings.keep_timestamps,
            batch_bytes=settings.batch_bytes,
            first=first_partition(settings, self._number, random.random),
        )
        rows = 0
        try:
            with PartitionBuffers(
                self._partition_writer,
                batch_bytes=settings.batch_bytes,
                buffer_bytes=settings.buffer_bytes,
            ) as buffers:
                for batch in batches:
                    rows += batch.num_rows
                    for topic_partition, records in partitioner.partition(batch):
                        buffers.add(topic_partition, records)
                buffers.finish()
            self._follow_leaders()
        except BaseException:
            drop(settings, self._staged())
            raise
        finally:
            self._spill_file.close()
        return WriteResult(self._number, rows, self._staged())

    def _follow_leaders(self) -> None:
        """Stage with the present leaders: the commit may come long after the task."""
        topics = {writer.client.topic_partition.topic for writer in self._stage_writers}
        if topics:
            metadata = self._read_metadata(topics)
            for writer in self._stage_writers:
                writer.move_to(leader_url(metadata, writer.client.topic_partition))

    def _staged(self) -> tuple[StagedBatches, ...]:
        return tuple(
            StagedBatches(writer.client.topic_partition, writer.leader, tuple(writer.staged))
            for writer in self._stage_writers
        )

    def _partition_writer(self, topic_partition: TopicPartition) -> PartitionWriter:
        settings = self._settings
        leader = leader_url(self._metadata[topic_partition.topic], topic_partition)
        client = leader_client(settings, topic_partition, leader)
        if settings.app is not None:
            writer = StageWriter(client, settings, self._spill_file, self._now_ms)
            self._stage_writers.append(writer)
            return writer
        return AppendWriter(client, settings, self._producer_identity())

    def _producer_identity(self) -> tuple[int, int]:
        """Return the task's producer id and epoch, requested once; none without acks=all."""
        if self._producer == NO_PRODUCER and self._settings.acks == "all":
            found = document(
                until_answered(
                    lambda: self._cluster.ask_broker("POST", "/v1/producer-ids"),
                    self._settings.deadline_s,
                )
            )
            self._producer = (found["producer_id"], found["producer_epoch"])
        return self._producer

    def _partition_count(self, topic: str) -> int:
        """Return the number of a topic's partitions when the task first asked for it."""
        if topic not in self._metadata:
            self._metadata[topic] = self._wait_for_topic(topic)
        return len(self._metadata[topic].topics[topic].partitions)

    def _wait_for_topic(self, topic: str) -> Metadata:
        give_up: float | None = None
        while True:
            metadata = self._read_metadata([topic])
            if topic in metadata.topics:
                return metadata
            # The time in which no broker answered does not count.
            give_up = give_up or time.monotonic() + min(_NEW_TOPIC_S, self._settings.deadline_s)
            if time.monotonic() >= give_up:
                advice = f"Make it first: leadline topics create {topic}."
                message = f"There is no topic {topic}. {advice}"
                raise LeadlineSparkError("LEADLINE_TOPIC_UNKNOWN", message)
            time.sleep(_RETRY_S)

    def _read_metadata(self, topics: Iterable[str]) -> Metadata:
        """Return metadata. Brokers that are all down are waited for, as a leader is."""
        names = list(topics)
        return until_answered(lambda: self._cluster.metadata(names), self._settings.deadline_s)
