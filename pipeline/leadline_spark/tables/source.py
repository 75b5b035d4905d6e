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
from leadline_spark.tables.ids import Ids, cut, missing_of, read_bound, resolved
from leadline_spark.tables.reading import Exports

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
class Wanted:
    """What is read of which table, and how; pickled with every reader."""

    table: str
    schema: StructType
    exports: Exports
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
            Exports.of(options),
            read_bound(options, "startingOffsets", EARLIEST),
            read_bound(options, "endingOffsets", LATEST),
            options.number("minPartitions"),
            options.number("maxRecordsPerPartition"),
            options.number("maxOffsetsPerTrigger"),
        )

    def ids(self) -> Ids:
        """Return the entries of a batch read of the audit, as far as they are there now.

        Raises LeadlineSparkError: LEADLINE_DATA_LOSS, _OFFSETS_INVALID, _OPTION_INVALID.
        """
        if self.start == LATEST or self.end == EARLIEST:
            told = "A batch read of the audit that begins at latest or ends at earliest is empty."
            raise LeadlineSparkError("LEADLINE_OPTION_INVALID", told)
        there = self.exports.there()
        asked = resolved(self.start, self.end, there)
        if not asked.start <= asked.end <= there.end:
            told = f"{asked} cannot be read: there are {there}."
            raise LeadlineSparkError("LEADLINE_OFFSETS_INVALID", told)
        gone = missing_of(asked, there)
        if gone is None:
            return asked
        self.exports.check_lost(gone)
        return Ids(gone.end, asked.end)

    def tasks(self, whole: Ids) -> list[InputPartition]:
        """Return the tasks of a range of the audit: none where it holds nothing."""
        return [EntriesTask(ids) for ids in cut(whole, self.max_records, self.min_partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task. What Spark makes of no tasks at all holds no rows."""
        if isinstance(partition, EntriesTask):
            for rows in self.exports.entries(partition.ids):
                yield batch_of(rows, self.schema)
        elif isinstance(partition, StateTask):
            yield batch_of(self.exports.rows(self.table), self.schema)


class EntriesTask(InputPartition):
    """A range of the audit."""

    def __init__(self, ids: Ids) -> None:
        super().__init__(str(ids))
        self.ids = ids


class StateTask(InputPartition):
    """A whole table of the present."""


class TableSource:
    """One table, as the data source asks for it. Raises LeadlineSparkError where options clash."""

    def __init__(self, options: Options) -> None:
        self._wanted = Wanted.of(options)
        self._pins = options.text("snapshot") == "load"
        self._pinned: Ids | None = None

    @property
    def columns(self) -> StructType:
        """The columns of the read."""
        return self._wanted.schema

    def schema(self) -> StructType:
        """Return the columns; what of the audit there is now is what every action will see.

        What a batch read would be refused may do for a stream: so that is no error here.
        """
        if self._pins and self._wanted.table == AUDIT and self._pinned is None:
            with suppress(LeadlineSparkError):
                self._pinned = self._wanted.ids()
        return self.columns

    def reader(self) -> DataSourceReader:
        """Return what carries out a batch read."""
        return TableReader(self._wanted, self._pinned)

    def stream_reader(self) -> DataSourceStreamReader:
        """Return what follows the audit. Raises LEADLINE_OPTION_CONFLICT for another table."""
        if self._wanted.table != AUDIT:
            told = f"The table {self._wanted.table} is of the present: only audit can be followed."
            raise LeadlineSparkError("LEADLINE_OPTION_CONFLICT", told)
        return AuditStreamReader(self._wanted)


class TableReader(DataSourceReader):
    """Reads a table once."""

    def __init__(self, wanted: Wanted, pinned: Ids | None) -> None:
        self._wanted = wanted
        self._pinned = pinned

    def partitions(self) -> Sequence[InputPartition]:
        """Return the tasks."""
        if self._wanted.table != AUDIT:
            return [StateTask(self._wanted.table)]
        return self._wanted.tasks(self._pinned or self._wanted.ids())

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task, as Arrow."""
        return self._wanted.read(partition)


class AuditStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows the audit: an offset is the id of the next entry, as `{"audit": 5121}`."""

    def __init__(self, wanted: Wanted, clock: Callable[[], float] = time.monotonic) -> None:
        self._wanted = wanted
        self._clock = clock
        self._first: int | None = None
        self._began = False
        self._until: int | None = None
        self._seen: Ids | None = None
        self._looked = 0.0

    def initialOffset(self) -> dict[str, int]:
        """Return where a stream without a checkpoint begins; the same whenever it is asked."""
        if self._first is None:
            self._first = resolved(self._wanted.start, LATEST, self._look()).start
        return {AUDIT: self._first}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """Return where the next micro-batch ends.

        The first of a stream that begins at `latest` holds nothing: until its offsets are in the
        checkpoint, a crash would have `latest` be later, and what came in between be lost.
        """
        begin = start[AUDIT]
        began, self._began = self._began, True
        if not began and self._wanted.start == LATEST and begin == self._first:
            return start
        end = self._look().end if self._until is None else self._until
        if end < begin:
            self._wanted.exports.check_lost(Ids(end, begin))
        if end <= begin and self._until is None:
            time.sleep(_PAUSE_S)  # or Spark would ask again at once, a hundred times a second
        if isinstance(limit, ReadMaxRows):
            end = min(end, begin + limit.max_rows)
        return {AUDIT: max(begin, end)}

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return what `maxOffsetsPerTrigger` says."""
        most = self._wanted.max_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def reportLatestOffset(self) -> dict[str, int]:
        """Return how far the audit is, for the progress of the query."""
        return {AUDIT: self._look().end}

    def prepareForTriggerAvailableNow(self) -> None:
        """Take what there is now as all that there will be."""
        self._until = self._wanted.exports.there().end

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        """Return the tasks of a micro-batch.

        One that ends before it begins was planned by an earlier run, which found another start: it
        is empty, and the next one begins at its end. Raises LEADLINE_OFFSETS_INVALID elsewhere.
        """
        whole = Ids(start[AUDIT], end[AUDIT])
        if whole.start > whole.end and whole.start != self._first:
            told = f"A micro-batch of {whole} ends before it begins."
            raise LeadlineSparkError("LEADLINE_OFFSETS_INVALID", told)
        return self._wanted.tasks(whole)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the entries of one task, as Arrow."""
        return self._wanted.read(partition)

    def commit(self, end: dict[str, int]) -> None:
        """Do nothing: the cluster keeps its history whoever has read it."""

    def _look(self) -> Ids:
        """Return what there is, asked for once a second at most."""
        now = self._clock()
        if self._seen is None or now - self._looked >= _LOOK_AGAIN_S:
            known = self._seen is not None
            self._seen, self._looked = self._wanted.exports.there(known=known), now
        return self._seen


def _check(options: Options, table: str) -> None:
    """Refuse options that mean nothing for a table. Raises LEADLINE_OPTION_CONFLICT."""
    allowed = _EVERY | (_OF_THE_AUDIT if table == AUDIT else set())
    extra = [option.name for option in OPTIONS if option.name in options]
    extra = [name for name in extra if name not in allowed]
    if extra:
        told = f"{', '.join(extra)} cannot be given for the table {table}."
        raise LeadlineSparkError("LEADLINE_OPTION_CONFLICT", told)
