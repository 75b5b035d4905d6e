"""The planner of a streaming query on the driver: what a stream reads next. Needs no Spark.

Spark asks for the latest offset dozens of times a second while nothing happens. An idle stream
therefore sends one long poll at a time, at most a second long so that a query stops quickly, and
otherwise answers from the last snapshot.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Self

from leadline_client.wire import TopicPartition
from leadline_spark.errors import LeadlineSparkError
from leadline_spark.options import Options
from leadline_spark.read.admission import available, holds_back, share, share_bytes
from leadline_spark.read.bounds import Bound, refuse_ends, resolve, start_of
from leadline_spark.read.data_loss import DataLossChecker
from leadline_spark.read.offset_fetcher import OffsetFetcher, OffsetSnapshot
from leadline_spark.read.offset_poller import OffsetPoller
from leadline_spark.read.offsets import OffsetAndEpoch, SourceOffset
from leadline_spark.read.planning import Range

_POLL_S = 1.0


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """Where a stream starts, and the limits of a micro-batch in offsets and bytes; None for none.

    A micro-batch waits for `min_offsets`, at most for `delay_ms`.
    """

    start: Bound
    fail_on_data_loss: bool = True
    max_offsets: int | None = None
    min_offsets: int | None = None
    max_bytes: int | None = None
    delay_ms: int = 900_000

    @classmethod
    def of(cls, options: Options) -> Self:
        """Read the options. Raises LeadlineSparkError where Kafka's source refuses them."""
        refuse_ends(options)
        settings = cls(
            start_of(options, streaming=True),
            options.flag("failOnDataLoss"),
            options.number("maxOffsetsPerTrigger"),
            options.number("minOffsetsPerTrigger"),
            options.number("maxBytesPerTrigger"),
            options.duration_ms("maxTriggerDelay") or 0,
        )
        least, most = settings.min_offsets, settings.max_offsets
        if least and most and least > most:
            message = (
                "minOffsetsPerTrigger is greater than maxOffsetsPerTrigger: it is never reached."
            )
            raise LeadlineSparkError("LEADLINE_OPTION_INVALID", message)
        return settings

    @property
    def limited(self) -> bool:
        """Whether a micro-batch may have to leave something for the next."""
        return self.max_offsets is not None or self.max_bytes is not None


