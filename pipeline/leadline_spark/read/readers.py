"""The readers that Spark drives: `LeadlineBatchReader` and `LeadlineStreamReader`.

A batch read resolves its ranges once and keeps them for every action on the DataFrame.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSourceReader,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from leadline_client.wire import TopicPartition
from leadline_spark.cluster.cluster_client import ClusterClient, LeaderOffsets
from leadline_spark.errors import LeadlineSparkError
from leadline_spark.options import Options
from leadline_spark.read.bounds import Bound, end_of, resolve, start_of
from leadline_spark.read.data_loss import report_loss
from leadline_spark.read.filters import PushedFilters
from leadline_spark.read.offset_fetcher import OffsetFetcher, OffsetSnapshot
from leadline_spark.read.offsets import OffsetAndEpoch, SourceOffset
from leadline_spark.read.planning import Range
from leadline_spark.read.progress import GroupOffsetReporter
from leadline_spark.read.stream_planning import StreamPlanner, StreamSettings
from leadline_spark.read.subscription import SourceSubscription
from leadline_spark.read.tasks import TaskPlanner

if TYPE_CHECKING:
    import pyarrow as pa

# Spark names the methods of readers.
# ruff: noqa: N802 - the interface is Spark's


@dataclass(frozen=True, slots=True)
class PinnedRanges:
    """The ranges of a batch read, and the leaders when they were resolved."""

    ranges: tuple[Range, ...]
    leaders: dict[TopicPartition, str | None]


def pin(options: Options) -> PinnedRanges:
    """Resolve what a batch read covers: two requests, and one for each bound that is a timestamp.

    Raises LeadlineSparkError.
    """
    planner = TaskPlanner.of(options)
    start, end = start_of(options, streaming=False), end_of(options)
    fetcher = OffsetFetcher(
        ClusterClient(planner.connection),
        SourceSubscription.of(options),
        planner.settings.deadline_s,
    )
    snapshot = fetcher.snapshot()
    starts, ends = _resolved(start, snapshot, fetcher), _resolved(end, snapshot, fetcher)
    fail = planner.settings.fail_on_data_loss
    ranges = tuple(_range(tp, starts[tp], ends[tp], snapshot, fail) for tp in snapshot.offsets)
    return PinnedRanges(ranges, snapshot.leaders())


def _resolved(
    bound: Bound, snapshot: OffsetSnapshot, fetcher: OffsetFetcher
) -> dict[TopicPartition, OffsetAndEpoch]:
    """Return the offsets of a bound within the snapshot.

    Timestamps are looked up after the snapshot, so the offset found may be beyond its end. No
    record before that end is then as late as the timestamp.
    """
    found = resolve(bound, snapshot, fetcher)
    if not bound.by_time:
        return found
    ends = {tp: at.end for tp, at in snapshot.offsets.items()}
    return {tp: replace(at, offset=min(at.offset, ends[tp])) for tp, at in found.items()}


def _range(
    topic_partition: TopicPartition,
    start: OffsetAndEpoch,
    end: OffsetAndEpoch,
    snapshot: OffsetSnapshot,
    fail: bool,
) -> Range:
    """Check a range against the log; unless `fail`, cut it to the records that exist."""
    at = snapshot.offsets[topic_partition]
    first, last = start.offset, end.offset
    if first > last and fail:
        asked = f"{topic_partition} would be read from {first} to {last}"
        raise LeadlineSparkError("LEADLINE_OFFSETS_INVALID", f"{asked}, which is before that.")
    if first < min(at.start, last):
        asked = f"{topic_partition} begins at {at.start}, and is to be read from {first} on"
        report_loss(asked, fail=fail, choice=_CHOICE)
        first = min(at.start, last)
    if last > at.end:
        asked = f"{topic_partition} ends at {at.end}, but is to be read up to {last}"
        report_loss(asked, fail=fail, choice=_CHOICE)
        last = at.end
    topic_id = snapshot.ids[topic_partition]
    return Range(topic_partition, topic_id, first, max(first, last), at.leader.epoch)


_CHOICE = "To read what there is"


class LeadlineBatchReader(DataSourceReader):
    """Reads the ranges pinned at load, or else those that exist at each action."""

    def __init__(self, options: Options, pinned: PinnedRanges | None) -> None:
        self._options = options
        self._pinned = pinned
        self._planner = TaskPlanner.of(options)

    def partitions(self) -> Sequence[InputPartition]:
        """Return the tasks."""
        pinned = self._pinned or pin(self._options)
        return self._planner.tasks(self.filtered(pinned.ranges), pinned.leaders)

    def filtered(self, ranges: Sequence[Range]) -> Sequence[Range]:
        """Return what pushed filters leave of the ranges: here, everything."""
        return ranges

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one task, as Arrow."""
        return self._planner.read(partition)


