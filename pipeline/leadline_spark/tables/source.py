"""The readers of tables (option `table`), which Spark drives.

Tasks read the audit in ranges of ids, and a stream can follow it; its offset is the id of the next
entry. The other tables show the present state: a batch read is one request and one snapshot.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from leadline_spark.cluster.cluster_client import cluster_changed
from leadline_spark.errors import LeadlineSparkError
from leadline_spark.option_table import CONNECTION, IGNORED, OPTIONS
from leadline_spark.options import Options
from leadline_spark.read.offsets import EARLIEST, LATEST
from leadline_spark.tables.columns import AUDIT, batch_of, table_schema
from leadline_spark.tables.id_ranges import (
    IdRange,
    checkpointed_cluster,
    checkpointed_id,
    deleted_part,
    offset_of,
    read_bound,
    resolved,
    split_ids,
)
from leadline_spark.tables.table_client import TableClient

if TYPE_CHECKING:
    import pyarrow as pa

_TABLE_OPTIONS = {option.name for option in (*CONNECTION, *IGNORED)}
_TABLE_OPTIONS |= {"table", "columns", "fetchDeadlineMs"}
_AUDIT_OPTIONS = {
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
_REFRESH_S = 1.0
"""The least time between two requests for the ids that exist."""
_PAUSE_S = 0.2


@dataclass(frozen=True, slots=True)
class TableRead:
    """A read of one table, as the options describe it; pickled with every reader."""

    table: str
    schema: StructType
    client: TableClient
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
        """Return the existing entries of a batch read of the audit.

        Raises LeadlineSparkError: LEADLINE_DATA_LOSS, _OFFSETS_INVALID, _OPTION_INVALID.
        """
        if self.start == LATEST or self.end == EARLIEST:
            raise LeadlineSparkError(
                "LEADLINE_OPTION_INVALID",
                "A batch read of the audit that begins at latest or ends at earliest is empty.",
            )
        existing, _ = self.client.audit_head()
        asked = resolved(self.start, self.end, existing)
        if not asked.start <= asked.end <= existing.end:
            message = f"{asked} cannot be read: there are {existing}."
            raise LeadlineSparkError("LEADLINE_OFFSETS_INVALID", message)
        gone = deleted_part(asked, existing)
        if gone is None:
            return asked
        self.client.report_loss(gone)
        return IdRange(gone.end, asked.end)

    def tasks(self, whole: IdRange, cluster_id: str | None = None) -> list[InputPartition]:
        """Return the tasks of a range of a cluster's audit; none for an empty one."""
        pieces = split_ids(whole, self.max_records, self.min_partitions)
        return [AuditTask(ids, cluster_id) for ids in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task.

        For an empty list of tasks Spark makes up a partition of its own, which has no rows.
        """
        if isinstance(partition, AuditTask):
            client = replace(self.client, cluster_id=partition.cluster_id)
            for rows in client.entries(partition.ids):
                yield batch_of(rows, self.schema)
        elif isinstance(partition, TableTask):
            yield batch_of(self.client.rows(self.table), self.schema)


class AuditTask(InputPartition):
    """A range of the audit."""

    def __init__(self, ids: IdRange, cluster_id: str | None) -> None:
        super().__init__(str(ids))
        self.ids = ids
        self.cluster_id = cluster_id


class TableTask(InputPartition):
    """A whole table of the present state."""


class TableSource:
    """The readers of one table. Raises LeadlineSparkError for options that exclude each other."""

    def __init__(self, options: Options) -> None:
        self._table_read = TableRead.of(options)
        self._pins = options.text("snapshot") == "load"
        self._pinned: IdRange | None = None
        self.columns = self._table_read.schema

    def schema(self) -> StructType:
        """Return the columns, and pin the entries of the audit for every action of a batch read.

        Bounds that a batch read refuses may be valid for a stream, so they are no error here.
        """
        if self._pins and self._table_read.table == AUDIT and self._pinned is None:
            with suppress(LeadlineSparkError):
                self._pinned = self._table_read.ids()
        return self.columns

    def reader(self) -> DataSourceReader:
        """Return a batch reader."""
        return TableReader(self._table_read, self._pinned)

    def stream_reader(self) -> DataSourceStreamReader:
        """Return a stream reader of the audit. Raises LEADLINE_OPTION_CONFLICT for other tables."""
        if self._table_read.table != AUDIT:
            message = (
                f"The table {self._table_read.table} is of the present: only audit can be followed."
            )
            raise LeadlineSparkError("LEADLINE_OPTION_CONFLICT", message)
        return AuditStreamReader(self._table_read)


@dataclass(frozen=True)
class TableReader(DataSourceReader):
    """Reads a table in a batch."""

    table_read: TableRead
    pinned: IdRange | None

    def partitions(self) -> Sequence[InputPartition]:
        """Return the tasks."""
        if self.table_read.table != AUDIT:
            return [TableTask(self.table_read.table)]
        return self.table_read.tasks(self.pinned or self.table_read.ids())

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task, as Arrow."""
        return self.table_read.read(partition)


class AuditStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows the audit: an offset is the id of the next entry, as `{"audit": 5121}`.

    It has the id of the cluster, too: the same ids are other entries elsewhere.
    """

    def __init__(self, wanted: TableRead, clock: Callable[[], float] = time.monotonic) -> None:
        self._table_read = wanted
        self._client = wanted.client
        self._clock = clock
        self._first: int | None = None
        self._began = False
        self._until: int | None = None
        self._seen: IdRange | None = None
        self._seen_at = 0.0

    def initialOffset(self) -> dict[str, Any]:
        """Return where a stream without a checkpoint begins; the same whenever it is asked."""
        if self._first is None:
            self._first = resolved(self._table_read.start, LATEST, self._existing()).start
        return offset_of(self._first, self._client.cluster_id)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the next micro-batch.

        The first one of a stream that starts at `latest` is empty. Until its offsets are in the
        checkpoint, `latest` would be later after a crash, and the stream would skip entries.
        """
        begin = self._read_on(start)
        began, self._began = self._began, True
        if not began and self._table_read.start == LATEST and begin == self._first:
            return start
        end = self._existing().end if self._until is None else self._until
        if end < begin:
            self._client.report_loss(IdRange(end, begin))
        if end <= begin and self._until is None:
            time.sleep(_PAUSE_S)  # otherwise Spark asks again at once, a hundred times a second
        if isinstance(limit, ReadMaxRows):
            end = min(end, begin + limit.max_rows)
        return offset_of(max(begin, end), self._client.cluster_id)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit `maxOffsetsPerTrigger`."""
        most = self._table_read.max_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def reportLatestOffset(self) -> dict[str, Any]:
        """Return the end of the audit, for the progress of the query."""
        return offset_of(self._existing().end, self._client.cluster_id)

    def prepareForTriggerAvailableNow(self) -> None:
        """Let the run end at the present end of the audit."""
        self._until = self._head().end

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the tasks of a micro-batch.

        A first micro-batch may end before it begins if an earlier run planned it with another
        start. It is empty, and the next one begins at its end. Raises LEADLINE_OFFSETS_INVALID for
        any other.
        """
        whole = IdRange(self._read_on(start), self._read_on(end))
        if whole.start > whole.end and whole.start != self._first:
            message = f"A micro-batch of {whole} ends before it begins."
            raise LeadlineSparkError("LEADLINE_OFFSETS_INVALID", message)
        return self._table_read.tasks(whole, self._client.cluster_id)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the entries of one task, as Arrow."""
        return self._table_read.read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: reading does not delete audit entries."""

    def _existing(self) -> IdRange:
        """Return the existing ids, requested at most once a second."""
        now = self._clock()
        if self._seen is None or now - self._seen_at >= _REFRESH_S:
            self._seen, self._seen_at = self._head(known=self._seen is not None), now
        return self._seen

    def _head(self, *, known: bool = False) -> IdRange:
        found, cluster_id = self._client.audit_head(known=known)
        if self._client.cluster_id is None:
            self._client = replace(self._client, cluster_id=cluster_id)
        return found

    def _read_on(self, offset: dict[str, Any]) -> int:
        """Return the id in an offset. Raises LEADLINE_CLUSTER_CHANGED if it is another cluster's.

        If none has answered yet, it is the one that has to.
        """
        number, cluster_id = checkpointed_id(offset), checkpointed_cluster(offset)
        known = self._client.cluster_id
        if cluster_id is not None and known not in (None, cluster_id):
            raise cluster_changed(cluster_id, known)
        self._client = replace(self._client, cluster_id=cluster_id or known)
        return number


def _check(options: Options, table: str) -> None:
    """Refuse options that a table does not have. Raises LEADLINE_OPTION_CONFLICT."""
    allowed = _TABLE_OPTIONS | (_AUDIT_OPTIONS if table == AUDIT else set())
    extra = [option.name for option in OPTIONS if option.name in options]
    extra = [name for name in extra if name not in allowed]
    if extra:
        message = f"{', '.join(extra)} cannot be given for the table {table}."
        raise LeadlineSparkError("LEADLINE_OPTION_CONFLICT", message)
