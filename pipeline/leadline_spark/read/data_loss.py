"""Detection of records that a stream has not read and that are gone.

Records go by retention, by an unclean election, and by the deletion of a topic, after which another
topic of the same name may exist. Each is detected before other records are read in their place.
"""

from __future__ import annotations

import logging
from dataclasses import KW_ONLY, dataclass, field

from leadline_client.wire import TopicPartition
from leadline_spark.errors import LeadlineSparkError
from leadline_spark.read.offset_fetcher import OffsetFetcher, OffsetSnapshot
from leadline_spark.read.offsets import UNKNOWN_EPOCH, OffsetAndEpoch, SourceOffset

logger = logging.getLogger(__name__)


def report_loss(
    message: str,
    *,
    fail: bool,
    code: str = "LEADLINE_DATA_LOSS",
    choice: str = "To go on without these records",
) -> None:
    """Raise LeadlineSparkError with this code, or log a warning unless `fail`."""
    if fail:
        raise LeadlineSparkError(code, f"{message}. {choice} set failOnDataLoss to false.")
    logger.warning("%s: %s", code, message)


@dataclass(frozen=True, slots=True)
class DataLossChecker:
    """Finds lost records. Raises if `fail`, otherwise logs a warning and skips them."""

    fetcher: OffsetFetcher
    _: KW_ONLY
    fail: bool
    _epoch_ends: dict[tuple[TopicPartition, int, int], int] = field(default_factory=dict)

    def start_offsets(
        self, start: SourceOffset, snapshot: OffsetSnapshot, end: SourceOffset | None = None
    ) -> dict[TopicPartition, int]:
        """Return the offset at which each partition continues; a new one starts at earliest.

        As in Kafka's source, it is a loss too if a new partition no longer begins at offset 0.

        `end` is the end of a micro-batch that was planned before. Raises LeadlineSparkError:
        LEADLINE_DATA_LOSS, LEADLINE_TOPIC_RECREATED.
        """
        wanted = snapshot.offsets if end is None else end.positions
        for topic_partition in sorted({*start.positions, *wanted} - set(snapshot.offsets)):
            self.report(f"{topic_partition} was to be read on, but is gone")
        found = {}
        for topic_partition in wanted:
            if topic_partition not in snapshot.offsets:
                continue
            if end is not None and self._is_recreated(end, topic_partition, snapshot):
                continue
            found[topic_partition] = self._start(start, topic_partition, snapshot)
        return found

    def end_left(
        self, target: SourceOffset, topic_partition: TopicPartition, snapshot: OffsetSnapshot
    ) -> int:
        """Return where a run ends that was to read up to `target`: sooner if that is lost.

        Raises as `start_offsets` does.
        """
        at, position = snapshot.offsets[topic_partition], target.positions[topic_partition]
        if position.offset <= at.end:
            return position.offset
        if self._is_recreated(target, topic_partition, snapshot):
            return at.end
        cut = self._truncated_to(topic_partition, position, snapshot)
        if cut is None:
            return position.offset
        why = f"an election in epoch {at.leader.epoch} cut off what is beyond {cut}"
        self.report(f"{topic_partition} was to be read up to {position.offset}, but {why}")
        return cut

    def report(self, message: str, code: str = "LEADLINE_DATA_LOSS") -> None:
        """Raise or log a loss."""
        report_loss(message, fail=self.fail, code=code)

    def _start(
        self, start: SourceOffset, topic_partition: TopicPartition, snapshot: OffsetSnapshot
    ) -> int:
        at = snapshot.offsets[topic_partition]
        position = start.positions.get(topic_partition)
        if position is None:
            if at.start > 0:
                new = f"{topic_partition} is new and begins at {at.start}"
                self.report(f"{new}: what was before is deleted")
            return at.start
        if self._is_recreated(start, topic_partition, snapshot):
            return at.start
        if position.offset < at.start:
            gone = f"offsets {position.offset} to {at.start - 1} were deleted"
            self.report(f"{topic_partition} begins at {at.start}: {gone}")
            return at.start
        cut = self._truncated_to(topic_partition, position, snapshot)
        if cut is not None:
            why = f"an election in epoch {at.leader.epoch} cut off what is beyond {cut}"
            self.report(f"{topic_partition} was read up to {position.offset}, but {why}")
            return max(at.start, cut)
        if position.offset > at.end and position.epoch <= at.leader.epoch:
            # A leader reports an end only when it knows the high watermark, which never goes back.
            ends = f"{topic_partition} ends at {at.end}"
            self.report(f"{ends}, but is to be read from {position.offset} on")
            return at.end
        return position.offset

    def _is_recreated(
        self, offset: SourceOffset, topic_partition: TopicPartition, snapshot: OffsetSnapshot
    ) -> bool:
        known, found = offset.ids.get(topic_partition.topic), snapshot.ids[topic_partition]
        if known is None or known == found:
            return False
        message = f"{topic_partition.topic} was deleted and recreated: its id was {known}"
        self.report(f"{message}, is {found}", "LEADLINE_TOPIC_RECREATED")
        return True

    def _truncated_to(
        self, topic_partition: TopicPartition, position: OffsetAndEpoch, snapshot: OffsetSnapshot
    ) -> int | None:
        """Return where the log was truncated below a position, None if it was not (KIP-320).

        A partition that was removed and added again has only later epochs, from its first offset.
        """
        leader = snapshot.offsets[topic_partition].leader
        if position.epoch == UNKNOWN_EPOCH or position.epoch >= leader.epoch:
            return None
        key = topic_partition, position.epoch, leader.epoch
        if key not in self._epoch_ends:
            self._epoch_ends[key] = self.fetcher.end_of_epoch(
                topic_partition, position.epoch, leader.url
            )
        end = self._epoch_ends[key]
        return end if end < position.offset else None
