"""The ends of partitions as a stream last heard of them, renewed no more often than it needs.

At rest this costs one long poll for the ends and a look at the metadata every few seconds: less
than two requests a second, however often Spark asks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from leadline_client.wire import TopicPartition
from leadline_spark.cluster.cluster_client import LeaderOffsets
from leadline_spark.errors import LeadlineSparkError
from leadline_spark.read.offset_fetcher import OffsetFetcher, OffsetSnapshot

_METADATA_S = 5.0
_SPACING_S = 0.6
_SIZES_S = 30.0
_PASSING = frozenset({"LEADLINE_CLUSTER_UNREACHABLE", "LEADLINE_REFUSED"})


class OffsetPoller:
    """Keeps one snapshot of a subscription. Not shared among threads."""

    def __init__(
        self,
        fetcher: OffsetFetcher,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.last: OffsetSnapshot | None = None
        self._fetcher = fetcher
        self._clock = clock
        self._sleep = sleep
        self._metadata_at = 0.0
        self._asked_at: float | None = None
        self._failing_since: float | None = None
        self._behind_since: float | None = None
        self._sizes: tuple[float, dict[TopicPartition, float]] | None = None

    def snapshot(self) -> OffsetSnapshot:
        """Return the snapshot, from the cluster if there is none yet."""
        if self.last is None:
            self.last = self._fetcher.snapshot()
            self._metadata_at = self._clock()
        return self.last

    def snapshot_covering(self, topic_partitions: Iterable[TopicPartition]) -> OffsetSnapshot:
        """Return a snapshot that knows these partitions, as far as the cluster does."""
        snapshot = self.snapshot()
        gone = any(topic_partition not in snapshot.ends for topic_partition in topic_partitions)
        return self.refresh() if gone else snapshot

    def refresh(self) -> OffsetSnapshot:
        """Return a new snapshot, from the cluster."""
        self.last = None
        return self.snapshot()

    def poll(self, known: Mapping[TopicPartition, int], wait_s: float) -> OffsetSnapshot:
        """Return a snapshot that is as new as it needs to be, waiting for news if there are none.

        `known` is where the stream stands. A cluster that cannot be asked right now is no error
        until the deadline is over: the stream goes on with what it knows.
        """
        fresh = self.last is None
        snapshot = self.snapshot()
        if fresh:
            return snapshot
        try:
            if self._clock() - self._metadata_at >= _METADATA_S:
                snapshot = self._renewed(snapshot)
            snapshot = self._news(snapshot, known, wait_s)
        except LeadlineSparkError as failure:
            # Counted from the first failure: a long micro-batch, in which nobody asks, is none.
            self._failing_since = self._failing_since or self._clock()
            if self._is_late(self._failing_since) or failure.code not in _PASSING:
                raise
            self.pause()
            return snapshot
        self.last = snapshot
        self._failing_since = None
        return snapshot

    def on_batch_planned(self) -> None:
        """Say that a micro-batch follows: its successor may ask at once."""
        self._asked_at = None

    def pause(self) -> None:
        """Wait as long as it takes to ask no more than about twice a second."""
        if self._asked_at is not None:
            self._sleep(max(0.0, self._asked_at + _SPACING_S - self._clock()))
        else:
            self._sleep(_SPACING_S)

    def mean_bytes(self, snapshot: OffsetSnapshot) -> dict[TopicPartition, float]:
        """Return the mean stored bytes of an offset in each partition, as of a little while ago."""
        now = self._clock()
        if self._sizes is None or now - self._sizes[0] >= _SIZES_S:
            sizes = self._fetcher.sizes(snapshot)
            means = {
                topic_partition: size
                / max(1, snapshot.ends[topic_partition].end - snapshot.ends[topic_partition].start)
                for topic_partition, size in sizes.items()
            }
            self._sizes = now, means
        return self._sizes[1]

    def _renewed(self, snapshot: OffsetSnapshot) -> OffsetSnapshot:
        """Look for partitions that were added, topics that match, and what is gone."""
        self._metadata_at = self._clock()
        metadata = self._fetcher.cluster.metadata(self._fetcher.subscription.asked())
        if metadata.version < snapshot.version:
            # Partitions that this address does not know yet are not gone. That passes, unless it
            # is another cluster.
            self._behind_since = self._behind_since or self._metadata_at
            if not self._is_late(self._behind_since):
                return snapshot
        self._behind_since = None
        ids = self._fetcher.subscription.chosen(metadata)
        kept = {p: at for p, at in snapshot.ends.items() if ids.get(p) == snapshot.ids[p]}
        added = [topic_partition for topic_partition in ids if topic_partition not in kept]
        ends = kept | (self._fetcher.ends(added) if added else {})
        return OffsetSnapshot(ids, ends, metadata.version)

    def _is_late(self, since: float) -> bool:
        return self._clock() - since >= self._fetcher.deadline_s

    def _news(
        self, snapshot: OffsetSnapshot, known: Mapping[TopicPartition, int], wait_s: float
    ) -> OffsetSnapshot:
        ends = {topic_partition: at.end for topic_partition, at in snapshot.ends.items()}
        if not ends:
            self.pause()
            self._asked_at = self._clock()
            return snapshot
        idle = all(end <= known.get(topic_partition, -1) for topic_partition, end in ends.items())
        if self._asked_at is not None:
            self.pause()
        self._asked_at = self._clock()
        found = self._fetcher.wait_for_new_ends(ends, wait_s if idle else 0.0)
        merged = {
            topic_partition: _later(at, found.get(topic_partition))
            for topic_partition, at in snapshot.ends.items()
        }
        return replace(snapshot, ends=merged)


def _later(known: LeaderOffsets, found: LeaderOffsets | None) -> LeaderOffsets:
    """Return the newer word: within an epoch ends do not go back, though answers may cross."""
    if found is None or found.leader.epoch < known.leader.epoch:
        return known
    if found.leader.epoch == known.leader.epoch and found.end < known.end:
        return known
    return found
