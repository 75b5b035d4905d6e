"""The tasks of a read, and the settings that they share."""

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
    """One range to read, and the URL of its leader when the read was planned."""

    def __init__(self, asked: Range, leader: str | None) -> None:
        super().__init__(str(asked))
        self.asked = asked
        self.leader = leader


@dataclass(frozen=True, slots=True)
class TaskPlanner:
    """Splits ranges into tasks, and runs them on executors; pickled with the reader."""

    connection: Connection
    settings: ReadSettings
    min_partitions: int | None = None
    max_records: int | None = None

    @classmethod
    def of(cls, options: Options) -> Self:
        """Read the options. Raises LeadlineSparkError."""
        settings = ReadSettings(
            wanted_columns(options),
            options.number("fetchMaxBytes") or 16 << 20,
            (options.number("fetchDeadlineMs") or 60_000) / 1_000,
            options.flag("failOnDataLoss"),
            options.text("decoder") or "auto",
            options.text("replica") == "any",
            options.text("rack"),
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
        """Return the tasks; an empty list if all ranges are empty."""
        pieces = split(ranges, self.min_partitions, self.max_records)
        return [ReadTask(piece, leaders.get(piece.topic_partition)) for piece in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of a task.

        For an empty list of tasks Spark makes up a partition of its own, which has no records.
        """
        if isinstance(partition, ReadTask):
            yield from read_range(self.connection, partition.asked, partition.leader, self.settings)
