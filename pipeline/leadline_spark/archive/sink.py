"""The archive sink: tasks write records to files, and the driver a manifest for each batch.

It is a data source of its own, which the job registers. The files of Spark's Parquet sink are
reliable only for readers that know its log of files. Here, a manifest lists every file with a final
name, or the next attempt at the batch, which has the same ranges, deletes it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, groupby
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from leadline_client.wire import Metadata, TopicPartition
from leadline_spark.archive import catalog
from leadline_spark.archive.manifest import ManifestEntry
from leadline_spark.archive.parquet import SCHEMA, FileWriter
from leadline_spark.archive.storage import ArchiveStore, open_store
from leadline_spark.cluster.cluster_client import ClusterClient, Connection
from leadline_spark.cluster.waiting import until_answered
from leadline_spark.errors import LeadlineSparkError
from leadline_spark.option_table import OPTIONS
from leadline_spark.options import Options

FORMAT = "leadline-archive"
_DEADLINE_S = 60.0
COLUMNS = ("topic", "partition", *SCHEMA.names)


@dataclass
class ArchivedFiles(WriterCommitMessage):
    """The files that a task wrote. The commit adds the topic ids."""

    entries: tuple[ManifestEntry, ...]


class ArchiveSink(DataSource):
    """`format("leadline-archive")`: options `path`, `run`, `ids`, and those of connections.

    `ids` is a JSON object with the ids of the topics when the query began.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name for `format(...)`."""
        return FORMAT

    # Spark passes the arguments by position and by name.
    def streamWriter(self, schema: StructType, overwrite: bool) -> ArchiveWriter:  # noqa: ARG002, N802 - Spark's name
        """Return a writer. Raises LEADLINE_OPTION_CONFLICT if a column is missing."""
        missing = [name for name in COLUMNS if name not in schema.fieldNames()]
        if missing:
            message = f"an archive needs the columns {', '.join(missing)} too"
            raise LeadlineSparkError("LEADLINE_OPTION_CONFLICT", message)
        return ArchiveWriter(dict(self.options))


class ArchiveWriter(DataSourceStreamArrowWriter):
    """Made on the driver, pickled into tasks, and made again for each commit: it has no state."""

    def __init__(self, options: dict[str, str]) -> None:
        self._location = options["path"]
        self._run = int(options["run"])
        # What was read may be of a topic that is deleted by now, and recreated under its name.
        self._ids: dict[str, str] = json.loads(options.get("ids", "{}"))
        own = {"path", "run", "ids", "checkpointlocation"}
        cluster = {name: text for name, text in options.items() if name not in own}
        self._connection = Connection.of(Options(OPTIONS, cluster))

    def write(self, iterator: Iterator[pa.RecordBatch]) -> ArchivedFiles:
        """Write a task's records, one file for each run of records of one partition."""
        return ArchivedFiles(tuple(write_files(open_store(self._location), iterator)))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Add the files of all tasks to the archive."""
        written = (message for message in messages if isinstance(message, ArchivedFiles))
        entries = [entry for message in written for entry in message.entries]
        topics = {entry.name.topic for entry in entries}
        known = self._read_metadata(topics).topics if topics else {}
        ids = {name: topic.topic_id for name, topic in known.items()} | self._ids
        for name, topic in known.items():
            if topic.topic_id != ids[name]:
                raise _recreated(name, ids[name], topic.topic_id)
        catalog.add_batch(open_store(self._location), self._run, batchId, entries, ids)

    def _read_metadata(self, topics: set[str]) -> Metadata:
        """Return metadata. The records were just read, so brokers that are down are waited for."""
        cluster = ClusterClient(self._connection)
        return until_answered(lambda: cluster.metadata(topics), _DEADLINE_S)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Leave the files: the repeated batch overwrites or deletes them."""


def _recreated(name: str, before: str, now: str) -> LeadlineSparkError:
    message = (
        f"{name} was deleted and recreated while it was archived: its id was {before}, is {now}. "
        "Archive it into another directory"
    )
    return LeadlineSparkError("LEADLINE_ARCHIVE_CONFLICT", message)


def write_files(store: ArchiveStore, batches: Iterator[pa.RecordBatch]) -> Iterator[ManifestEntry]:
    """Write records in the order of arrival, and yield the files; leave no incomplete file."""
    runs = chain.from_iterable(map(partition_runs, batches))
    for (topic, partition), parts in groupby(runs, key=itemgetter(0)):
        writer = FileWriter(store, topic, partition, topic_id="")
        try:
            for _, part in parts:
                writer.add(part)
            yield writer.finish()
        finally:
            writer.discard()


def partition_runs(batch: pa.RecordBatch) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
    """Yield the runs of records of one partition, in order, in the columns of an archive."""
    begin = 0
    while begin < batch.num_rows:
        rest = batch.slice(begin)
        topic, partition = rest.column("topic")[0], rest.column("partition")[0]
        same_topic = pc.equal(rest.column("topic"), topic)
        same = pc.and_(same_topic, pc.equal(rest.column("partition"), partition))
        other = pc.index(same, False).as_py()
        length = rest.num_rows if other < 0 else other
        columns: list[Any] = [
            rest.column(field.name).slice(0, length).cast(field.type) for field in SCHEMA
        ]
        yield (
            TopicPartition(topic.as_py(), partition.as_py()),
            pa.RecordBatch.from_arrays(columns, schema=SCHEMA),
        )
        begin += length
