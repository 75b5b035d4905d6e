"""Whether what a stream was about to read is still there, and what to do where it is not.

Three things take records away: retention, an unclean election, and the deletion of a topic, after
which one of the same name may be there. Each is noticed before anything is read in its place.
"""

from __future__ import annotations

import logging

from leadline_spark.errors import LeadlineSparkError
from leadline_spark.read.offset_fetcher import OffsetFetcher, View
from leadline_spark.read.offsets import UNKNOWN_EPOCH, Position, SourceOffset, TopicPartition

_LOG = logging.getLogger(__name__)


class DataLossChecker:
    """Fails on losses, or says so in the log and goes on behind them."""

    def __init__(self, heads: OffsetFetcher, *, fail: bool) -> None:
        self._heads = heads
        self._fail = fail
        self._ends: dict[tuple[TopicPartition, int, int], int] = {}

    def begins(
        self, start: SourceOffset, view: View, end: SourceOffset | None = None
    ) -> dict[TopicPartition, int]:
        """Return where each partition of the view is read on; one that is new begins at earliest.

        What a new one has lost before is a loss too, as in Kafka's source.

        `end` is where a micro-batch that was planned before ends. Raises LeadlineSparkError:
        LEADLINE_DATA_LOSS, LEADLINE_TOPIC_RECREATED.
        """
        wanted = view.ends if end is None else end.positions
        for place in sorted({*start.positions, *wanted} - set(view.ends)):
            self.lose(f"{place} was to be read on, but is gone")
        found = {}
        for place in wanted:
            if place not in view.ends:
                continue
            if end is not None and self._made_anew(end, place, view):
                continue
            found[place] = self._begin(start, place, view)
        return found

    def lose(self, what: str, code: str = "LEADLINE_DATA_LOSS") -> None:
        """Fail with this, or log it."""
        if self._fail:
            advice = "To go on without these records set failOnDataLoss to false."
            raise LeadlineSparkError(code, f"{what}. {advice}")
        _LOG.warning("%s: %s", code, what)

    def _begin(self, start: SourceOffset, place: TopicPartition, view: View) -> int:
        at = view.ends[place]
        position = start.positions.get(place)
        if position is None:
            if at.start > 0:
                self.lose(f"{place} is new and begins at {at.start}: what was before is deleted")
            return at.start
        if self._made_anew(start, place, view):
            return at.start
        if position.offset < at.start:
            gone = f"offsets {position.offset} to {at.start - 1} were deleted"
            self.lose(f"{place} begins at {at.start}: {gone}")
            return at.start
        cut = self._cut(place, position, view)
        if cut is not None:
            why = f"an election in epoch {at.leader.epoch} cut off what is beyond {cut}"
            self.lose(f"{place} was read up to {position.offset}, but {why}")
            return max(at.start, cut)
        if position.offset > at.end and position.epoch <= at.leader.epoch:
            # What was committed once stays before the end, which leaders tell when they know it.
            self.lose(f"{place} ends at {at.end}, but is to be read on from {position.offset}")
            return at.end
        return position.offset

    def _made_anew(self, offset: SourceOffset, place: TopicPartition, view: View) -> bool:
        known = offset.ids.get(place.topic)
        if known is None or known == view.ids[place]:
            return False
        told = f"{place.topic} was deleted and made anew: its id was {known}"
        self.lose(f"{told}, is {view.ids[place]}", "LEADLINE_TOPIC_RECREATED")
        return True

    def _cut(self, place: TopicPartition, position: Position, view: View) -> int | None:
        """Return where the log was cut below a position, None where it was not (KIP-320).

        A partition that was removed and added again has later epochs only, from its first offset.
        """
        leader = view.ends[place].leader
        epoch = leader.epoch
        if position.epoch == UNKNOWN_EPOCH or position.epoch >= epoch:
            return None
        asked = place, position.epoch, epoch
        if asked not in self._ends:
            self._ends[asked] = self._heads.end_of_epoch(place, position.epoch, leader.url)
        end = self._ends[asked]
        return end if end < position.offset else None
