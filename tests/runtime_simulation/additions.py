"""Further faults and actions of plans, each kind drawn from a random stream of its own.

Only seeds from `FIRST_WITH_ADDITIONS` on have them, and some only from a later one on, so that the
plans of earlier seeds, which tests pin, stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Final

from tests.runtime_simulation.configuring import ALL
from tests.runtime_simulation.duplicate_instances import with_duplicate_instances
from tests.runtime_simulation.later_additions import (
    with_cut_off_controllers,
    with_deletions_of_published,
    with_replaced_partitions,
    with_several_wrong_clocks,
    with_unclean_elections,
)
from tests.runtime_simulation.openings import LATER_OPENINGS
from tests.runtime_simulation.plan import (
    CLOCK,
    DELETE,
    DELETE_GROUP,
    DIES,
    EVICT,
    FLIP,
    HANG,
    HORIZON_S,
    LATE_POLL,
    MIN_INSYNC,
    RECREATE,
    REMOVE,
    RESET,
    RETAIN,
    SHORT,
    STRAY_GRACE_MS,
    UNREADABLE,
    Action,
    Fault,
    Plan,
    Retention,
    in_order,
)

FIRST_WITH_ADDITIONS: Final = 300
FIRST_WITH_POLLED_MEMBERS: Final = 20_000
"""They have later openings, too."""
FIRST_WITH_HANGING_DISKS: Final = 30_000
FIRST_WITH_SCRUBS: Final = 40_000
FIRST_WITH_PUBLISHERS: Final = 50_000
FIRST_WITH_SHORTAGES: Final = 60_000
FIRST_WITH_CONFIG_CHANGES: Final = 70_000
FIRST_WITH_WRONG_CLOCKS: Final = 71_000
FIRST_WITH_UNREADABLE_SEGMENTS: Final = 72_000
FIRST_WITH_GROUP_OPERATORS: Final = 73_000
FIRST_WITH_REPLACED_PARTITIONS: Final = 74_000
FIRST_WITH_DUPLICATE_INSTANCES: Final = 78_000
FIRST_WITH_UNCLEAN_ELECTIONS: Final = 80_000
FIRST_WITH_SEVERAL_WRONG_CLOCKS: Final = 82_000
FIRST_WITH_DELETIONS_OF_PUBLISHED: Final = 84_000
FIRST_WITH_CUT_OFF_CONTROLLERS: Final = 88_000


def with_additions(plan: Plan, seed: int) -> Plan:
    """Add to a plan what its seed draws; directed openings stay as they are."""
    if plan.opening:
        return plan
    plan = _with_retention(plan, Random(f"retention {seed}"))
    plan = _with_removals(plan, Random(f"removals {seed}"))
    plan = _with_healing(plan, Random(f"healing {seed}"))
    plan = _with_group_topic_recreated(plan, Random(f"group's topic {seed}"))
    plan = _with_static_members(plan, Random(f"static members {seed}"))
    plan = _with_flipped_bits(plan, Random(f"flipped bits {seed}"))
    if seed < FIRST_WITH_POLLED_MEMBERS:
        return plan
    plan = _with_polled_members(plan, Random(f"polled members {seed}"))
    if seed >= FIRST_WITH_HANGING_DISKS:
        plan = _with_hanging_disks(plan, Random(f"hanging disks {seed}"))
    if seed >= FIRST_WITH_SCRUBS:
        plan = _with_scrubs(plan, Random(f"scrubs {seed}"))
    if seed >= FIRST_WITH_PUBLISHERS:
        plan = _with_publishers(plan, Random(f"publishers {seed}"))
    if seed >= FIRST_WITH_SHORTAGES:
        plan = _with_shortages(plan, Random(f"shortages {seed}"))
    for first, name, add in (
        (FIRST_WITH_CONFIG_CHANGES, "config changes", _with_config_changes),
        (FIRST_WITH_WRONG_CLOCKS, "wrong clocks", _with_wrong_clocks),
        (FIRST_WITH_UNREADABLE_SEGMENTS, "unreadable segments", _with_unreadable_segments),
        (FIRST_WITH_GROUP_OPERATORS, "group operators", _with_group_operators),
        (FIRST_WITH_REPLACED_PARTITIONS, "replaced partitions", with_replaced_partitions),
        (FIRST_WITH_DUPLICATE_INSTANCES, "duplicate instances", with_duplicate_instances),
        (FIRST_WITH_UNCLEAN_ELECTIONS, "unclean elections", with_unclean_elections),
        (FIRST_WITH_SEVERAL_WRONG_CLOCKS, "several wrong clocks", with_several_wrong_clocks),
        (FIRST_WITH_DELETIONS_OF_PUBLISHED, "deletions of published", with_deletions_of_published),
        (FIRST_WITH_CUT_OFF_CONTROLLERS, "cut off controllers", with_cut_off_controllers),
    ):
        if seed >= first:
            plan = add(plan, Random(f"{name} {seed}"))
    return _with_later_opening(plan, Random(f"later opening {seed}"))


def _with_retention(plan: Plan, random: Random) -> Plan:
    """Let topics keep few records in four plans of ten."""
    if random.random() >= 0.4:
        return plan
    size_bytes = random.choice((-1, 0, 1_000, 3_000, 3_000))
    age_ms = random.choice((500, 2_000)) if size_bytes < 0 else random.choice((-1, -1, 2_000))
    return replace(plan, pause_s=0.03, retention=Retention(size_bytes, age_ms))


def _with_removals(plan: Plan, random: Random) -> Plan:
    """Let operators remove partitions in three plans of ten, mostly while a broker is away."""
    if random.random() >= 0.3:
        return plan
    times = [random.uniform(0.5, HORIZON_S - 0.5) for _ in range(random.randint(1, 4))]
    removals = [Action(at_s, REMOVE, 0, 0, random.randrange(1 << 16)) for at_s in times]
    absences = [
        Fault(
            max(0.0, at_s - random.uniform(0, 2.0)),
            random.choice(("kill", "power cut", "freeze")),
            random.randrange(6),
            random.uniform(2.5, 4.5),
            random.randrange(1 << 16),
        )
        for at_s in times
        if random.random() < 0.8
    ]
    return replace(
        plan,
        brokers=max(plan.brokers, 3),
        partitions=max(plan.partitions, 2),
        producers=1,
        stray_grace_ms=STRAY_GRACE_MS,
        actions=in_order([*plan.actions, *removals]),
        faults=in_order([*plan.faults, *absences]),
    )


def _with_healing(plan: Plan, random: Random) -> Plan:
    """Let a broker of four die for good in one plan of four, and controllers as that is healed."""
    if random.random() >= 0.25:
        return plan
    died_s = random.uniform(0.2, 1.5)
    target, away_s = random.randrange(4), random.uniform(2.5, 6.0)
    faults = [Fault(died_s, DIES, target, away_s, random.getrandbits(16))]
    kinds = ("kill controller", "second controller", "cut controller from ZooKeeper")
    faults += [
        Fault(died_s + random.uniform(1.5, 5.0), random.choice(kinds), 0, random.uniform(0.1, 1.5))
        for _ in range(random.randint(0, 3))
    ]
    return replace(
        plan,
        brokers=4,
        replication_factor=random.choice((2, 3)),
        partitions=max(plan.partitions, 2),
        producers=1,
        stray_grace_ms=STRAY_GRACE_MS,
        healing_ms=random.choice((500, 1_500)),
        horizon_s=8.0,
        faults=in_order([*plan.faults, *faults]),
    )


def _with_group_topic_recreated(plan: Plan, random: Random) -> Plan:
    """Let operators delete the topic that a group reads, in four of ten plans with a group."""
    if plan.group is None or random.random() >= 0.4:
        return plan
    times = [random.uniform(0.2, 2.5) for _ in range(random.choice((1, 1, 2)))]
    deletions = [Action(at_s, RECREATE, 0, 0, random.randrange(1 << 16)) for at_s in times]
    return replace(
        plan,
        group=replace(plan.group, commits_positions=True),
        stray_grace_ms=STRAY_GRACE_MS,
        actions=in_order([*plan.actions, *deletions]),
    )


def _with_static_members(plan: Plan, random: Random) -> Plan:
    """Let members be static in half of the plans with a group, and die for a short time."""
    if plan.group is None or random.random() >= 0.5:
        return plan
    deaths = [
        Fault(random.uniform(0.3, HORIZON_S), "kill member", random.randrange(6), away_s)
        for away_s in (random.uniform(0.1, 1.0), random.uniform(0.5, 3.0))
    ]
    return replace(
        plan,
        group=replace(plan.group, static=True),
        faults=in_order([*plan.faults, *deaths]),
    )


def _with_flipped_bits(plan: Plan, random: Random) -> Plan:
    """Let bits flip in six of ten plans without most of the above, mostly on the leader's disk.

    Few other faults leave the damaged broker time to lead; retention would remove the damage.
    """
    removes = any(action.kind == REMOVE for action in plan.actions)
    others = plan.retention is not None or plan.healing_ms >= 0 or removes
    if others or random.random() >= 0.6:
        return plan
    flips = [
        Fault(
            random.uniform(1.5, 3.5),
            FLIP,
            random.randrange(6),
            random.uniform(0.02, 0.4),
            random.randrange(1 << 16) | random.choice((0, 8)),
        )
        for _ in range(2)
    ]
    kept = random.sample(plan.faults, min(len(plan.faults), random.randint(0, 2)))
    return replace(
        plan,
        brokers=max(plan.brokers, 3),
        pause_s=0.03,
        slow_disk_s=0.004,
        faults=in_order([*kept, *flips]),
    )


def _with_hanging_disks(plan: Plan, random: Random) -> Plan:
    """Let disks hang in four plans of ten, mostly those of leaders."""
    if random.random() >= 0.4:
        return plan
    hangs = _few(HANG, random, 4.0, lambda: random.randrange(1 << 16) | random.choice((0, 8)))
    return replace(plan, faults=in_order([*plan.faults, *hangs]))


def _few(kind: str, random: Random, longest_s: float, choice: Callable[[], int]) -> list[Fault]:
    """Draw one to three faults of a kind, each of up to so many seconds."""
    return [
        Fault(
            random.uniform(0.5, HORIZON_S),
            kind,
            random.randrange(6),
            random.uniform(0.2, longest_s),
            choice(),
        )
        for _ in range(random.randint(1, 3))
    ]


def _with_scrubs(plan: Plan, random: Random) -> Plan:
    """Let brokers scrub in half of the plans, whatever else happens to the segments."""
    return replace(plan, scrubs=True) if random.random() < 0.5 else plan


def _with_publishers(plan: Plan, random: Random) -> Plan:
    """Let applications publish in six of ten plans whose topics and partitions stay."""
    if any(action.kind in (DELETE, REMOVE) for action in plan.actions) or random.random() >= 0.6:
        return plan
    return replace(plan, publishes=True)


def _with_shortages(plan: Plan, random: Random) -> Plan:
    """Let brokers have no space for files, or no descriptors, in six of ten plans."""
    if random.random() >= 0.6:
        return plan
    shortages = _few(SHORT, random, 3.0, lambda: random.randrange(1 << 16))
    return replace(plan, faults=in_order([*plan.faults, *shortages]))


def _with_config_changes(plan: Plan, random: Random) -> Plan:
    """Let operators change the configuration in half of the plans.

    One in-sync replica is enough only where no disk is lost. Retention stays as it is where bits
    flip: it would remove the damage.
    """
    if random.random() >= 0.5:
        return plan
    kinds = {fault.kind for fault in plan.faults}
    fewest = 0 if kinds.isdisjoint(("wiped disk", DIES, FLIP)) else 1
    changed = random.choice(((MIN_INSYNC,), (RETAIN,), (MIN_INSYNC, RETAIN)))
    actions = [
        Action(
            random.uniform(0.1, HORIZON_S),
            random.choice(changed),
            random.randrange(3),
            random.randint(fewest, 2),
            random.randrange(1 << 16),
        )
        for _ in range(random.randint(1, 8))
    ]
    if FLIP in kinds:
        actions = [action for action in actions if action.kind == MIN_INSYNC]
    if any(action.kind == RETAIN for action in actions):
        plan = replace(plan, pause_s=0.03, retention=plan.retention or ALL)
    return replace(plan, actions=in_order([*plan.actions, *actions]))


def _with_wrong_clocks(plan: Plan, random: Random) -> Plan:
    """Set wall clocks in half of the plans; by chance only a clock that is ahead lets records go.

    The clock of a service may be wrong several times, and while the service starts again.
    """
    if random.random() >= 0.5:
        return plan
    clocks = [
        Fault(
            random.choice((0.0, random.uniform(0.0, HORIZON_S))),
            CLOCK,
            random.randrange(12),
            random.uniform(0.2, 4.0),
            random.randrange(1 << 16),
        )
        for _ in range(random.randint(1, 5))
    ]
    bits_flip = any(fault.kind == FLIP for fault in plan.faults)
    if plan.retention is None and not bits_flip and random.random() < 0.5:
        plan = replace(
            plan, pause_s=0.03, retention=Retention(-1, random.choice((60, 1_800)) * 1000)
        )
    return replace(plan, faults=in_order([*plan.faults, *clocks]))


def _with_unreadable_segments(plan: Plan, random: Random) -> Plan:
    """Let a broker not read segments in half of the plans without bits that flip, mostly a leader.

    Two copies of a batch may be gone at once otherwise.
    """
    if any(fault.kind == FLIP for fault in plan.faults) or random.random() >= 0.5:
        return plan
    faults = _few(
        UNREADABLE, random, 4.0, lambda: random.randrange(1 << 16) | random.choice((0, 8))
    )
    return replace(plan, faults=in_order([*plan.faults, *faults]))


def _with_group_operators(plan: Plan, random: Random) -> Plan:
    """Let operators of a group evict members, set it back or delete it, in eight plans of ten.

    Where they delete its topic they only evict: what comes next of that begins at 0 anyhow.
    """
    if plan.group is None or random.random() >= 0.8:
        return plan
    recreates = any(action.kind == RECREATE for action in plan.actions)
    kinds = (EVICT,) if recreates else (EVICT, RESET, RESET, DELETE_GROUP)
    operations = [
        Fault(
            random.uniform(0.5, HORIZON_S),
            random.choice(kinds),
            random.randrange(6),
            0.0,
            random.randrange(1 << 16),
        )
        for _ in range(random.randint(1, 5))
    ]
    return replace(plan, faults=in_order([*plan.faults, *operations]))


def _with_later_opening(plan: Plan, random: Random) -> Plan:
    """Have one plan of ten follow an opening that earlier seeds do not have."""
    if random.random() >= 0.1:
        return plan
    name = random.choice(sorted(LATER_OPENINGS))
    return replace(LATER_OPENINGS[name](random), opening=name)


def _with_polled_members(plan: Plan, random: Random) -> Plan:
    """Let members poll over HTTP in eight of ten plans with a group, mostly beside others.

    More happens to members, and some polls arrive when another one was sent, or nobody waits.
    """
    if plan.group is None or random.random() >= 0.8:
        return plan
    kinds = ("freeze member", "cut member from coordinators", "one-way cut of a member", LATE_POLL)
    faults = [
        Fault(
            random.uniform(0.5, HORIZON_S),
            random.choice((*kinds, LATE_POLL)),
            random.randrange(6),
            random.uniform(0.2, 3.5),
            random.randrange(1 << 16),
        )
        for _ in range(random.randint(0, 4))
    ]
    members, partitions = random.choice((0, 1, 1, 2)), random.randint(2, 4)
    if random.random() < 0.6:
        faults += _unheard_revocation(random)
    return replace(
        plan,
        group=replace(
            plan.group, members=members, polled=random.randint(1, 3), partitions=partitions
        ),
        faults=in_order([*plan.faults, *faults]),
    )


def _unheard_revocation(random: Random) -> list[Fault]:
    """Return a member whose polls arrive, but no answers to them, while another one joins."""
    at_s, target = random.uniform(1.5, HORIZON_S - 1.5), random.randrange(6)
    return [
        Fault(at_s, "one-way cut of a member", target, random.uniform(1.2, 2.0), 0),
        Fault(at_s + random.uniform(0.0, 0.3), "member joins", 0, 0.0),
    ]
