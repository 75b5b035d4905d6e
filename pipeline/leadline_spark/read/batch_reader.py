"""Batch reads: a range for each partition, resolved once and kept for every action."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from leadline_client.wire import TopicPartition
from leadline_spark.cluster.cluster_client import ClusterClient
from leadline_spark.errors import LeadlineSparkError
from leadline_spark.options import Options
from leadline_spark.read.bounds import Bound, end_of, resolve, start_of
from leadline_spark.read.filters import PushedFilters
from leadline_spark.read.offset_fetcher import OffsetFetcher, OffsetSnapshot
from leadline_spark.read.offsets import OffsetAndEpoch
from leadline_spark.read.planning import Range
from leadline_spark.read.subscription import SourceSubscription
from leadline_spark.read.tasks import TaskPlanner

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Pinned:
    """What a read covers, and who led when that was found out."""

    ranges: tuple[Range, ...]
    leaders: dict[TopicPartition, str | None]


def pin(options: Options) -> Pinned:
    """Find out what a batch read covers: two requests, and one for each end that is a time.

    Raises LeadlineSparkError.
    """
    maker = TaskPlanner.of(options)
    start, end = start_of(options, streaming=False), end_of(options)
    fetcher = OffsetFetcher(
        ClusterClient(maker.connection), SourceSubscription.of(options), maker.settings.deadline_s
    )
    snapshot = fetcher.snapshot()
    starts, ends = _resolved(start, snapshot, fetcher), _resolved(end, snapshot, fetcher)
    lenient = not maker.settings.fail_on_data_loss
    ranges = tuple(
        _range(topic_partition, starts[topic_partition], ends[topic_partition], snapshot, lenient)
        for topic_partition in snapshot.ends
    )
    return Pinned(
        ranges, {topic_partition: at.leader.url for topic_partition, at in snapshot.ends.items()}
    )


def _resolved(
    bound: Bound, snapshot: OffsetSnapshot, fetcher: OffsetFetcher
) -> dict[TopicPartition, OffsetAndEpoch]:
    """Return where a bound lies in the snapshot: a time was asked for later, and what came then is new.

    None of the records before the snapshot's end is as late as a time that was found beyond it.
    """
    found = resolve(bound, snapshot, fetcher)
    if not bound.by_time:
        return found
    return {
        topic_partition: replace(at, offset=min(at.offset, snapshot.ends[topic_partition].end))
        for topic_partition, at in found.items()
    }


def _range(
    topic_partition: TopicPartition,
    start: OffsetAndEpoch,
    end: OffsetAndEpoch,
    snapshot: OffsetSnapshot,
    lenient: bool,
) -> Range:
    """Check a range against what there is, or fit it to that where losses are accepted."""
    at = snapshot.ends[topic_partition]
    if start.offset > end.offset and not lenient:
        message = f"{topic_partition} would be read from {start.offset} to {end.offset}, which is before that."
        raise LeadlineSparkError("LEADLINE_OFFSETS_INVALID", message)
    first, last = start.offset, end.offset
    if first < min(at.start, last):
        _lost(f"{topic_partition} begins at {at.start}, and is to be read from {first} on", lenient)
        first = min(at.start, last)
    if last > at.end:
        _lost(f"{topic_partition} ends at {at.end}, but is to be read up to {last}", lenient)
        last = at.end
    return Range(
        topic_partition, snapshot.ids[topic_partition], first, max(first, last), at.leader.epoch
    )


def _lost(what: str, lenient: bool) -> None:
    if not lenient:
        message = f"{what}. To read what there is set failOnDataLoss to false."
        raise LeadlineSparkError("LEADLINE_DATA_LOSS", message)
    logger.warning("LEADLINE_DATA_LOSS: %s", what)


class LeadlineBatchReader(DataSourceReader):
    """Reads what was pinned when the DataFrame was loaded, or else what is there at each action."""

    def __init__(self, options: Options, pinned: Pinned | None) -> None:
        self._options = options
        self._pinned = pinned
        self._maker = TaskPlanner.of(options)

    def partitions(self) -> Sequence[InputPartition]:
        """Return the tasks."""
        pinned = self._pinned or pin(self._options)
        return self._maker.tasks(self.chosen(pinned.ranges), pinned.leaders)

    def chosen(self, ranges: Sequence[Range]) -> Sequence[Range]:
        """Return what is left of the ranges where filters were pushed down: here, all."""
        return ranges

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one task, as Arrow."""
        return self._maker.read(partition)


class PushingBatchReader(LeadlineBatchReader):
    """The same, with filters pushed down.

    A class of its own, as Spark fails every read whose reader has `pushFilters` unless the session
    allows pushing (`spark.sql.python.filterPushdown.enabled`).
    """

    def __init__(self, options: Options, pinned: Pinned | None) -> None:
        super().__init__(options, pinned)
        self._wanted = PushedFilters()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Take filters on topic, partition and offset; return the others."""
        return self._wanted.take(filters)

    def chosen(self, ranges: Sequence[Range]) -> Sequence[Range]:
        """Return what the filters leave of the ranges; a time costs one more request."""
        left = self._wanted.of(ranges)
        since = self._wanted.since_ms
        if since is None or not left:
            return left
        fetcher = OffsetFetcher(
            ClusterClient(self._maker.connection),
            SourceSubscription(topic_partitions=tuple(one.topic_partition for one in left)),
            self._maker.settings.deadline_s,
        )
        found = fetcher.by_time({one.topic_partition: since for one in left})
        return [_from(one, found[one.topic_partition]) for one in left]


def _from(one: Range, first: int | None) -> Range:
    """Leave out what is before an offset: everything where there is none."""
    start = one.end if first is None else min(max(one.start, first), one.end)
    return replace(one, start=start)
