"""The words for reassignments: in intents, decisions, audit entries and the API.

The decisions themselves are the controller's (`leadline_controller.domain.reassignment`).
"""

from __future__ import annotations

from enum import StrEnum


class ReassignmentAlgorithm(StrEnum):
    """How a partition gets from its replicas to the target (KIP-435).

    `incremental` adds and drops a few replicas per step, `legacy` all of them in one.
    """

    INCREMENTAL = "incremental"
    LEGACY = "legacy"


class ReassignmentPhase(StrEnum):
    """How far the reassignment of one partition is.

    `init`: no step runs. `waiting`: the partition has no live leader, so nothing
    may be done. `expanding`: the replicas that the step adds are catching up.
    `shrinking`: they are in sync; the leader moves, the dropped ones go.
    `cancelling`: replicas are being added that the target no longer wants.
    `done`: the replicas are the target.
    """

    INIT = "init"
    WAITING = "waiting"
    EXPANDING = "expanding"
    SHRINKING = "shrinking"
    CANCELLING = "cancelling"
    DONE = "done"


class WaitReason(StrEnum):
    """Why a reassignment does not go on by itself.

    `partition_offline`: no live leader. `target_offline`: a broker of the target
    is down. `catching_up`: replicas are not in sync yet. `leader_limit`: the leader
    would move, and `reassignment.max.concurrent.leader.movements` others do already.
    """

    PARTITION_OFFLINE = "partition_offline"
    TARGET_OFFLINE = "target_offline"
    CATCHING_UP = "catching_up"
    LEADER_LIMIT = "leader_limit"


class PlanKind(StrEnum):
    """What a plan for replicas is for.

    `balance`: equally many on all brokers. `expand`: new brokers get their share, the
    others only give. `drain`: brokers give everything, the others only take.
    """

    BALANCE = "balance"
    EXPAND = "expand"
    DRAIN = "drain"
