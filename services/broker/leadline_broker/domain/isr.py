"""When the ISR of a partition shrinks or grows (rule R6), and what it has committed (rule R5).

Pure functions of the progress that the leader has recorded for its followers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from leadline_common.directories import FIRST_DIRECTORY_EPOCH

UNKNOWN_END = -1
NO_INCARNATION = -1


@dataclass(slots=True)
class FollowerProgress:
    """The progress of one follower in the current leader epoch.

    `end` is the durable end that the follower stated after it reconciled in this
    epoch, and `UNKNOWN_END` before that. Times are monotonic milliseconds. A follower that
    is `leaving` is about to stop and may no longer join the ISR. `directory_epoch` is that of the
    log directory which it fetches into (rule R17).
    """

    incarnation: int = NO_INCARNATION
    end: int = UNKNOWN_END
    last_nonce: int = -1
    last_fetch_ms: int = 0
    log_end_at_last_fetch: int = 0
    last_caught_up_ms: int = 0
    leaving: bool = False
    directory_epoch: int = FIRST_DIRECTORY_EPOCH

    def on_fetch(self, end: int, log_end_offset: int, now: int) -> None:
        """Record a reconciled fetch from `end` while the leader's log ended at `log_end_offset`."""
        if end >= log_end_offset:
            self.last_caught_up_ms = now
        elif end >= self.log_end_at_last_fetch:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.end = end
        self.last_fetch_ms = now
        self.log_end_at_last_fetch = log_end_offset


def lagging_members(
    isr: Iterable[int],
    progress: Mapping[int, FollowerProgress],
    *,
    log_end_offset: int,
    now: int,
    lag_time_max_ms: int,
) -> tuple[int, ...]:
    """Return the ISR members that have not been caught up for too long.

    A follower that holds the whole log is caught up, however long ago it fetched: if its
    broker has failed, the controller removes it.
    """
    return tuple(
        broker
        for broker in isr
        if (follower := progress.get(broker)) is not None
        and follower.end < log_end_offset
        and now - follower.last_caught_up_ms > lag_time_max_ms
    )


def may_join(follower: FollowerProgress, *, high_watermark: int, epoch_start: int) -> bool:
    """Return whether a follower holds every record that is, or may have been, committed.

    An earlier leader may have committed records up to the epoch start without this leader
    knowing, so the high watermark alone would lose records.
    """
    return follower.end >= max(high_watermark, epoch_start)


def may_change_with_time(
    isr: Collection[int],
    progress: Mapping[int, FollowerProgress],
    *,
    log_end_offset: int,
    epoch_start: int,
) -> bool:
    """Return whether the ISR can change without a fetch or an append, once all is committed.

    It can while a member is not known to hold the whole log, or another follower may join. A
    follower that does not fetch, because its broker is down, needs no attention until it does.
    """
    return any(
        follower.end < log_end_offset
        if broker in isr
        else may_join(follower, high_watermark=log_end_offset, epoch_start=epoch_start)
        for broker, follower in progress.items()
    )


def committed_end(
    members: Iterable[int],
    progress: Mapping[int, FollowerProgress],
    *,
    leader: int,
    leader_end: int,
) -> int:
    """Return the lowest end of `members`: all of them hold every record below it (rule R5).

    The result is `UNKNOWN_END` while a member has not reconciled in this leader epoch.
    """
    return min(
        leader_end
        if broker == leader
        else (follower.end if (follower := progress.get(broker)) else UNKNOWN_END)
        for broker in members
    )
