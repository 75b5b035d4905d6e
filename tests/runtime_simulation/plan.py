"""Plans of faults: what goes wrong when, and how unreliable network and ZooKeeper are meanwhile.

A plan is data, so that a failing run can be repeated with parts of its plan left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final, Literal

from tests.runtime_simulation.network import NetworkWeather
from tests.runtime_simulation.zookeeper import ZooKeeperWeather

HORIZON_S: Final = 6.0
"""Faults begin within this time after the topic exists."""

KINDS: Final = (
    "kill",
    "power cut",
    "power cut of all",
    "freeze",
    "cut from ZooKeeper",
    "ZooKeeper connection lost",
    "isolate",
    "one-way cut",
    "kill controller",
    "freeze controller",
    "cut controller from ZooKeeper",
    "cut controller from brokers",
    "second controller",
    "fsync fails",
    "disk full",
    "no quorum",
    "wiped disk",
    "power cut of all at an acknowledgement",
    "leader killed at an acknowledgement",
    "clean restart",
    "preferred leaders elected",
    "growing ISR ambushed",
)


GROUP_KINDS: Final = (
    "kill coordinator",
    "freeze coordinator",
    "cut coordinator from ZooKeeper",
    "cut coordinator from brokers",
    "second coordinator",
    "kill member",
    "freeze member",
    "member leaves",
    "member joins",
    "cut member from coordinators",
    "one-way cut of a member",
)
"""What happens to a consumer group, and to the coordinators."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: when (s), what, to whom, and for how long (s); `choice` decides on the rest."""

    at_s: float
    kind: str
    target: int
    for_s: float
    choice: int = 0

    def __str__(self) -> str:
        return f"at {self.at_s:.3f} s {self.kind}, target {self.target}, for {self.for_s:.3f} s"


STRAY_GRACE_MS: Final = 3_000
"""Long enough to restore a stray, and short enough to see that it is deleted."""

DELETE, ADD, REASSIGN, CANCEL = (
    "topic deleted and created again",
    "partitions added",
    "replicas reassigned",
    "reassignment cancelled",
)
ACTIONS: Final = (DELETE, ADD, REASSIGN, CANCEL)
"""What operators do."""


@dataclass(frozen=True, slots=True)
class Action:
    """One request of an operator: when (s), what, and to which topic and partition.

    `choice` decides on the rest.
    """

    at_s: float
    kind: str
    topic: int
    partition: int
    choice: int = 0

    def __str__(self) -> str:
        return f"at {self.at_s:.3f} s {self.kind}, topic {self.topic}, partition {self.partition}"


@dataclass(frozen=True, slots=True)
class Group:
    """A consumer group of one topic, whose producers are the client library's, too."""

    coordinators: int = 2
    members: int = 2
    partitions: int = 2
    producers: int = 1
    protocol: Literal["eager", "cooperative"] = "cooperative"


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole run: its size, its load, its faults, what operators do, and its weather.

    `replication_factor` 0 means replicas on all brokers.
    """

    brokers: int = 3
    controllers: int = 2
    partitions: int = 2
    producers: int = 1
    pause_s: float = 0.1
    faults: tuple[Fault, ...] = ()
    actions: tuple[Action, ...] = ()
    group: Group | None = None
    topics: int = 1
    replication_factor: int = 0
    stray_grace_ms: int = 24 * 3_600_000
    slow_disk_s: float = 0.004
    network: NetworkWeather = field(default_factory=NetworkWeather)
    zookeeper: ZooKeeperWeather = field(default_factory=ZooKeeperWeather)


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
        faults=tuple(sorted(faults, key=lambda fault: fault.at_s)),
        slow_disk_s=random.choice((0.004, 0.004, 0.05, 0.3)),
        network=_network(random),
        zookeeper=_zookeeper(random),
    )
    administered = _administered(plan, Random(f"administration {seed}"))
    return _with_group(administered, Random(f"group {seed}"))


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
        faults=tuple(sorted([*kept, *faults], key=lambda fault: fault.at_s)),
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
        actions=tuple(sorted(actions, key=lambda action: action.at_s)),
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


def smaller(plan: Plan) -> list[Plan]:
    """Return the plans that lack one thing each."""
    found = [
        replace(plan, faults=plan.faults[:index] + plan.faults[index + 1 :])
        for index in range(len(plan.faults))
    ]
    found += [
        replace(plan, actions=plan.actions[:index] + plan.actions[index + 1 :])
        for index in range(len(plan.actions))
    ]
    calmer = [
        replace(plan, network=NetworkWeather()),
        replace(plan, zookeeper=ZooKeeperWeather()),
        *(replace(plan, network=replace(plan.network, **{n: 0.0})) for n in _NETWORK),
        *(replace(plan, zookeeper=replace(plan.zookeeper, **{n: 0.0})) for n in _ZOOKEEPER),
        replace(plan, slow_disk_s=0.004),
        replace(plan, topics=1),
        replace(plan, partitions=1),
        replace(plan, producers=1),
        replace(plan, controllers=1),
        *_smaller_groups(plan),
    ]
    return found + [each for each in calmer if each != plan]


def _smaller_groups(plan: Plan) -> list[Plan]:
    group = plan.group
    if group is None:
        return []
    less = [
        replace(group, members=1),
        replace(group, coordinators=1),
        replace(group, partitions=1),
        replace(group, producers=1),
    ]
    return [replace(plan, group=each) for each in (None, *less)]


_NETWORK: Final = ("loss", "repeat", "late")
_ZOOKEEPER: Final = ("slow", "break_before", "break_after", "lag_s")
