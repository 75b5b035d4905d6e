"""Whether a consumer can have read up to an offset: the end of the log, and its leader epoch.

An end that a leader has reported never counts less later. An unclean election may truncate the log
below it, but what a consumer reads before that, it has really read; its next fetch tells it.
"""

from __future__ import annotations

from dataclasses import dataclass

from leadline_client.errors import LeaderNotAvailable, LeadlineError, OffsetOutOfRange
from leadline_client.wire import TopicPartition


@dataclass(frozen=True, slots=True)
class LogPoint:
    """A point in the log of one topic: an end, or the offset and epoch of a commit.

    `leader_epoch` is -1 if the commit has none.
    """

    topic_id: str
    offset: int
    leader_epoch: int


def is_within(point: LogPoint, end: LogPoint | None) -> bool:
    """Tell whether a point is certainly in a log that reaches to `end`; None: nothing is known.

    Every log reaches to offset 0, and a commit of 0 has no record, and so no epoch, before it.
    """
    if end is None or end.topic_id != point.topic_id:
        return point.offset == 0 and point.leader_epoch < 0
    return point.offset <= end.offset and point.leader_epoch <= end.leader_epoch


def later(known: LogPoint | None, reported: LogPoint) -> LogPoint:
    """Return what is known of a log's end after a leader's report."""
    if known is None or known.topic_id != reported.topic_id:
        return reported
    return LogPoint(
        reported.topic_id,
        max(known.offset, reported.offset),
        max(known.leader_epoch, reported.leader_epoch),
    )


def refusal(one: TopicPartition, point: LogPoint, end: LogPoint | None) -> LeadlineError:
    """Return why a point that is not in its log may not be committed.

    `end` is what the leader has just reported, None if it did not answer.
    """
    if end is None:
        return LeaderNotAvailable(
            f"the leader of {one} does not answer, and offset {point.offset} is beyond the end "
            "that is known: try again"
        )
    if point.offset > end.offset:
        return OffsetOutOfRange(f"{one} ends at {end.offset}: offset {point.offset} is beyond it")
    return OffsetOutOfRange(
        f"{one} is in leader epoch {end.leader_epoch}: no record has epoch {point.leader_epoch}"
    )
