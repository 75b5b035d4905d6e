"""The latest known offsets of a stream's partitions, refreshed no more often than necessary.

An idle stream costs one long poll for the ends and one look at the metadata every few seconds: less
than two requests a second, however often Spark asks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from leadline_client.wire import TopicPartition
from leadline_spark.cluster.cluster_client import LeaderOffsets
from leadline_spark.errors import LeadlineSparkError
from leadline_spark.read.offset_fetcher import OffsetFetcher, OffsetSnapshot

_METADATA_S = 5.0
_SPACING_S = 0.6
_SIZES_S = 30.0
_TRANSIENT = frozenset({"LEADLINE_CLUSTER_UNREACHABLE", "LEADLINE_REFUSED"})


@dataclass(slots=True)
class OffsetPoller:
    """Keeps one snapshot of a subscription's offsets. Not shared among threads."""

    fetcher: OffsetFetcher
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    last: OffsetSnapshot | None = None
    _metadata_at: float = 0.0
    _polled_at: float | None = None
    _failing_since: float | None = None
    _outdated_since: float | None = None
    _leaderless_since: dict[TopicPartition, float] = field(default_factory=dict)
    _mean_sizes: tuple[float, dict[TopicPartition, float]] | None = None

    def snapshot(self) -> OffsetSnapshot:
        """Return the snapshot; fetch the first one."""
        if self.last is None:
            self.last = self.fetcher.snapshot()
            self._metadata_at = self.clock()
        return self.last

    def snapshot_covering(self, topic_partitions: Iterable[TopicPartition]) -> OffsetSnapshot:
        """Return a snapshot with those of these partitions that the cluster has."""
        known = self.snapshot().offsets
        complete = all(topic_partition in known for topic_partition in topic_partitions)
        return self.snapshot() if complete else self.refresh()

    def refresh(self) -> OffsetSnapshot:
        """Fetch and return a new snapshot."""
        self.last = None
        return self.snapshot()

    def poll(self, known: Mapping[TopicPartition, int], wait_s: float) -> OffsetSnapshot:
        """Return a recent snapshot; if the stream has read everything, wait for new records.

        `known` are the positions of the stream. If the cluster cannot be reached, return the last
        snapshot, and raise LeadlineSparkError only after the deadline.
        """
        is_first = self.last is None
        snapshot = self.snapshot()
        if is_first:
            return snapshot
        try:
            if self.clock() - self._metadata_at >= _METADATA_S:
                snapshot = self._with_new_metadata(snapshot)
            snapshot = self._with_new_ends(snapshot, known, wait_s)
        except LeadlineSparkError as failure:
            # Count from the first failure, because nobody polls during a long micro-batch.
            self._failing_since = self._failing_since or self.clock()
            if self._is_late(self._failing_since) or failure.code not in _TRANSIENT:
                raise
            self.pause()
            return snapshot
        self.last = snapshot
        self._failing_since = None
        return snapshot

    def on_batch_planned(self) -> None:
        """Let the next poll start at once: a micro-batch runs before it."""
        self._polled_at = None

    def pause(self) -> None:
        """Wait so long that polls come no more than about twice a second."""
        since_poll = 0.0 if self._polled_at is None else self.clock() - self._polled_at
        self.sleep(max(0.0, _SPACING_S - since_poll))

    def mean_bytes(self, snapshot: OffsetSnapshot) -> dict[TopicPartition, float]:
        """Return the mean stored bytes of an offset in each partition, up to 30 s old."""
        now = self.clock()
        if self._mean_sizes is None or now - self._mean_sizes[0] >= _SIZES_S:
            offsets = snapshot.offsets
            means = {
                tp: size / max(1, offsets[tp].end - offsets[tp].start)
                for tp, size in self.fetcher.sizes(snapshot).items()
            }
            self._mean_sizes = now, means
        return self._mean_sizes[1]

    def _with_new_metadata(self, snapshot: OffsetSnapshot) -> OffsetSnapshot:
        """Add new partitions and topics to a snapshot, and remove those that are deleted."""
        self._metadata_at = self.clock()
        subscription = self.fetcher.subscription
        metadata = self.fetcher.cluster.metadata(subscription.requested_topics())
        if metadata.version < snapshot.version:
            # A node that lags does not know all partitions.
            self._outdated_since = self._outdated_since or self._metadata_at
            if not self._is_late(self._outdated_since):
                return snapshot
        self._outdated_since = None
        ids = subscription.chosen(metadata)
        kept = {tp: at for tp, at in snapshot.offsets.items() if ids.get(tp) == snapshot.ids[tp]}
        recreated = [tp for tp in ids if tp in snapshot.offsets and tp not in kept]
        added = [tp for tp in ids if tp not in snapshot.offsets]
        offsets = kept | self.fetcher.offsets(recreated) | self._offsets_of_new(added)
        read = {tp: topic_id for tp, topic_id in ids.items() if tp in offsets}
        return OffsetSnapshot(read, offsets, metadata.version)

    def _offsets_of_new(self, added: list[TopicPartition]) -> dict[TopicPartition, LeaderOffsets]:
        """Return the offsets of new partitions that have a leader.

        The others are asked for at the next look, until the deadline: nothing of them was read, so
        that nothing is lost, and those that are read must not wait for them.
        """
        since, now = self._leaderless_since, self.clock()
        late = [tp for tp in added if tp in since and self._is_late(since[tp])]
        found = self.fetcher.offsets_of_led(added, late) if added else {}
        self._leaderless_since = {tp: since.get(tp, now) for tp in added if tp not in found}
        return found

    def _is_late(self, since: float) -> bool:
        return self.clock() - since >= self.fetcher.deadline_s

    def _with_new_ends(
        self, snapshot: OffsetSnapshot, known: Mapping[TopicPartition, int], wait_s: float
    ) -> OffsetSnapshot:
        ends = {topic_partition: at.end for topic_partition, at in snapshot.offsets.items()}
        if not ends:
            self.pause()
            self._polled_at = self.clock()
            return snapshot
        idle = all(end <= known.get(topic_partition, -1) for topic_partition, end in ends.items())
        if self._polled_at is not None:
            self.pause()
        self._polled_at = self.clock()
        found = self.fetcher.wait_for_new_ends(ends, wait_s if idle else 0.0)
        newer = {tp: _newer(at, found.get(tp)) for tp, at in snapshot.offsets.items()}
        return replace(snapshot, offsets=newer)


def _newer(known: LeaderOffsets, found: LeaderOffsets | None) -> LeaderOffsets:
    """Return the newer offsets: answers may arrive out of order, but ends never decrease."""
    if found is None or found.leader.epoch < known.leader.epoch:
        return known
    if found.leader.epoch == known.leader.epoch and found.end < known.end:
        return known
    return found
