"""Kinds of faults and actions of plans from seed 74,000 on, see `additions.py`."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Final

from tests.runtime_simulation.plan import (
    CUT_OFF,
    DELETE_GROUP,
    HORIZON_S,
    LATE_COMMIT,
    LATE_POLL,
    RECREATE,
    REPLACE,
    RESET,
    STRAY_GRACE_MS,
    Action,
    Fault,
    Plan,
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
