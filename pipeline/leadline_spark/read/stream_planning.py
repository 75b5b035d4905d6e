"""What a stream reads next: the driver's side of a streaming query, without Spark.

Spark asks for the latest offset dozens of times a second while nothing happens. So an idle stream
is one long poll at a time, at most a second long so that a query stops quickly, and otherwise what
was last heard is used again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Self

from leadline_client.wire import TopicPartition
from leadline_spark.errors import LeadlineSparkError
from leadline_spark.options import Options
from leadline_spark.read.admission import holds_back, share, share_bytes, waiting
from leadline_spark.read.bounds import Bound, refuse_ends, resolve, start_of
from leadline_spark.read.data_loss import DataLossChecker
from leadline_spark.read.offset_fetcher import OffsetFetcher, OffsetSnapshot
from leadline_spark.read.offset_poller import OffsetPoller
from leadline_spark.read.offsets import OffsetAndEpoch, SourceOffset
from leadline_spark.read.planning import Range

Starts = dict[TopicPartition, int]
_POLL_S = 1.0
_INVALID = "LEADLINE_OPTION_INVALID"


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """How a stream starts, and how much it takes at a time: offsets, bytes, ms; None for all."""

    start: Bound
    fail_on_data_loss: bool = True
    max_offsets: int | None = None
    min_offsets: int | None = None
    max_bytes: int | None = None
    delay_ms: int = 900_000

    @classmethod
    def of(cls, options: Options) -> Self:
        """Read the options. Raises LeadlineSparkError, as Kafka's source refuses."""
        refuse_ends(options)
        made = cls(
            start_of(options, streaming=True),
            options.flag("failOnDataLoss"),
            options.number("maxOffsetsPerTrigger"),
            options.number("minOffsetsPerTrigger"),
            options.number("maxBytesPerTrigger"),
            options.duration_ms("maxTriggerDelay") or 0,
        )
        if made.max_offsets and made.min_offsets and made.min_offsets > made.max_offsets:
            message = (
                "minOffsetsPerTrigger is greater than maxOffsetsPerTrigger: it is never reached."
            )
            raise LeadlineSparkError(_INVALID, message)
        return made

    @property
    def limited(self) -> bool:
        """Whether a micro-batch may have to leave something for the next."""
        return self.max_offsets is not None or self.max_bytes is not None


