"""Algorithms, phases and reasons of reassignments, as in intents, audit entries and the API.

The controller reassigns partitions (`leadline_controller.domain.reassignment`).
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
    """The phase of one partition's reassignment.

    `init`: no step is running. `waiting`: the partition has no live leader, so no step may start.
    `expanding`: the replicas that the step adds are catching up. `shrinking`: they are in sync; the
    leader moves and the dropped replicas are removed. `cancelling`: replicas that the target no
    longer contains are being added. `done`: the replicas are the target.
    """

    INIT = "init"
    WAITING = "waiting"
    EXPANDING = "expanding"
    SHRINKING = "shrinking"
    CANCELLING = "cancelling"
    DONE = "done"


class WaitReason(StrEnum):
    """What a reassignment waits for.

    `partition_offline`: there is no live leader. `target_offline`: a broker of the target is down.
    `catching_up`: replicas are not in sync yet. `leader_limit`: the leader would move, and
    `reassignment.max.concurrent.leader.movements` others are moving already.
    """

    PARTITION_OFFLINE = "partition_offline"
    TARGET_OFFLINE = "target_offline"
    CATCHING_UP = "catching_up"
    LEADER_LIMIT = "leader_limit"


class ThrottleBound(StrEnum):
    """What limits the rate at which a task moves replicas.

    `own`: its own throttle. `cluster_ceiling`: `reassignment.throttle.bytes.per.s`, which all tasks
    share. `healing_ceiling`: `failed.broker.throttle.bytes.per.s`, which healing tasks share.
    """

    OWN = "own"
    CLUSTER_CEILING = "cluster_ceiling"
    HEALING_CEILING = "healing_ceiling"


class PlanKind(StrEnum):
    """The goal of a plan for replicas.

    `balance`: equal numbers on all brokers. `expand`: move a share of the replicas to new brokers,
    and none between the others. `drain`: move all replicas off some brokers.
    """

    BALANCE = "balance"
    EXPAND = "expand"
    DRAIN = "drain"
