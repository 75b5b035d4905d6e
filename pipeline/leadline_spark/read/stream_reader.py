"""Streaming reads: what Spark asks of a source, in terms of the planner."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from leadline_spark.cluster.cluster_client import ClusterClient
from leadline_spark.options import Options
from leadline_spark.read.groups import GroupOffsetReporter
from leadline_spark.read.offset_fetcher import OffsetFetcher
from leadline_spark.read.offsets import SourceOffset
from leadline_spark.read.stream_planning import StreamPlanner, StreamSettings
from leadline_spark.read.subscription import SourceSubscription
from leadline_spark.read.tasks import TaskPlanner

if TYPE_CHECKING:
    import pyarrow as pa

# Spark names these methods.
# ruff: noqa: N802 - the interface is Spark's


class LeadlineStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One instance plans, for as long as the query runs; copies of it read, on executors."""

    def __init__(self, options: Options) -> None:
        self._settings = StreamSettings.of(options)
        self._subscription = SourceSubscription.of(options)
        self._maker = TaskPlanner.of(options)
        self._group = options.text("commitGroup")
        self._planner: StreamPlanner | None = None
        self._reporter: GroupOffsetReporter | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Return where a query without a checkpoint begins."""
        return self._plan().initial().document()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return a limit where there is any, so that Spark shows when it wants to be rid of it.

        BalanceLimits of several kinds cannot be told to Spark; the planner applies them itself.
        """
        if self._settings.max_offsets is not None:
            return ReadMaxRows(self._settings.max_offsets)
        if self._settings.max_bytes is not None:
            return ReadMaxBytes(self._settings.max_bytes)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return where the next micro-batch ends, `start` where there is none."""
        limited = not (self._settings.limited and isinstance(limit, ReadAllAvailable))
        begin = SourceOffset.of(start)
        self._report(begin)
        end = self._plan().latest(begin, limited=limited)
        return start if end == begin else end.document()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the ends as last heard of, for the query's progress."""
        latest = self._plan().report()
        return None if latest is None else latest.document()

    def prepareForTriggerAvailableNow(self) -> None:
        """Let the run end at what is there now."""
        self._plan().prepare()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the tasks of a micro-batch: the same for the same offsets."""
        planner = self._plan()
        ranges = planner.ranges(SourceOffset.of(start), SourceOffset.of(end))
        return self._maker.tasks(ranges, planner.leaders())

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one task, as Arrow."""
        return self._maker.read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: Spark calls this a batch late, and for the last one after a restart only."""

    def stop(self) -> None:
        """Do nothing: connections end with the process."""

    def _report(self, done: SourceOffset) -> None:
        """Report progress where a group was named: what is before the next micro-batch is done."""
        if self._group is None:
            return
        if self._reporter is None:
            self._reporter = GroupOffsetReporter(ClusterClient(self._maker.connection), self._group)
        self._reporter.report(done)

    def _plan(self) -> StreamPlanner:
        # Made late: the reader is pickled for executors before it has planned anything.
        if self._planner is None:
            deadline_s = self._maker.settings.deadline_s
            fetcher = OffsetFetcher(
                ClusterClient(self._maker.connection), self._subscription, deadline_s
            )
            self._planner = StreamPlanner(fetcher, self._settings)
        return self._planner
