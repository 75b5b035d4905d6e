"""Directed openings: sequences that chance alone seldom produces, one for each rule that they show.

The protocol's page says which loss each rule prevents (docs/protocol.md). An opening leads up to
that loss as briefly as it can; the world is calm otherwise. Times are seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Final

from tests.runtime_simulation.plan import (
    AWAY_AND_BACK,
    BEHIND,
    DELETE,
    FORMER,
    GROWTH,
    LATE_COMMIT,
    OLDER_COPY,
    REPLACED,
    SHRUNKEN,
    STRAY_GRACE_MS,
    Action,
    Fault,
    Group,
    Plan,
)

_LEADER: Final = 8
"""The choice that has a fault meet the leader."""


def durable_ends(random: Random) -> Plan:
    """All power fails as a record is acknowledged, and the disks are slow (R4)."""
    faults = [
        Fault(at_s, "power cut of all at an acknowledgement", 0, random.uniform(0.05, 0.4))
        for at_s in (0.7, 2.7, 4.7)
    ]
    return Plan(pause_s=0.03, slow_disk_s=0.3, faults=tuple(faults))


def growing_isr(random: Random) -> Plan:
    """As a follower joins the ISR its leader loses ZooKeeper, and soon only the joiner lives.

    It gets no record after it has joined (R5), and the leader does not hear that it has (R7).
    """
    joiner = random.randrange(3)
    return Plan(
        pause_s=0.03,
        partitions=1,
        producers=2,
        faults=(
            Fault(0.6, "kill", joiner, 0.1),
            Fault(0.65, GROWTH, joiner, random.uniform(2.8, 3.6), random.randrange(2)),
        ),
    )


def epoch_start(random: Random) -> Plan:
    """A leader begins with an old high watermark, and a follower far behind asks to join (R6)."""
    joiner = random.randrange(3)
    faults = (Fault(0.4, "kill", joiner, 9.0), Fault(0.5, SHRUNKEN, joiner, 9.0))
    return Plan(pause_s=0.03, partitions=1, horizon_s=9.5, faults=faults)


def restarted_leader(random: Random) -> Plan:
    """The leader loses what it has not synced, and is back before its session ends (R9)."""
    faults = [Fault(at_s, BEHIND, 0, random.uniform(0.02, 0.2)) for at_s in (0.7, 2.7, 4.7)]
    return Plan(producers=6, partitions=1, pause_s=0.4, slow_disk_s=0.15, faults=tuple(faults))


def lost_directory(random: Random) -> Plan:
    """The last member of the ISR loses its disk, and is back before anybody else (R17)."""
    last = random.randrange(3)
    others = [Fault(0.8, "kill", other, 4.5) for other in range(3) if other != last]
    wiped = Fault(random.uniform(3.3, 3.6), "wiped disk", last, random.uniform(0.05, 0.3))
    return Plan(pause_s=0.03, faults=(*others, wiped))


def older_copy(random: Random) -> Plan:
    """The last member of the ISR comes back with a copy of its disk from before (R17).

    A version is written after five seconds; the copy is from before, and lacks what was
    acknowledged until the others died.
    """
    last = random.randrange(3)
    others = [Fault(6.0, "kill", other, 4.5) for other in range(3) if other != last]
    copied = Fault(random.uniform(2.0, 4.5), OLDER_COPY, last, random.uniform(6.2, 6.5))
    return Plan(pause_s=0.03, horizon_s=12.0, faults=(*others, copied))


def away_and_back(random: Random) -> Plan:
    """Leadership moves away and back, and two brokers do not learn of both (R1)."""
    return Plan(
        pause_s=0.03,
        partitions=1,
        horizon_s=10.0,
        faults=(
            Fault(0.1, "clean restart", 0, 0.1, _LEADER),
            Fault(random.uniform(2.4, 2.8), AWAY_AND_BACK, 0, 9.0, 1),
        ),
    )


def replaced_controller(random: Random) -> Plan:
    """A controller is replaced as it deletes a topic, which is created again at once (R11)."""
    times = (0.5, 2.5, 4.5)
    return Plan(
        pause_s=0.03,
        partitions=1,
        stray_grace_ms=STRAY_GRACE_MS,
        faults=tuple(Fault(at_s - 0.1, REPLACED, 0, random.uniform(0.5, 0.8)) for at_s in times),
        actions=tuple(Action(at_s, DELETE, 0, 0, 0) for at_s in times),
    )


def late_commit(random: Random) -> Plan:
    """A member's commit arrives after the group has given its partitions to another one (R16)."""
    target = random.randrange(2)
    return Plan(
        partitions=1,
        group=Group(coordinators=1),
        faults=(Fault(1.5, LATE_COMMIT, target, random.uniform(2.5, 3.5)),),
    )


def former_coordinator(random: Random) -> Plan:
    """What a coordinator has written arrives when the group goes on with another one (R16).

    Its writes are late by more than a member waits for it, and by less than its session lasts.
    """
    faults = [
        Fault(at_s, FORMER, 0, random.uniform(1.2, 1.4), random.randrange(20, 100))
        for at_s in (1.0, 3.0, 5.0)
    ]
    return Plan(partitions=1, pause_s=0.03, group=Group(coordinators=2), faults=tuple(faults))


OPENINGS: Final[Mapping[str, Callable[[Random], Plan]]] = {
    "R1 away and back": away_and_back,
    "R4 durable ends": durable_ends,
    "R5 R7 growing ISR": growing_isr,
    "R6 epoch start": epoch_start,
    "R9 restarted leader": restarted_leader,
    "R11 replaced controller": replaced_controller,
    "R16 late commit": late_commit,
    "R17 lost directory": lost_directory,
}
"""By name, each with the rules whose loss it shows."""
LATER_OPENINGS: Final[Mapping[str, Callable[[Random], Plan]]] = {
    "R16 former coordinator": former_coordinator,
    "R17 older copy": older_copy,
}
"""Those that only later seeds have, as those above have earlier seeds draw what tests pin."""
