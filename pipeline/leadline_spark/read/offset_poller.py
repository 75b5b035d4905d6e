"""The ends of partitions as a stream last heard of them, renewed no more often than it needs.

At rest this costs one long poll for the ends and a look at the metadata every few seconds: less
than two requests a second, however often Spark asks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from leadline_spark.cluster.cluster import PartitionOffsets
from leadline_spark.errors import LeadlineSparkError
from leadline_spark.read.offset_fetcher import OffsetFetcher, View
from leadline_spark.read.offsets import TopicPartition

_METADATA_S = 5.0
_SPACING_S = 0.6
_SIZES_S = 30.0
_PASSING = frozenset({"LEADLINE_CLUSTER_UNREACHABLE", "LEADLINE_REFUSED"})


class Watch:
    """Keeps one view of a subscription. Not shared among threads."""

    def __init__(
        self,
        heads: OffsetFetcher,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.last: View | None = None
        self._heads = heads
        self._clock = clock
        self._sleep = sleep
        self._metadata_at = 0.0
        self._asked_at: float | None = None
        self._failing_since: float | None = None
        self._behind_since: float | None = None
        self._sizes: tuple[float, dict[TopicPartition, float]] | None = None

    def view(self) -> View:
        """Return the view, from the cluster if there is none yet."""
        if self.last is None:
            self.last = self._heads.view()
            self._metadata_at = self._clock()
        return self.last

    def covering(self, places: Iterable[TopicPartition]) -> View:
        """Return a view that knows these partitions, as far as the cluster does."""
        view = self.view()
        gone = any(place not in view.ends for place in places)
        return self.anew() if gone else view

    def anew(self) -> View:
        """Return a new view, from the cluster."""
        self.last = None
        return self.view()

    def look(self, known: Mapping[TopicPartition, int], wait_s: float) -> View:
        """Return a view that is as new as it needs to be, waiting for news if there are none.

        `known` is where the stream stands. A cluster that cannot be asked right now is no error
        until the deadline is over: the stream goes on with what it knows.
        """
        fresh = self.last is None
        view = self.view()
        if fresh:
            return view
        try:
            if self._clock() - self._metadata_at >= _METADATA_S:
                view = self._renewed(view)
            view = self._news(view, known, wait_s)
        except LeadlineSparkError as failure:
            # Counted from the first failure: a long micro-batch, in which nobody asks, is none.
            self._failing_since = self._failing_since or self._clock()
            if self._is_late(self._failing_since) or failure.code not in _PASSING:
                raise
            self.pause()
            return view
        self.last = view
        self._failing_since = None
        return view

    def busy(self) -> None:
        """Say that a micro-batch follows: its successor may ask at once."""
        self._asked_at = None

    def pause(self) -> None:
        """Wait as long as it takes to ask no more than about twice a second."""
        if self._asked_at is not None:
            self._sleep(max(0.0, self._asked_at + _SPACING_S - self._clock()))
        else:
            self._sleep(_SPACING_S)

    def mean_bytes(self, view: View) -> dict[TopicPartition, float]:
        """Return the mean stored bytes of an offset in each partition, as of a little while ago."""
        now = self._clock()
        if self._sizes is None or now - self._sizes[0] >= _SIZES_S:
            sizes = self._heads.sizes(view)
            means = {
                place: size / max(1, view.ends[place].end - view.ends[place].start)
                for place, size in sizes.items()
            }
            self._sizes = now, means
        return self._sizes[1]

    def _renewed(self, view: View) -> View:
        """Look for partitions that were added, topics that match, and what is gone."""
        self._metadata_at = self._clock()
        metadata = self._heads.cluster.metadata(self._heads.subscription.asked())
        if metadata.version < view.version:
            # Partitions that this address does not know yet are not gone. That passes, unless it
            # is another cluster.
            self._behind_since = self._behind_since or self._metadata_at
            if not self._is_late(self._behind_since):
                return view
        self._behind_since = None
        ids = self._heads.subscription.chosen(metadata)
        kept = {p: at for p, at in view.ends.items() if ids.get(p) == view.ids[p]}
        added = [place for place in ids if place not in kept]
        ends = kept | (self._heads.ends(added) if added else {})
        return View(ids, ends, metadata.version)

    def _is_late(self, since: float) -> bool:
        return self._clock() - since >= self._heads.deadline_s

    def _news(self, view: View, known: Mapping[TopicPartition, int], wait_s: float) -> View:
        ends = {place: at.end for place, at in view.ends.items()}
        if not ends:
            self.pause()
            self._asked_at = self._clock()
            return view
        idle = all(end <= known.get(place, -1) for place, end in ends.items())
        if self._asked_at is not None:
            self.pause()
        self._asked_at = self._clock()
        found = self._heads.news(ends, wait_s if idle else 0.0)
        merged = {place: _later(at, found.get(place)) for place, at in view.ends.items()}
        return replace(view, ends=merged)


def _later(known: PartitionOffsets, found: PartitionOffsets | None) -> PartitionOffsets:
    """Return the newer word: within an epoch ends do not go back, though answers may cross."""
    if found is None or found.leader.epoch < known.leader.epoch:
        return known
    if found.leader.epoch == known.leader.epoch and found.end < known.end:
        return known
    return found