class PushingBatchReader(LeadlineBatchReader):
    """A batch reader with filter pushdown.

    It is a class of its own because Spark fails every read whose reader has `pushFilters`, unless
    the session allows pushdown (`spark.sql.python.filterPushdown.enabled`).
    """

    def __init__(self, options: Options, pinned: PinnedRanges | None) -> None:
        super().__init__(options, pinned)
        self._filters = PushedFilters()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take filters on topic, partition and offset; return the others."""
        return self._filters.take(filters)

    def filtered(self, ranges: Sequence[Range]) -> Sequence[Range]:
        """Return what the filters leave of the ranges; a timestamp costs two more requests."""
        left = self._filters.of(ranges)
        since = self._filters.since_ms
        if since is None or not left:
            return left
        subscription = SourceSubscription(assigned=tuple(one.topic_partition for one in left))
        cluster = ClusterClient(self._planner.connection)
        ids = subscription.chosen(cluster.metadata(subscription.requested_topics()))
        same = [one for one in left if ids.get(one.topic_partition) == one.topic_id]
        fetcher = OffsetFetcher(cluster, subscription, self._planner.settings.deadline_s)
        found = fetcher.lookup({one.topic_partition: since for one in same})
        return [_since(one, found.get(one.topic_partition)) for one in left]


def _since(whole: Range, at: LeaderOffsets | None) -> Range:
    """Return the part of a range from the offset on that was found for a timestamp.

    It is the whole range if the log may have lost a part of it since the range was pinned. What is
    gone may have been as late, so the task that reads the range has to notice.
    """
    if at is None or at.leader.epoch != whole.end_epoch:
        return whole
    if at.start > whole.start or at.end < whole.end:
        return whole
    start = whole.end if at.found is None else min(max(whole.start, at.found), whole.end)
    return replace(whole, start=start)


class LeadlineStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The instance on the driver plans for the whole query; copies on executors read."""

    def __init__(self, options: Options) -> None:
        self._settings = StreamSettings.of(options)
        self._subscription = SourceSubscription.of(options)
        self._task_planner = TaskPlanner.of(options)
        self._group = options.text("commitGroup")

    def initialOffset(self) -> dict[str, Any]:
        """Return where a query without a checkpoint starts."""
        return self._planner.initial().document()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return one limit if there is any, so that Spark says when it must not apply.

        Spark knows no limit of several kinds; the planner applies them itself.
        """
        if self._settings.max_offsets is not None:
            return ReadMaxRows(self._settings.max_offsets)
        if self._settings.max_bytes is not None:
            return ReadMaxBytes(self._settings.max_bytes)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the next micro-batch, or `start` if there is none."""
        limited = not (self._settings.limited and isinstance(limit, ReadAllAvailable))
        begin = SourceOffset.of_checkpoint(start)
        self._report(begin)
        end = self._planner.latest(begin, limited=limited)
        return start if end == begin else end.document()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the last known ends, for the query's progress."""
        latest = self._planner.report()
        return None if latest is None else latest.document()

    def prepareForTriggerAvailableNow(self) -> None:
        """Let the run end at the present ends."""
        self._planner.prepare()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the tasks of a micro-batch: the same for the same offsets."""
        begin, until = SourceOffset.of_checkpoint(start), SourceOffset.of_checkpoint(end)
        ranges = self._planner.ranges(begin, until)
        return self._task_planner.tasks(ranges, self._planner.leaders())

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one task, as Arrow."""
        return self._task_planner.read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: Spark calls this a batch late, and for the last one only after a restart."""

    def _report(self, done: SourceOffset) -> None:
        """Commit the start of the next micro-batch to the group: everything before it is done."""
        if self._reporter is not None:
            self._reporter.report(done)

    # Made on first use: the reader is pickled for executors before it plans anything.

    @cached_property
    def _reporter(self) -> GroupOffsetReporter | None:
        if self._group is None:
            return None
        return GroupOffsetReporter.of(self._task_planner.connection, self._group)

    @cached_property
    def _planner(self) -> StreamPlanner:
        cluster = ClusterClient(self._task_planner.connection)
        deadline_s = self._task_planner.settings.deadline_s
        return StreamPlanner(OffsetFetcher(cluster, self._subscription, deadline_s), self._settings)
