"""How far a partition is committed (rule R5)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from leadline_broker.domain.isr import UNKNOWN_END, FollowerProgress


def committed_end(
    members: Iterable[int],
    progress: Mapping[int, FollowerProgress],
    *,
    leader: int,
    leader_end: int,
) -> int:
    """Return the least end over `members`: every record below it is on all of them.

    Answers `UNKNOWN_END` while a member has not reconciled in this leader epoch.
    """
    return min(
        leader_end
        if broker == leader
        else (follower.end if (follower := progress.get(broker)) else UNKNOWN_END)
        for broker in members
    )
