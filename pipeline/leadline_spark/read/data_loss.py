"""Whether what a stream was about to read is still there, and what to do where it is not.

Three things take records away: retention, an unclean election, and the deletion of a topic, after
which one of the same name may be there. Each is noticed before anything is read in its place.
"""

from __future__ import annotations

import logging

from leadline_client.wire import TopicPartition
from leadline_spark.errors import LeadlineSparkError
from leadline_spark.read.offset_fetcher import OffsetFetcher, OffsetSnapshot
from leadline_spark.read.offsets import UNKNOWN_EPOCH, OffsetAndEpoch, SourceOffset

logger = logging.getLogger(__name__)


class DataLossChecker:
    """Fails on losses, or says so in the log and goes on behind them."""

    def __init__(self, fetcher: OffsetFetcher, *, fail: bool) -> None:
        self._fetcher = fetcher
        self._fail = fail
        self._ends: dict[tuple[TopicPartition, int, int], int] = {}

    def start_offsets(
        self, start: SourceOffset, snapshot: OffsetSnapshot, end: SourceOffset | None = None
    ) -> dict[TopicPartition, int]:
        """Return where each partition of the snapshot is read on; one that is new begins at earliest.

        What a new one has lost before is a loss too, as in Kafka's source.

        `end` is where a micro-batch that was planned before ends. Raises LeadlineSparkError:
        LEADLINE_DATA_LOSS, LEADLINE_TOPIC_RECREATED.
        """
        wanted = snapshot.ends if end is None else end.positions
        for topic_partition in sorted({*start.positions, *wanted} - set(snapshot.ends)):
            self.lose(f"{topic_partition} was to be read on, but is gone")
        found = {}
        for topic_partition in wanted:
            if topic_partition not in snapshot.ends:
                continue
            if end is not None and self._recreated(end, topic_partition, snapshot):
                continue
            found[topic_partition] = self._begin(start, topic_partition, snapshot)
        return found

    def lose(self, what: str, code: str = "LEADLINE_DATA_LOSS") -> None:
        """Fail with this, or log it."""
        if self._fail:
            advice = "To go on without these records set failOnDataLoss to false."
            raise LeadlineSparkError(code, f"{what}. {advice}")
        logger.warning("%s: %s", code, what)

    def _begin(
        self, start: SourceOffset, topic_partition: TopicPartition, snapshot: OffsetSnapshot
    ) -> int:
        at = snapshot.ends[topic_partition]
        position = start.positions.get(topic_partition)
        if position is None:
            if at.start > 0:
                self.lose(
                    f"{topic_partition} is new and begins at {at.start}: what was before is deleted"
                )
            return at.start
        if self._recreated(start, topic_partition, snapshot):
            return at.start
        if position.offset < at.start:
            gone = f"offsets {position.offset} to {at.start - 1} were deleted"
            self.lose(f"{topic_partition} begins at {at.start}: {gone}")
            return at.start
        cut = self._cut(topic_partition, position, snapshot)
        if cut is not None:
            why = f"an election in epoch {at.leader.epoch} cut off what is beyond {cut}"
            self.lose(f"{topic_partition} was read up to {position.offset}, but {why}")
            return max(at.start, cut)
        if position.offset > at.end and position.epoch <= at.leader.epoch:
            # What was committed once stays before the end, which leaders tell when they know it.
            self.lose(
                f"{topic_partition} ends at {at.end}, but is to be read on from {position.offset}"
            )
            return at.end
        return position.offset

    def _recreated(
        self, offset: SourceOffset, topic_partition: TopicPartition, snapshot: OffsetSnapshot
    ) -> bool:
        known = offset.ids.get(topic_partition.topic)
        if known is None or known == snapshot.ids[topic_partition]:
            return False
        message = f"{topic_partition.topic} was deleted and made anew: its id was {known}"
        self.lose(f"{message}, is {snapshot.ids[topic_partition]}", "LEADLINE_TOPIC_RECREATED")
        return True

    def _cut(
        self, topic_partition: TopicPartition, position: OffsetAndEpoch, snapshot: OffsetSnapshot
    ) -> int | None:
        """Return where the log was cut below a position, None where it was not (KIP-320).

        A partition that was removed and added again has later epochs only, from its first offset.
        """
        leader = snapshot.ends[topic_partition].leader
        epoch = leader.epoch
        if position.epoch == UNKNOWN_EPOCH or position.epoch >= epoch:
            return None
        asked = topic_partition, position.epoch, epoch
        if asked not in self._ends:
            self._ends[asked] = self._fetcher.end_of_epoch(
                topic_partition, position.epoch, leader.url
            )
        end = self._ends[asked]
        return end if end < position.offset else None