@dataclass(slots=True)
class StreamPlanner:
    """Plans the micro-batches of one run of a query. Used by one thread.

    Spark asks for the initial offset twice before the first micro-batch. It is resolved once, as
    "latest" would be later the second time, and records would be skipped. If the start depends on
    when it is resolved, the first micro-batch stays empty, so that the checkpoint holds the start
    before anything is read.
    """

    fetcher: OffsetFetcher
    settings: StreamSettings
    clock: Callable[[], float] = time.monotonic
    poller: OffsetPoller = field(init=False)
    loss_checker: DataLossChecker = field(init=False)
    _initial: SourceOffset | None = None
    _is_first: bool = True
    _target: SourceOffset | None = None
    _batch_at: float | None = None

    def __post_init__(self) -> None:
        """Make the parts that share the fetcher."""
        self.poller = OffsetPoller(self.fetcher)
        self.loss_checker = DataLossChecker(self.fetcher, fail=self.settings.fail_on_data_loss)

    def initial(self) -> SourceOffset:
        """Return where a query without a checkpoint starts, the same for the whole run."""
        if self._initial is None:
            snapshot = self.poller.snapshot()
            positions = resolve(self.settings.start, snapshot, self.fetcher)
            if any(at.offset > snapshot.offsets[tp].end for tp, at in positions.items()):
                # Timestamps are looked up after the ends: records arrived in between.
                snapshot = self.poller.refresh()
            self._initial = snapshot.at(positions)
        return self._initial

    def prepare(self) -> None:
        """Let the run end at the present ends (Trigger.AvailableNow)."""
        snapshot = self.poller.snapshot()
        self._target = snapshot.at(snapshot.latest())

    def latest(self, start: SourceOffset, *, limited: bool = True) -> SourceOffset:
        """Return the end of the next micro-batch, or `start` if there is none.

        Waits about a second for new records. Without `limited`, takes everything.
        """
        is_first, self._is_first = self._is_first, False
        if is_first and start == self._initial and self.settings.start.depends_on_now:
            return start
        end = self._next(start, limited=limited)
        if end == start and self._target is not None:
            end = self._wait_for_target(start, limited=limited)
        if end != start:
            self._batch_at = self.clock()
            self.poller.on_batch_planned()
        return end

    def report(self) -> SourceOffset | None:
        """Return the ends of the last snapshot for the query's progress, without a request."""
        snapshot = self.poller.last
        return None if snapshot is None else snapshot.at(snapshot.latest())

    def ranges(self, start: SourceOffset, end: SourceOffset) -> list[Range]:
        """Return the ranges of a micro-batch, the same when it is replayed after a crash.

        Raises LeadlineSparkError: LEADLINE_DATA_LOSS, LEADLINE_TOPIC_RECREATED.
        """
        # A planned micro-batch is in the checkpoint, so no first one needs to stay empty any more.
        self._is_first = False
        snapshot = self.poller.snapshot_covering(end.positions)
        starts = self.loss_checker.start_offsets(start, snapshot, end)
        found = []
        for topic_partition, position in end.positions.items():
            if topic_partition not in starts:
                continue
            begin = starts[topic_partition]
            # After a crash of the first micro-batch, its start is resolved again, and may be
            # later than its end in the checkpoint. The next micro-batch continues from there.
            if begin > position.offset and start != self._initial:
                message = f"{topic_partition} is to be read from {begin} to {position.offset}"
                self.loss_checker.report(f"{message}: its end went back")
            topic_id = end.ids.get(topic_partition.topic, snapshot.ids[topic_partition])
            last = max(begin, position.offset)
            found.append(Range(topic_partition, topic_id, begin, last, position.epoch))
        return found

    def leaders(self) -> dict[TopicPartition, str | None]:
        """Return the leaders of the last snapshot."""
        return self.poller.last.leaders() if self.poller.last else {}

    def _next(self, start: SourceOffset, *, limited: bool) -> SourceOffset:
        known = {topic_partition: at.offset for topic_partition, at in start.positions.items()}
        # A run that ends does not wait for records that it will not read.
        snapshot = self.poller.poll(known, 0.0 if self._target is not None else _POLL_S)
        starts = self.loss_checker.start_offsets(start, snapshot)
        ends = {tp: self._end(tp, at) for tp, at in snapshot.latest().items()}
        counts = available(starts, {tp: at.offset for tp, at in ends.items() if at})
        if limited and self._holds_back(counts):
            counts = {}
        elif limited:
            counts = self._share(counts, snapshot)
        positions = self._positions(start, starts, counts, snapshot)
        if positions == dict(start.positions):
            return start
        return snapshot.at(positions)

    def _end(self, topic_partition: TopicPartition, at: OffsetAndEpoch) -> OffsetAndEpoch | None:
        if self._target is None:
            return at
        target = self._target.positions.get(topic_partition)
        return target if target is None or target.offset < at.offset else at

    def _holds_back(self, counts: Mapping[TopicPartition, int]) -> bool:
        if self._target is not None:
            return False
        elapsed = None if self._batch_at is None else (self.clock() - self._batch_at) * 1_000
        return holds_back(counts, self.settings.min_offsets, elapsed, self.settings.delay_ms)

    def _share(
        self, counts: dict[TopicPartition, int], snapshot: OffsetSnapshot
    ) -> dict[TopicPartition, int]:
        if counts and self.settings.max_bytes is not None:
            means = self.poller.mean_bytes(snapshot)
            counts = share_bytes(counts, self.settings.max_bytes, means)
        if self.settings.max_offsets is not None:
            counts = share(counts, self.settings.max_offsets)
        return counts

    def _positions(
        self,
        start: SourceOffset,
        starts: Mapping[TopicPartition, int],
        counts: Mapping[TopicPartition, int],
        snapshot: OffsetSnapshot,
    ) -> dict[TopicPartition, OffsetAndEpoch]:
        """Advance the partitions that have records.

        The others keep offset and epoch, because Spark compares offsets as text.
        """
        positions = {}
        for topic_partition, begin in starts.items():
            before = start.positions.get(topic_partition)
            count = counts.get(topic_partition, 0)
            if before is not None and count == 0 and begin == before.offset:
                positions[topic_partition] = before
            elif self._target is None or topic_partition in self._target.positions:
                epoch = snapshot.offsets[topic_partition].leader.epoch
                positions[topic_partition] = OffsetAndEpoch(begin + count, epoch)
        return positions

    def _wait_for_target(self, start: SourceOffset, *, limited: bool) -> SourceOffset:
        """Wait for the ends of the run, which a new leader does not report at once.

        What is lost of them does not come back: unless that fails the query, the run ends sooner.
        """
        give_up = self.clock() + self.fetcher.deadline_s
        while self._behind(start) and self.clock() < give_up:
            self.poller.pause()
            end = self._next(start, limited=limited)
            if end != start:
                return end
        behind = self._behind(start)
        if behind:
            message = f"{behind[0]} did not come back to where it ended when this run began."
            raise LeadlineSparkError("LEADLINE_LEADER_UNREACHABLE", message)
        return start

    def _behind(self, start: SourceOffset) -> list[TopicPartition]:
        """Return the partitions that are not read up to what is left of the ends of the run."""
        snapshot, target = self.poller.last, self._target
        if snapshot is None or target is None:
            return []
        read_on = start.positions.keys() & snapshot.offsets.keys() & target.positions.keys()
        return [
            topic_partition
            for topic_partition in sorted(read_on)
            if start.positions[topic_partition].offset
            < self.loss_checker.end_left(target, topic_partition, snapshot)
        ]
