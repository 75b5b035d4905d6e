"""Plans of faults: what goes wrong when, and how unreliable network and ZooKeeper are meanwhile.

A plan is data, so that a failing run can be repeated with parts of its plan left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeVar

from tests.runtime_simulation.network import NetworkWeather
from tests.runtime_simulation.zookeeper import ZooKeeperWeather

HORIZON_S: Final = 6.0
"""Faults begin within this time after the topic exists, and are healed then."""

DIES: Final = "a broker died for good"
FLIP: Final = "a bit flipped on a disk"
HANG: Final = "disk hangs"
SHORT: Final = "no space for files, or no descriptor"
CLOCK: Final = "a wall clock was set"
UNCLEAN: Final = "an ISR was lost, and an operator elected uncleanly"
CLOCKS: Final = "several wall clocks were set"
UNREADABLE: Final = "segments cannot be read"
EVICT: Final = "an operator evicted a member"
RESET: Final = "an operator reset the offsets of a group"
DELETE_GROUP: Final = "an operator deleted a group"
DUPLICATE: Final = "a second consumer of an instance joined"
LATE_POLL: Final = "a poll arrived late"
FORMER: Final = "a former coordinator's writes arrived late"
CUT_OFF: Final = "a controller was cut off from all brokers"
"""What happens in plans with additions only."""

GROWTH: Final = "growing ISR ambushed"
SHRUNKEN: Final = "one member of a shrunken ISR left"
AWAY_AND_BACK: Final = "leadership moved away and back"
REPLACED: Final = "controller replaced in a deletion"
BEHIND: Final = "leader behind its followers lost power"
LATE_COMMIT: Final = "a commit arrived late"
OLDER_COPY: Final = "copy of a disk"
AMBUSH_KINDS: Final = (SHRUNKEN, AWAY_AND_BACK, BEHIND, REPLACED, LATE_COMMIT)
"""What happens in openings only."""

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
    GROWTH,
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

MIN_INSYNC: Final = "min.insync.replicas changed"
RETAIN: Final = "retention changed"
REMOVE: Final = "partition removed"
RECREATE: Final = "topic of a group deleted and created again"
REPLACE: Final = "partition of a group removed and added again"
"""What operators do in plans with additions only."""


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


Timed = TypeVar("Timed", Fault, Action)


def in_order(events: Iterable[Timed]) -> tuple[Timed, ...]:
    """Return faults, or actions, in the order of their times."""
    return tuple(sorted(events, key=lambda event: event.at_s))


@dataclass(frozen=True, slots=True)
class Group:
    """A consumer group of one topic, whose producers are the client library's.

    At first it has so many `members` of the client library, and so many that are `polled`.
    """

    coordinators: int = 2
    members: int = 2
    polled: int = 0
    partitions: int = 2
    producers: int = 1
    protocol: Literal["eager", "cooperative"] = "cooperative"
    commits_positions: bool = False
    """Members leave it to the library which offsets they commit; otherwise they name them."""
    static: bool = False
    """A member that is killed is the same member when it starts again."""
    instance_secrets: bool = False
    """Members of the client library have secrets of their instances."""
    replaced: bool = False
    """The last partition is removed and added again; producers of its own write to it."""


@dataclass(frozen=True, slots=True)
class Retention:
    """Topics keep few records: so many bytes, or for so long (ms); -1 is no limit."""

    size_bytes: int = 2_000
    age_ms: int = -1

    def configs(self) -> dict[str, str]:
        """Return the configs of a topic."""
        return {"retention.bytes": str(self.size_bytes), "retention.ms": str(self.age_ms)}


@dataclass(frozen=True, slots=True)
class Plan:
    """A whole run: its size, its load, its faults, what operators do, and its weather.

    `healing_ms` is how long a broker may be down before its replicas are rebuilt; -1 is for ever.
    A controller resigns when most brokers have been out of its reach for `contact_timeout_ms`.
    With `publishes` an application publishes batches to each partition, beside the producers.
    `scrubs` says whether brokers scrub every second; otherwise they do not within a run.
    `replication_factor` 0 means replicas on all brokers. All faults have begun `horizon_s` seconds
    after the topic exists, and everything is healed then. `opening` is the name of a directed one.
    """

    brokers: int = 3
    controllers: int = 2
    partitions: int = 2
    producers: int = 1
    publishes: bool = False
    pause_s: float = 0.1
    faults: tuple[Fault, ...] = ()
    actions: tuple[Action, ...] = ()
    group: Group | None = None
    retention: Retention | None = None
    scrubs: bool = False
    healing_ms: int = -1
    contact_timeout_ms: int = 30_000
    topics: int = 1
    replication_factor: int = 0
    stray_grace_ms: int = 24 * 3_600_000
    slow_disk_s: float = 0.004
    horizon_s: float = HORIZON_S
    opening: str = ""
    network: NetworkWeather = field(default_factory=NetworkWeather)
    zookeeper: ZooKeeperWeather = field(default_factory=ZooKeeperWeather)


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
        replace(plan, retention=None),
        replace(plan, publishes=False),
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
        replace(group, members=min(group.members, 1)),
        replace(group, polled=min(group.polled, 1)),
        *([replace(group, polled=0)] if group.members else []),
        *([replace(group, members=0)] if group.polled else []),
        replace(group, coordinators=1),
        replace(group, partitions=1),
        replace(group, producers=1),
    ]
    return [replace(plan, group=each) for each in (None, *less)]


_NETWORK: Final = ("loss", "repeat", "late")
_ZOOKEEPER: Final = ("slow", "break_before", "break_after", "lag_s")
