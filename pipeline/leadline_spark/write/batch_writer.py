"""Batch writes, and what a task of any write does: rows in, records at their leaders."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from leadline_spark.cluster.cluster import Cluster, Metadata
from leadline_spark.codec.encode import NO_PRODUCER
from leadline_spark.errors import LeadlineSparkError
from leadline_spark.read.offsets import TopicPartition
from leadline_spark.write.partition_buffers import Lanes, PartitionWriter
from leadline_spark.write.partition_writers import AppendWriter, LeaderClient, StageWriter
from leadline_spark.write.publishing import Upload, Written, drop, drop_all, publish_all
from leadline_spark.write.records import Sorter, check_schema
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


def write_task(settings: SinkSettings, batches: Iterator[pa.RecordBatch]) -> Written:
    """Write the rows of one task. Raises LeadlineSparkError, and never ends short silently."""
    context = TaskContext.get()
    return Task(settings, context.partitionId() if context else 0).run(batches)


class Task:
    """One task of a write; `number` is the same in every attempt at it."""

    def __init__(self, settings: SinkSettings, number: int) -> None:
        self._settings = settings
        self._number = number
        self._cluster = Cluster(settings.connection)
        self._metadata: dict[str, Metadata] = {}
        self._producer = NO_PRODUCER
        self._staging: list[StageWriter] = []
        self._spool = SpillFile()
        # One time for all records of the task that have none of their own.
        self._now_ms = time.time_ns() // 1_000_000

    def run(self, batches: Iterator[pa.RecordBatch]) -> Written:
        """Write all rows, and say what was done."""
        settings = self._settings
        sorter = Sorter(
            self._count_of,
            topic=settings.topic,
            keep_timestamps=settings.keep_timestamps,
            batch_bytes=settings.batch_bytes,
            first=self._number,
        )
        rows = 0
        try:
            with Lanes(
                self._outlet,
                batch_bytes=settings.batch_bytes,
                buffer_bytes=settings.buffer_bytes,
            ) as lanes:
                for batch in batches:
                    rows += batch.num_rows
                    for place, records in sorter.sort(batch):
                        lanes.add(place, records)
                lanes.finish()
            self._follow()
        except BaseException:
            drop(settings, self._uploads())
            raise
        finally:
            self._spool.close()
        return Written(self._number, rows, self._uploads())

    def _follow(self) -> None:
        """Bring what is staged to those who lead now: the commit may be long after the task."""
        topics = {outlet.place.topic for outlet in self._staging}
        if topics:
            metadata = self._cluster.metadata(topics)
            for outlet in self._staging:
                outlet.follow(metadata.leader(outlet.place).url)

    def _uploads(self) -> tuple[Upload, ...]:
        return tuple(
            Upload(outlet.place, outlet.leader, tuple(outlet.staged)) for outlet in self._staging
        )

    def _outlet(self, place: TopicPartition) -> PartitionWriter:
        settings = self._settings
        leader = self._metadata[place.topic].leader(place).url
        door = LeaderClient(settings.connection, place, leader, settings.deadline_s)
        if settings.app is not None:
            outlet = StageWriter(door, settings, self._spool, self._now_ms)
            self._staging.append(outlet)
            return outlet
        return AppendWriter(door, settings, self._identity())

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
                told = f"There is no topic {topic}. Make it first: leadline topics create {topic}."
                raise LeadlineSparkError("LEADLINE_TOPIC_UNKNOWN", told)
            time.sleep(0.2)
