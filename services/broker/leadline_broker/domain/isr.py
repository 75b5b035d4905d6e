"""When the in-sync replicas of a partition should shrink or grow (rule R6).

Pure functions over what the leader knows of its followers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

UNKNOWN_END = -1
NO_INCARNATION = -1


@dataclass(slots=True)
class FollowerProgress:
    """What the leader knows of one follower in the present leader epoch.

    `end` is the fsynced end that the follower stated after it reconciled in this
    epoch, `UNKNOWN_END` before that. Times are monotonic milliseconds. Who is `leaving`
    is about to stop, and joins no ISR any more.
    """

    incarnation: int = NO_INCARNATION
    end: int = UNKNOWN_END
    last_nonce: int = -1
    last_fetch_ms: int = 0
    log_end_at_last_fetch: int = 0
    last_caught_up_ms: int = 0
    leaving: bool = False

    def on_fetch(self, end: int, log_end_offset: int, now: int) -> None:
        """Note a reconciled fetch from `end` while the leader's log ended at `log_end_offset`."""
        if end >= log_end_offset:
            self.last_caught_up_ms = now
        elif end >= self.log_end_at_last_fetch:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.end = end
        self.last_fetch_ms = now
        self.log_end_at_last_fetch = log_end_offset


def isr_floor(min_insync_replicas: int, assigned: Iterable[int]) -> int:
    """Return the ISR size below which nothing commits: min(min.insync.replicas, |AR|)."""
    return min(min_insync_replicas, len(tuple(assigned)))


def lagging_members(
    isr: Iterable[int],
    progress: Mapping[int, FollowerProgress],
    *,
    log_end_offset: int,
    now: int,
    lag_time_max_ms: int,
) -> tuple[int, ...]:
    """Return the ISR members that have not been caught up for too long.

    A follower that holds the whole log is caught up, however long ago it asked:
    if its broker is gone, the controller says so.
    """
    return tuple(
        broker
        for broker in isr
        if (follower := progress.get(broker)) is not None
        and follower.end < log_end_offset
        and now - follower.last_caught_up_ms > lag_time_max_ms
    )


def may_join(follower: FollowerProgress, *, high_watermark: int, epoch_start: int) -> bool:
    """Tell whether a follower holds all that is, or may have been, committed.

    The epoch start matters because an earlier leader may have committed up to
    it, unknown to this one (KIP-101's successor rule; the high watermark alone loses records).
    """
    return follower.end >= max(high_watermark, epoch_start)


def eligible_after(
    isr: tuple[int, ...],
    removed: tuple[int, ...],
    eligible: tuple[int, ...],
    floor: int,
) -> tuple[int, ...]:
    """Return the former members to remember with a new ISR (rule R14, KIP-966).

    While the ISR is below the floor nothing commits, so those who left since
    then still hold every committed record.
    """
    if len(isr) >= floor:
        return ()
    return tuple(sorted((set(eligible) | set(removed)) - set(isr)))
