"""The task of a read, and the settings that all tasks of a read share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from pyspark.sql.datasource import InputPartition

from leadline_client.wire import TopicPartition
from leadline_spark.cluster.cluster_client import Connection
from leadline_spark.options import Options
from leadline_spark.read.columns import wanted_columns
from leadline_spark.read.fetching import ReadSettings, read_range
from leadline_spark.read.planning import Range, split

if TYPE_CHECKING:
    import pyarrow as pa


class ReadTask(InputPartition):
    """One range for one task, and where its leader was when the read was planned."""

    def __init__(self, asked: Range, leader: str | None) -> None:
        super().__init__(str(asked))
        self.asked = asked
        self.leader = leader


@dataclass(frozen=True, slots=True)
class TaskPlanner:
    """Cuts ranges into tasks and carries them out; pickled with the reader."""

    connection: Connection
    settings: ReadSettings
    min_partitions: int | None = None
    max_records: int | None = None

    @classmethod
    def of(cls, options: Options) -> Self:
        """Read the options. Raises LeadlineSparkError."""
        settings = ReadSettings(
            wanted_columns(options),
            options.number("fetchMaxBytes") or 4 << 20,
            (options.number("fetchDeadlineMs") or 60_000) / 1_000,
            options.flag("failOnDataLoss"),
            options.text("decoder") or "auto",
        )
        return cls(
            Connection.of(options),
            settings,
            options.number("minPartitions"),
            options.number("maxRecordsPerPartition"),
        )

    def tasks(
        self, ranges: Sequence[Range], leaders: Mapping[TopicPartition, str | None]
    ) -> list[InputPartition]:
        """Return the tasks; none at all for ranges that hold nothing."""
        pieces = split(ranges, self.min_partitions, self.max_records)
        return [ReadTask(piece, leaders.get(piece.topic_partition)) for piece in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of a task.

        Spark makes a partition of nothing out of an empty list of tasks: it holds no records.
        """
        if isinstance(partition, ReadTask):
            yield from read_range(self.connection, partition.asked, partition.leader, self.settings)