@dataclass(slots=True)
class StreamPlanner:
    """Lives as long as a run of the query; asked by one thread.

    `initial` is remembered: Spark asks for it twice before the first micro-batch, and "latest",
    asked for again, would skip what came in between. That first batch stays empty where the start
    depends on when it is resolved, so that the checkpoint holds it before anything is read.
    """

    fetcher: OffsetFetcher
    settings: StreamSettings
    clock: Callable[[], float] = time.monotonic
    poller: OffsetPoller = field(init=False)
    loss_checker: DataLossChecker = field(init=False)
    _initial: SourceOffset | None = None
    _first: bool = True
    _target: Mapping[TopicPartition, OffsetAndEpoch] | None = None
    _batch_at: float | None = None

    def __post_init__(self) -> None:
        """Begin to watch the fetcher."""
        self.poller = OffsetPoller(self.fetcher)
        self.loss_checker = DataLossChecker(self.fetcher, fail=self.settings.fail_on_data_loss)

    def initial(self) -> SourceOffset:
        """Return where a query without a checkpoint begins: the same for the whole run."""
        if self._initial is None:
            snapshot = self.poller.snapshot()
            positions = resolve(self.settings.start, snapshot, self.fetcher)
            if any(
                at.offset > snapshot.ends[topic_partition].end
                for topic_partition, at in positions.items()
            ):
                # A time was looked up after the ends: records came in between.
                snapshot = self.poller.refresh()
            self._initial = snapshot.at(positions)
        return self._initial

    def prepare(self) -> None:
        """Set the end of a run that ends: what is there now (Trigger.AvailableNow)."""
        self._target = self.poller.snapshot().latest()

    def latest(self, start: SourceOffset, *, limited: bool = True) -> SourceOffset:
        """Return where the next micro-batch ends: `start` itself where there is none to be.

        Waits for a moment, at most, where nothing is new. Without `limited` everything is taken.
        """
        first, self._first = self._first, False
        if first and start == self._initial and self.settings.start.depends_on_now:
            return start
        end = self._next(start, limited=limited)
        if end == start and self._target is not None:
            end = self._reach_target(start, limited=limited)
        if end != start:
            self._batch_at = self.clock()
            self.poller.on_batch_planned()
        return end

    def report(self) -> SourceOffset | None:
        """Return the ends that were last heard of, for the query's progress; asks nobody."""
        snapshot = self.poller.last
        return None if snapshot is None else snapshot.at(snapshot.latest())

    def ranges(self, start: SourceOffset, end: SourceOffset) -> list[Range]:
        """Return what a micro-batch reads: the same again when it is replayed after a crash.

        Raises LeadlineSparkError: LEADLINE_DATA_LOSS, LEADLINE_TOPIC_RECREATED.
        """
        # What is planned is in the checkpoint, so that no first batch needs to be empty any more.
        self._first = False
        snapshot = self.poller.snapshot_covering(end.positions)
        starts = self.loss_checker.start_offsets(start, snapshot, end)
        found = []
        for topic_partition, position in end.positions.items():
            if topic_partition not in starts:
                continue
            begin = starts[topic_partition]
            # A start that was resolved anew, as the first batch had crashed: it lies beyond what
            # the checkpoint has as that batch's end. The next batch goes on from there.
            if begin > position.offset and start != self._initial:
                message = f"{topic_partition} is to be read from {begin} to {position.offset}"
                self.loss_checker.lose(f"{message}: its end went back")
            topic_id = end.ids.get(topic_partition.topic, snapshot.ids[topic_partition])
            last = max(begin, position.offset)
            found.append(Range(topic_partition, topic_id, begin, last, position.epoch))
        return found

    def leaders(self) -> dict[TopicPartition, str | None]:
        """Return who leads, as last heard."""
        snapshot = self.poller.last
        return (
            {topic_partition: at.leader.url for topic_partition, at in snapshot.ends.items()}
            if snapshot
            else {}
        )

    def _next(self, start: SourceOffset, *, limited: bool) -> SourceOffset:
        known = {topic_partition: at.offset for topic_partition, at in start.positions.items()}
        # A run that ends needs no news of what it will not read.
        snapshot = self.poller.poll(known, 0.0 if self._target is not None else _POLL_S)
        starts = self.loss_checker.start_offsets(start, snapshot)
        ends = {
            topic_partition: self._end(topic_partition, at)
            for topic_partition, at in snapshot.latest().items()
        }
        counts = waiting(
            starts, {topic_partition: at.offset for topic_partition, at in ends.items() if at}
        )
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
        target = self._target.get(topic_partition)
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
        begins: Mapping[TopicPartition, int],
        counts: Mapping[TopicPartition, int],
        snapshot: OffsetSnapshot,
    ) -> dict[TopicPartition, OffsetAndEpoch]:
        """Move what has anything to read; the others keep offset and epoch, as Spark compares."""
        positions = {}
        for topic_partition, begin in begins.items():
            before = start.positions.get(topic_partition)
            count = counts.get(topic_partition, 0)
            if before is not None and count == 0 and begin == before.offset:
                positions[topic_partition] = before
            elif self._target is None or topic_partition in self._target:
                positions[topic_partition] = OffsetAndEpoch(
                    begin + count, snapshot.ends[topic_partition].leader.epoch
                )
        return positions

    def _reach_target(self, start: SourceOffset, *, limited: bool) -> SourceOffset:
        """Wait for what was committed when the run began and is not, as a leader is new."""
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
        snapshot = self.poller.last
        return [
            topic_partition
            for topic_partition, target in (self._target or {}).items()
            if topic_partition in start.positions
            and snapshot is not None
            and topic_partition in snapshot.ends
            and start.positions[topic_partition].offset < target.offset
        ]
