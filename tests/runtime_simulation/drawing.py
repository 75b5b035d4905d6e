"""Draws the plan of a seed: its size, its faults, and how unreliable everything is meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from tests.runtime_simulation.additions import FIRST_WITH_ADDITIONS, with_additions
from tests.runtime_simulation.network import NetworkWeather
from tests.runtime_simulation.openings import OPENINGS
from tests.runtime_simulation.plan import (
    ACTIONS,
    GROUP_KINDS,
    HORIZON_S,
    KINDS,
    STRAY_GRACE_MS,
    Action,
    Fault,
    Group,
    Plan,
    in_order,
)
from tests.runtime_simulation.zookeeper import ZooKeeperWeather


def make_plan(seed: int) -> Plan:
    """Return the plan of a seed: the weights of the faults differ from seed to seed."""
    random = Random(f"plan {seed}")
    faults = _faults(random, KINDS, most=8)
    if random.random() < 0.3:
        faults += _ambush(random)
    plan = Plan(
        brokers=random.choice((2, 3, 3, 3)),
        controllers=random.choice((1, 2)),
        partitions=random.choice((1, 1, 2, 3)),
        producers=random.choice((1, 1, 2)),
        pause_s=random.choice((0.03, 0.1, 0.2)),
        faults=in_order(faults),
        slow_disk_s=random.choice((0.004, 0.004, 0.05, 0.3)),
        network=_network(random),
        zookeeper=_zookeeper(random),
    )
    administered = _administered(plan, Random(f"administration {seed}"))
    ordinary = _with_group(administered, Random(f"group {seed}"))
    plan = _with_opening(ordinary, Random(f"kind {seed}"))
    return plan if seed < FIRST_WITH_ADDITIONS else with_additions(plan, seed)


def _with_opening(plan: Plan, random: Random) -> Plan:
    """Have one plan of seven follow a directed opening; the others stay as they are."""
    if random.random() >= 1 / 7:
        return plan
    name = random.choice(sorted(OPENINGS))
    return replace(OPENINGS[name](random), opening=name)


def _kinds(random: Random, kinds: Sequence[str], *, most: int) -> list[str]:
    """Draw up to so many kinds, with weights that are drawn, too: some kinds never come."""
    weights = [random.choice((0, 1, 3)) for _ in kinds]
    if not any(weights):
        weights[0] = 1
    return random.choices(kinds, weights, k=random.randint(1, most))


def _faults(random: Random, kinds: Sequence[str], *, most: int) -> list[Fault]:
    return [
        Fault(
            random.uniform(0, HORIZON_S),
            kind,
            random.randrange(6),
            random.choice((random.uniform(0.02, 0.4), random.uniform(0.3, 4.0))),
            random.randrange(1 << 16),
        )
        for kind in _kinds(random, kinds, most=most)
    ]


def _with_group(plan: Plan, random: Random) -> Plan:
    """Add a consumer group, and what happens to it, to three plans of ten."""
    if random.random() >= 0.3:
        return plan
    faults = _faults(random, GROUP_KINDS, most=6)
    group = Group(
        coordinators=random.choice((1, 2, 2)),
        members=random.randint(1, 4),
        partitions=random.randint(1, 4),
        producers=random.choice((1, 2)),
        protocol=random.choice(("eager", "cooperative")),
    )
    # Brokers fail less often, or little else would be seen.
    kept = random.sample(plan.faults, min(len(plan.faults), random.randint(0, 3)))
    return replace(
        plan,
        brokers=max(plan.brokers, 3),
        producers=1,
        partitions=1,
        group=group,
        faults=in_order([*kept, *faults]),
    )


def _administered(plan: Plan, random: Random) -> Plan:
    """Let operators change topics in half of the plans; the other plans stay as they are."""
    if random.random() < 0.5:
        return plan
    actions = [
        Action(
            random.uniform(0, HORIZON_S),
            kind,
            random.randrange(2),
            random.randrange(3),
            random.randrange(1 << 16),
        )
        for kind in _kinds(random, ACTIONS, most=6)
    ]
    return replace(
        plan,
        brokers=random.choice((3, 4)),
        topics=random.choice((1, 2)),
        producers=1,
        replication_factor=random.choice((2, 3)),
        stray_grace_ms=STRAY_GRACE_MS,
        actions=in_order(actions),
    )


def _ambush(random: Random) -> list[Fault]:
    """Return an opening: a follower leaves the ISR, and everything goes wrong as it returns.

    Chance alone rarely produces this order of events.
    """
    target = random.randrange(6)
    return [
        Fault(random.uniform(0.1, 0.5), "freeze", target, random.uniform(1.8, 3.0)),
        Fault(random.uniform(1.5, 2.0), "growing ISR ambushed", target, random.uniform(0.3, 2.0)),
    ]


def _network(random: Random) -> NetworkWeather:
    if random.random() < 0.3:
        return NetworkWeather()
    return NetworkWeather(
        delay_s=random.choice((0.003, 0.03)),
        loss=random.choice((0, 0.01, 0.05)),
        repeat=random.choice((0, 0.02, 0.1)),
        late=random.choice((0, 0.02, 0.1)),
        late_s=random.choice((0.3, 1.5)),
    )


def _zookeeper(random: Random) -> ZooKeeperWeather:
    if random.random() < 0.3:
        return ZooKeeperWeather()
    return ZooKeeperWeather(
        delay_s=random.choice((0.002, 0.02)),
        slow=random.choice((0, 0.05)),
        break_before=random.choice((0, 0, 0.01)),
        break_after=random.choice((0, 0.01, 0.03)),
        lag_s=random.choice((0, 0.05, 0.3)),
    )
