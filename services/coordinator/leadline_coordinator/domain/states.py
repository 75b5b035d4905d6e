"""The states of a group, and which may follow which."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class GroupState(StrEnum):
    """What a group is doing."""

    EMPTY = "empty"
    RECOVERING = "recovering"
    JOINING = "joining"
    STOPPING = "stopping"
    RECORDING = "recording"
    STARTING = "starting"
    STABLE = "stable"
    FAILED = "failed"


_SETTLED: Final = {GroupState.STABLE, GroupState.EMPTY}
_ROUND: Final = {GroupState.STOPPING, GroupState.RECORDING, GroupState.STARTING}

LEGAL_MOVES: Final[dict[GroupState, set[GroupState]]] = {
    GroupState.EMPTY: {GroupState.JOINING, GroupState.RECORDING},
    GroupState.RECOVERING: _ROUND | _SETTLED,
    GroupState.JOINING: _ROUND | _SETTLED,
    GroupState.STOPPING: {GroupState.RECORDING, GroupState.STARTING} | _SETTLED,
    GroupState.RECORDING: {GroupState.STOPPING, GroupState.STARTING} | _SETTLED,
    GroupState.STARTING: _ROUND | _SETTLED | {GroupState.FAILED},
    GroupState.STABLE: _ROUND | _SETTLED,
    GroupState.FAILED: _ROUND | _SETTLED,
}
"""`recovering`: taken over, awaiting its members; `joining`: was empty, awaiting more of them.

A rebalance goes through `stopping`, `recording` and `starting`, leaving out what there
is no need for, and ends `stable` or `empty`, or `failed` when members did not answer.
"""


class IllegalMove(Exception):
    """A fault of the decisions: a group was to go where it cannot."""


def check_move(before: GroupState, after: GroupState) -> None:
    """Refuse an illegal move; to stay is none.

    Raises:
        IllegalMove: `after` does not follow `before`.

    """
    if after is not before and after not in LEGAL_MOVES[before]:
        raise IllegalMove(f"a group that is {before} cannot become {after}")
