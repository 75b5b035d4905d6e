"""What the data source does where the option `table` is given: the readers that Spark drives.

The audit is read in ranges of ids, side by side, and can be followed by a stream whose offset is
the id of the next entry. The other tables are the present: one request, one snapshot, a batch read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from leadline_spark.errors import LeadlineSparkError
from leadline_spark.option_table import CONNECTION, OPTIONS, PASSED_OVER
from leadline_spark.options import Options
from leadline_spark.read.offsets import EARLIEST, LATEST
from leadline_spark.tables.columns import AUDIT, batch_of, table_schema
from leadline_spark.tables.id_ranges import IdRange, cut, missing_of, read_bound, resolved
from leadline_spark.tables.table_client import TableClient

if TYPE_CHECKING:
    import pyarrow as pa

_EVERY = {"table", "columns", "fetchDeadlineMs", *(o.name for o in (*CONNECTION, *PASSED_OVER))}
_OF_THE_AUDIT = {
    "startingOffsets",
    "endingOffsets",
    "failOnDataLoss",
    "snapshot",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxOffsetsPerTrigger",
}

# Spark names the methods of readers.
# ruff: noqa: N802 - the interface is Spark's
_LOOK_AGAIN_S = 1.0
"""How often a stream asks how far the audit is, at most."""
_PAUSE_S = 0.2


@dataclass(frozen=True, slots=True)
class TableRead:
    """What is read of which table, and how; pickled with every reader."""

    table: str
    schema: StructType
    exports: TableClient
    start: int
    end: int
    min_partitions: int | None = None
    max_records: int | None = None
    max_per_trigger: int | None = None

    @classmethod
    def of(cls, options: Options) -> Self:
        """Read the options of a source that has `table`. Raises LeadlineSparkError."""
        table = options.required("table").strip().lower()
        _check(options, table)
        return cls(
            table,
            table_schema(table, options.names("columns")),
            TableClient.of(options),
            read_bound(options, "startingOffsets", EARLIEST),
            read_bound(options, "endingOffsets", LATEST),
            options.number("minPartitions"),
            options.number("maxRecordsPerPartition"),
            options.number("maxOffsetsPerTrigger"),
        )

    def ids(self) -> IdRange:
        """Return the entries of a batch read of the audit, as far as they are there now.

        Raises LeadlineSparkError: LEADLINE_DATA_LOSS, _OFFSETS_INVALID, _OPTION_INVALID.
        """
        if self.start == LATEST or self.end == EARLIEST:
            message = (
                "A batch read of the audit that begins at latest or ends at earliest is empty."
            )
            raise LeadlineSparkError("LEADLINE_OPTION_INVALID", message)
        there = self.exports.there()
        asked = resolved(self.start, self.end, there)
        if not asked.start <= asked.end <= there.end:
            message = f"{asked} cannot be read: there are {there}."
            raise LeadlineSparkError("LEADLINE_OFFSETS_INVALID", message)
        gone = missing_of(asked, there)
        if gone is None:
            return asked
        self.exports.check_lost(gone)
        return IdRange(gone.end, asked.end)

    def tasks(self, whole: IdRange) -> list[InputPartition]:
        """Return the tasks of a range of the audit: none where it holds nothing."""
        return [AuditTask(ids) for ids in cut(whole, self.max_records, self.min_partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task. What Spark makes of no tasks at all holds no rows."""
        if isinstance(partition, AuditTask):
            for rows in self.exports.entries(partition.ids):
                yield batch_of(rows, self.schema)
        elif isinstance(partition, TableTask):
            yield batch_of(self.exports.rows(self.table), self.schema)


class AuditTask(InputPartition):
    """A range of the audit."""

    def __init__(self, ids: IdRange) -> None:
        super().__init__(str(ids))
        self.ids = ids


class TableTask(InputPartition):
    """A whole table of the present."""


class TableSource:
    """One table, as the data source asks for it. Raises LeadlineSparkError where options clash."""

    def __init__(self, options: Options) -> None:
        self._table_read = TableRead.of(options)
        self._pins = options.text("snapshot") == "load"
        self._pinned: IdRange | None = None

    @property
    def columns(self) -> StructType:
        """The columns of the read."""
        return self._table_read.schema

    def schema(self) -> StructType:
        """Return the columns; what of the audit there is now is what every action will see.

        What a batch read would be refused may do for a stream: so that is no error here.
        """
        if self._pins and self._table_read.table == AUDIT and self._pinned is None:
            with suppress(LeadlineSparkError):
                self._pinned = self._table_read.ids()
        return self.columns

    def reader(self) -> DataSourceReader:
        """Return what carries out a batch read."""
        return TableReader(self._table_read, self._pinned)

    def stream_reader(self) -> DataSourceStreamReader:
        """Return what follows the audit. Raises LEADLINE_OPTION_CONFLICT for another table."""
        if self._table_read.table != AUDIT:
            message = (
                f"The table {self._table_read.table} is of the present: only audit can be followed."
            )
            raise LeadlineSparkError("LEADLINE_OPTION_CONFLICT", message)
        return AuditStreamReader(self._table_read)


