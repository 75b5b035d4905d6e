"""Batch writes, and what a task of any write does: rows in, records at their leaders."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from leadline_client.wire import TopicPartition
from leadline_spark.cluster.cluster_client import ClusterClient, Metadata
from leadline_spark.codec.encode import NO_PRODUCER
from leadline_spark.errors import LeadlineSparkError
from leadline_spark.write.partition_buffers import PartitionBuffers, PartitionWriter
from leadline_spark.write.partition_writers import AppendWriter, LeaderClient, StageWriter
from leadline_spark.write.publishing import StagedUpload, WriteResult, drop, drop_all, publish_all
from leadline_spark.write.records import RowPartitioner, check_schema
from leadline_spark.write.sink_settings import SinkSettings
from leadline_spark.write.spill_file import SpillFile

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_SEEN_S = 10.0
"""How long a topic that is written to may be unknown: it may just have been made."""


class LeadlineBatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame once; pickled into every task, and used by the driver at the end."""

    def __init__(self, settings: SinkSettings, schema: StructType) -> None:
        check_schema(schema, settings.topic)
        self._settings = settings

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the rows of one task: append them, or stage them for the commit."""
        return write_task(self._settings, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish what is staged."""
        if self._settings.version is not None:
            publish_all(self._settings, messages, self._settings.version)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Delete what is staged; what was appended stays."""
        drop_all(self._settings, messages)


def write_task(settings: SinkSettings, batches: Iterator[pa.RecordBatch]) -> WriteResult:
    """Write the rows of one task. Raises LeadlineSparkError, and never ends short silently."""
    context = TaskContext.get()
    return WriteTask(settings, context.partitionId() if context else 0).run(batches)


class WriteTask:
    """One task of a write; `number` is the same in every attempt at it."""

    def __init__(self, settings: SinkSettings, number: int) -> None:
        self._settings = settings
        self._number = number
        self._cluster = ClusterClient(settings.connection)
        self._metadata: dict[str, Metadata] = {}
        self._producer = NO_PRODUCER
        self._staging: list[StageWriter] = []
        self._spill_file = SpillFile()
        # One time for all records of the task that have none of their own.
        self._now_ms = time.time_ns() // 1_000_000

    def run(self, batches: Iterator[pa.RecordBatch]) -> WriteResult:
        """Write all rows, and say what was done."""
        settings = self._settings
        sorter = RowPartitioner(
            self._count_of,
            topic=settings.topic,
            keep_timestamps=settings.keep_timestamps,
            batch_bytes=settings.batch_bytes,
            first=self._number,
        )
        rows = 0
        try:
            with PartitionBuffers(
                self._writer_of,
                batch_bytes=settings.batch_bytes,
                buffer_bytes=settings.buffer_bytes,
            ) as buffers:
                for batch in batches:
                    rows += batch.num_rows
                    for topic_partition, records in sorter.sort(batch):
                        buffers.add(topic_partition, records)
                buffers.finish()
            self._follow()
        except BaseException:
            drop(settings, self._uploads())
            raise
        finally:
            self._spill_file.close()
        return WriteResult(self._number, rows, self._uploads())

    def _follow(self) -> None:
        """Bring what is staged to those who lead now: the commit may be long after the task."""
        topics = {writer.topic_partition.topic for writer in self._staging}
        if topics:
            metadata = self._cluster.metadata(topics)
            for writer in self._staging:
                writer.follow(metadata.leader(writer.topic_partition).url)

    def _uploads(self) -> tuple[StagedUpload, ...]:
        return tuple(
            StagedUpload(writer.topic_partition, writer.leader, tuple(writer.staged))
            for writer in self._staging
        )

    def _writer_of(self, topic_partition: TopicPartition) -> PartitionWriter:
        settings = self._settings
        leader = self._metadata[topic_partition.topic].leader(topic_partition).url
        leader_client = LeaderClient(
            settings.connection, topic_partition, leader, settings.deadline_s
        )
        if settings.app is not None:
            writer = StageWriter(leader_client, settings, self._spill_file, self._now_ms)
            self._staging.append(writer)
            return writer
        return AppendWriter(leader_client, settings, self._identity())

    def _identity(self) -> tuple[int, int]:
        """Return the task's producer id, asked for once; none without acks=all."""
        if self._producer == NO_PRODUCER and self._settings.acks == "all":
            found = self._cluster.ask_broker("POST", "/v1/producer-ids").json()
            self._producer = (found["producer_id"], found["producer_epoch"])
        return self._producer

    def _count_of(self, topic: str) -> int:
        """Return the number of a topic's partitions, as it was when the task first asked."""
        if topic not in self._metadata:
            self._metadata[topic] = self._seen(topic)
        return len(self._metadata[topic].topics[topic].partitions)

    def _seen(self, topic: str) -> Metadata:
        give_up = time.monotonic() + min(_SEEN_S, self._settings.deadline_s)
        while True:
            metadata = self._cluster.metadata([topic])
            if topic in metadata.topics:
                return metadata
            if time.monotonic() >= give_up:
                message = (
                    f"There is no topic {topic}. Make it first: leadline topics create {topic}."
                )
                raise LeadlineSparkError("LEADLINE_TOPIC_UNKNOWN", message)
            time.sleep(0.2)
