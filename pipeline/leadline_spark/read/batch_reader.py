"""Batch reads: a range for each partition, resolved once and kept for every action."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from leadline_spark.cluster.cluster import Cluster
from leadline_spark.errors import LeadlineSparkError
from leadline_spark.options import Options
from leadline_spark.read.bounds import Bound, end_of, resolve, start_of
from leadline_spark.read.filters import Chosen
from leadline_spark.read.offset_fetcher import OffsetFetcher, View
from leadline_spark.read.offsets import Position, TopicPartition
from leadline_spark.read.planning import Range
from leadline_spark.read.subscription import Subscription
from leadline_spark.read.tasks import TaskMaker

if TYPE_CHECKING:
    import pyarrow as pa

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Pinned:
    """What a read covers, and who led when that was found out."""

    ranges: tuple[Range, ...]
    leaders: dict[TopicPartition, str | None]


def pin(options: Options) -> Pinned:
    """Find out what a batch read covers: two requests, and one for each end that is a time.

    Raises LeadlineSparkError.
    """
    maker = TaskMaker.of(options)
    start, end = start_of(options, streaming=False), end_of(options)
    heads = OffsetFetcher(
        Cluster(maker.connection), Subscription.of(options), maker.settings.deadline_s
    )
    view = heads.view()
    starts, ends = _resolved(start, view, heads), _resolved(end, view, heads)
    lenient = not maker.settings.fail_on_data_loss
    ranges = tuple(_range(place, starts[place], ends[place], view, lenient) for place in view.ends)
    return Pinned(ranges, {place: at.leader.url for place, at in view.ends.items()})


def _resolved(bound: Bound, view: View, heads: OffsetFetcher) -> dict[TopicPartition, Position]:
    """Return where a bound lies in the view: a time was asked for later, and what came then is new.

    None of the records before the view's end is as late as a time that was found beyond it.
    """
    found = resolve(bound, view, heads)
    if not bound.by_time:
        return found
    return {
        place: replace(at, offset=min(at.offset, view.ends[place].end))
        for place, at in found.items()
    }


def _range(
    place: TopicPartition, start: Position, end: Position, view: View, lenient: bool
) -> Range:
    """Check a range against what there is, or fit it to that where losses are accepted."""
    at = view.ends[place]
    if start.offset > end.offset and not lenient:
        told = f"{place} would be read from {start.offset} to {end.offset}, which is before that."
        raise LeadlineSparkError("LEADLINE_OFFSETS_INVALID", told)
    first, last = start.offset, end.offset
    if first < min(at.start, last):
        _lost(f"{place} begins at {at.start}, and is to be read from {first} on", lenient)
        first = min(at.start, last)
    if last > at.end:
        _lost(f"{place} ends at {at.end}, but is to be read up to {last}", lenient)
        last = at.end
    return Range(place, view.ids[place], first, max(first, last), at.leader.epoch)


def _lost(what: str, lenient: bool) -> None:
    if not lenient:
        told = f"{what}. To read what there is set failOnDataLoss to false."
        raise LeadlineSparkError("LEADLINE_DATA_LOSS", told)
    _LOG.warning("LEADLINE_DATA_LOSS: %s", what)


class LeadlineBatchReader(DataSourceReader):
    """Reads what was pinned when the DataFrame was loaded, or else what is there at each action."""

    def __init__(self, options: Options, pinned: Pinned | None) -> None:
        self._options = options
        self._pinned = pinned
        self._maker = TaskMaker.of(options)

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
        self._wanted = Chosen()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Take filters on topic, partition and offset; return the others."""
        return self._wanted.take(filters)

    def chosen(self, ranges: Sequence[Range]) -> Sequence[Range]:
        """Return what the filters leave of the ranges; a time costs one more request."""
        left = self._wanted.of(ranges)
        since = self._wanted.since_ms
        if since is None or not left:
            return left
        heads = OffsetFetcher(
            Cluster(self._maker.connection),
            Subscription(places=tuple(one.place for one in left)),
            self._maker.settings.deadline_s,
        )
        found = heads.by_time({one.place: since for one in left})
        return [_from(one, found[one.place]) for one in left]


def _from(one: Range, first: int | None) -> Range:
    """Leave out what is before an offset: everything where there is none."""
    start = one.end if first is None else min(max(one.start, first), one.end)
    return replace(one, start=start)