class TableReader(DataSourceReader):
    """Reads a table once."""

    def __init__(self, wanted: TableRead, pinned: IdRange | None) -> None:
        self._table_read = wanted
        self._pinned = pinned

    def partitions(self) -> Sequence[InputPartition]:
        """Return the tasks."""
        if self._table_read.table != AUDIT:
            return [TableTask(self._table_read.table)]
        return self._table_read.tasks(self._pinned or self._table_read.ids())

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task, as Arrow."""
        return self._table_read.read(partition)


class AuditStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows the audit: an offset is the id of the next entry, as `{"audit": 5121}`."""

    def __init__(self, wanted: TableRead, clock: Callable[[], float] = time.monotonic) -> None:
        self._table_read = wanted
        self._clock = clock
        self._first: int | None = None
        self._began = False
        self._until: int | None = None
        self._seen: IdRange | None = None
        self._looked = 0.0

    def initialOffset(self) -> dict[str, int]:
        """Return where a stream without a checkpoint begins; the same whenever it is asked."""
        if self._first is None:
            self._first = resolved(self._table_read.start, LATEST, self._look()).start
        return {AUDIT: self._first}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """Return where the next micro-batch ends.

        The first of a stream that begins at `latest` holds nothing: until its offsets are in the
        checkpoint, a crash would have `latest` be later, and what came in between be lost.
        """
        begin = start[AUDIT]
        began, self._began = self._began, True
        if not began and self._table_read.start == LATEST and begin == self._first:
            return start
        end = self._look().end if self._until is None else self._until
        if end < begin:
            self._table_read.exports.check_lost(IdRange(end, begin))
        if end <= begin and self._until is None:
            time.sleep(_PAUSE_S)  # or Spark would ask again at once, a hundred times a second
        if isinstance(limit, ReadMaxRows):
            end = min(end, begin + limit.max_rows)
        return {AUDIT: max(begin, end)}

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return what `maxOffsetsPerTrigger` says."""
        most = self._table_read.max_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def reportLatestOffset(self) -> dict[str, int]:
        """Return how far the audit is, for the progress of the query."""
        return {AUDIT: self._look().end}

    def prepareForTriggerAvailableNow(self) -> None:
        """Take what there is now as all that there will be."""
        self._until = self._table_read.exports.there().end

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """Return the tasks of a micro-batch.

        One that ends before it begins was planned by an earlier run, which found another start: it
        is empty, and the next one begins at its end. Raises LEADLINE_OFFSETS_INVALID elsewhere.
        """
        whole = IdRange(start[AUDIT], end[AUDIT])
        if whole.start > whole.end and whole.start != self._first:
            message = f"A micro-batch of {whole} ends before it begins."
            raise LeadlineSparkError("LEADLINE_OFFSETS_INVALID", message)
        return self._table_read.tasks(whole)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the entries of one task, as Arrow."""
        return self._table_read.read(partition)

    def commit(self, end: dict[str, int]) -> None:
        """Do nothing: the cluster keeps its history whoever has read it."""

    def _look(self) -> IdRange:
        """Return what there is, asked for once a second at most."""
        now = self._clock()
        if self._seen is None or now - self._looked >= _LOOK_AGAIN_S:
            known = self._seen is not None
            self._seen, self._looked = self._table_read.exports.there(known=known), now
        return self._seen


def _check(options: Options, table: str) -> None:
    """Refuse options that mean nothing for a table. Raises LEADLINE_OPTION_CONFLICT."""
    allowed = _EVERY | (_OF_THE_AUDIT if table == AUDIT else set())
    extra = [option.name for option in OPTIONS if option.name in options]
    extra = [name for name in extra if name not in allowed]
    if extra:
        message = f"{', '.join(extra)} cannot be given for the table {table}."
        raise LeadlineSparkError("LEADLINE_OPTION_CONFLICT", message)
