"""Kinds of faults and actions of plans from seed 74,000 on, see `additions.py`."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Final

from tests.runtime_simulation.plan import (
    CLOCKS,
    CUT_OFF,
    DELETE,
    DELETE_GROUP,
    DIES,
    FLIP,
    HORIZON_S,
    KINDS,
    LATE_COMMIT,
    LATE_POLL,
    MIN_INSYNC,
    RECREATE,
    REMOVE,
    REPLACE,
    RESET,
    STRAY_GRACE_MS,
    UNCLEAN,
    Action,
    Fault,
    Plan,
    Retention,
    in_order,
)

_UNSEEN: Final = ("kill coordinator", "cut coordinator from ZooKeeper", "freeze coordinator")
_LATE: Final = (LATE_COMMIT, LATE_POLL, "freeze member", "cut member from coordinators")


def with_replaced_partitions(plan: Plan, random: Random) -> Plan:
    """Let operators remove a partition that a group reads, and add it again, in most such plans.

    Often no coordinator looks meanwhile, a member commits late, or one dies, so that another one
    begins where it has committed. The topic stays, and nobody sets the group back.
    """
    recreates = any(action.kind == RECREATE for action in plan.actions)
    if plan.group is None or random.random() >= (0.5 if recreates else 0.9):
        return plan
    times = [random.uniform(0.7, HORIZON_S - 0.5) for _ in range(random.randint(1, 3))]
    actions = [Action(at_s, REPLACE, 0, 0, random.randrange(1 << 16)) for at_s in times]
    faults = [
        Fault(
            max(0.0, at_s + random.uniform(-0.5, 0.2)),
            random.choice(kinds),
            random.randrange(6),
            random.uniform(0.3, 3.0),
            random.randrange(1 << 16),
        )
        for at_s in times
        for kinds in (_UNSEEN, _LATE, ("kill member",))
        if random.random() < 0.7
    ]
    kept = [fault for fault in plan.faults if fault.kind not in (RESET, DELETE_GROUP)]
    others = [action for action in plan.actions if action.kind != RECREATE]
    group = replace(
        plan.group,
        partitions=max(plan.group.partitions, 2),
        polled=max(plan.group.polled, 1),
        replaced=True,
    )
    return replace(
        plan,
        group=group,
        stray_grace_ms=STRAY_GRACE_MS,
        actions=in_order([*others, *actions]),
        faults=in_order([*kept, *faults]),
    )


def with_unclean_elections(plan: Plan, random: Random) -> Plan:
    """Let ISRs be lost, and operators elect uncleanly, in seven of ten plans that lose no disk.

    Mostly one in-sync replica is enough to acknowledge records: otherwise those that left the ISR
    have all of them. Few of the oldest kinds of faults stay, which would leave no time for it.
    """
    kinds = {fault.kind for fault in plan.faults}
    if not kinds.isdisjoint((FLIP, DIES)) or random.random() >= 0.7:
        return plan
    elections = [
        Fault(
            random.uniform(0.3, 2.0),
            UNCLEAN,
            random.randrange(6),
            random.uniform(2.5, 6.0),
            random.randrange(1 << 16),
        )
        for _ in range(random.choice((1, 1, 2)))
    ]
    old = [one for one in plan.faults if one.kind in KINDS and one.kind != "wiped disk"]
    kept = random.sample(old, min(len(old), random.randint(0, 2)))
    newer = [one for one in plan.faults if one.kind not in KINDS]
    one_is_enough = [Action(0.05, MIN_INSYNC, topic, 0, 0) for topic in range(plan.topics)]
    if random.random() < 0.2:
        one_is_enough = []
    return replace(
        plan,
        brokers=max(plan.brokers, 3),
        publishes=False,
        horizon_s=max(plan.horizon_s, 10.0),
        actions=in_order([*plan.actions, *one_is_enough]),
        faults=in_order([*kept, *newer, *elections]),
    )


_NEW_CONTROLLER: Final = ("kill controller", "second controller", "cut controller from ZooKeeper")


def with_several_wrong_clocks(plan: Plan, random: Random) -> Plan:
    """Set several wall clocks at once in six of ten plans; mostly another controller is elected.

    It does not know the clocks of the brokers yet. Most of these plans keep records by their age.
    """
    if random.random() >= 0.6:
        return plan
    faults = []
    for _ in range(random.choice((1, 1, 2))):
        at_s, for_s = random.uniform(0.0, HORIZON_S - 1.0), random.uniform(0.5, 4.0)
        faults.append(Fault(at_s, CLOCKS, 0, for_s, random.randrange(1 << 16)))
        if random.random() < 0.8:
            elected_s, kind = at_s + random.uniform(0.0, for_s), random.choice(_NEW_CONTROLLER)
            away_s, choice = random.uniform(0.1, 1.5), random.randrange(1 << 16)
            faults.append(Fault(elected_s, kind, random.randrange(2), away_s, choice))
    bits_flip = any(fault.kind == FLIP for fault in plan.faults)
    if not bits_flip and random.random() < 0.7:
        retention = Retention(-1, random.choice((60, 1_800)) * 1000)
        plan = replace(plan, pause_s=0.03, retention=retention)
    return replace(plan, faults=in_order([*plan.faults, *faults]))


def with_deletions_of_published(plan: Plan, random: Random) -> Plan:
    """Let operators delete topics to which applications publish, in four of ten plans.

    No partition is removed then, and nobody elects uncleanly: a publish names neither a topic id
    nor a leader epoch, and an application does not know what was lost.
    """
    if random.random() >= 0.4:
        return plan
    deletions = [
        Action(random.uniform(0.3, HORIZON_S - 0.5), DELETE, 0, 0, random.randrange(1 << 16))
        for _ in range(random.randint(1, 3))
    ]
    return replace(
        plan,
        publishes=True,
        pause_s=min(plan.pause_s, 0.1),
        stray_grace_ms=STRAY_GRACE_MS,
        actions=in_order([*(one for one in plan.actions if one.kind != REMOVE), *deletions]),
        faults=in_order(one for one in plan.faults if one.kind != UNCLEAN),
    )


def with_cut_off_controllers(plan: Plan, random: Random) -> Plan:
    """Cut the active controller off from all brokers in six of ten plans, not from ZooKeeper.

    Mostly a broker dies meanwhile, whose partitions need another leader. Who is cut off resigns
    soon, also when brokers that have just failed are still registered.
    """
    if random.random() >= 0.6:
        return plan
    cuts = [
        Fault(random.uniform(0.2, HORIZON_S - 1.0), CUT_OFF, 0, random.uniform(2.0, 5.0))
        for _ in range(random.choice((1, 1, 2)))
    ]
    deaths = [
        Fault(
            cut.at_s + random.uniform(0.0, 2.0),
            random.choice(("kill", "power cut", "freeze")),
            random.randrange(6),
            random.uniform(1.0, 4.0),
            random.randrange(1 << 16) | random.choice((0, 8)),
        )
        for cut in cuts
        if random.random() < 0.8
    ]
    return replace(
        plan,
        controllers=2,
        contact_timeout_ms=random.choice((1_000, 1_500, 3_000)),
        faults=in_order([*plan.faults, *cuts, *deaths]),
    )
