"""Two consumers of one instance at a time: the later one replaces the earlier one (KIP-345)."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from tests.runtime_simulation.plan import DUPLICATE, HORIZON_S, Fault, Plan, in_order


def with_duplicate_instances(plan: Plan, random: Random) -> Plan:
    """Let second consumers of instances join in six of ten plans with a group."""
    if plan.group is None or random.random() >= 0.6:
        return plan
    joins = [
        Fault(
            random.uniform(0.5, HORIZON_S),
            DUPLICATE,
            random.randrange(6),
            random.uniform(0.2, 3.0),
            random.randrange(1 << 16),
        )
        for _ in range(random.randint(1, 4))
    ]
    return replace(
        plan,
        group=replace(plan.group, static=True, instance_secrets=True),
        faults=in_order([*plan.faults, *joins]),
    )
