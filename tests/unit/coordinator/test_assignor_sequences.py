"""Every assignor keeps its promises over random lives of a group.

`make unit` takes 2,000 sequences, and `make test-slow` 6,000 more. All of the 50,000, in a minute
and a half:
`python -m pytest -m soak tests/unit/coordinator/test_assignor_sequences.py`.
"""

from __future__ import annotations

from collections import Counter
from typing import get_args

import pytest

from leadline_client.channel import Assignor
from leadline_client.wire import TopicPartition
from leadline_coordinator.domain.assignors.assign import Outcome, split_among_threads
from leadline_coordinator.domain.assignors.group_spec import NO_GENERATION
from tests.unit.coordinator.group_life import Life

ASSIGNORS: tuple[Assignor, ...] = get_args(Assignor)
STEPS = 8
BATCH = 1_000


@pytest.mark.parametrize(
    "first",
    [
        *range(0, 2 * BATCH, BATCH),
        *(
            pytest.param(first, marks=pytest.mark.slow)
            for first in range(2 * BATCH, 8 * BATCH, BATCH)
        ),
    ],
)
def test_random_lives_of_a_group(first: int) -> None:
    for seed in range(first, first + BATCH):
        live(seed)


@pytest.mark.soak
@pytest.mark.parametrize("first", range(0, 50 * BATCH, BATCH))
def test_soak(first: int) -> None:
    for seed in range(first, first + BATCH):
        live(seed)


def live(seed: int) -> None:
    life = Life(seed)
    before: dict[Assignor, Outcome] = {}
    for step in range(STEPS):
        if step:
            life.step()
        for assignor in ASSIGNORS:
            outcome = life.assign(assignor)
            where = f"seed {seed}, step {step} ({life.event}), {assignor}"
            check_ownership(life, outcome, where)
            check_balance(life, assignor, outcome, where)
            check_moved(life, assignor, outcome, where)
            if life.event == "restart" and not missed_any(life, assignor):
                check_same_parts(life, before[assignor], outcome, where)
            life.learn(assignor, outcome)
            before[assignor] = outcome
        life.begin_generation()


def check_ownership(life: Life, outcome: Outcome, where: str) -> None:
    """Exactly one owner for each partition of a topic that somebody asked for, who asked for it."""
    owned = Counter(p for part in outcome.assignment.values() for p in part)
    asked = {topic for wanted in life.subscriptions.values() for topic in wanted}
    wanted = {(t, number) for t in asked for number in range(life.topics.get(t, 0))}
    assert owned == dict.fromkeys(wanted, 1), where
    assert outcome.assignment.keys() == life.subscriptions.keys(), where
    for member, part in outcome.assignment.items():
        assert {topic for topic, _ in part} <= set(life.subscriptions[member]), where


def check_balance(life: Life, assignor: Assignor, outcome: Outcome, where: str) -> None:
    """No thread has two partitions more than another (range: of one topic) if all asked alike."""
    full = {topic for topic, count in life.topics.items() if count}
    asking = [m for m, wanted in life.subscriptions.items() if full.intersection(wanted)]
    alike = {frozenset(full.intersection(life.subscriptions[m])) for m in asking}
    if len(alike) > 1 or not asking:
        return
    loads: list[Counter[str]] = []
    for member in asking:
        part, threads = outcome.assignment[member], life.threads.get(member, 1)
        loads += [
            Counter(topic if assignor == "range" else "" for topic, _ in split)
            for split in split_among_threads(assignor, part, threads)
        ]
    for key in {key for load in loads for key in load}:
        assert max(load[key] for load in loads) - min(load[key] for load in loads) <= 1, where


def check_moved(life: Life, assignor: Assignor, outcome: Outcome, where: str) -> None:
    """What is said to move does, and sticky moves no more than balance asks for."""
    owners = owners_before(life, assignor)
    moved = {
        partition
        for member, part in outcome.assignment.items()
        for partition in part
        if owners.get(partition, member) != member
    }
    assert set(outcome.moved) == moved, where
    if assignor == "sticky" and life.equal:
        kept = sum(
            owners.get(partition) == member
            for member, part in outcome.assignment.items()
            for partition in part
        )
        assert kept == most_that_can_stay(life, owners), where


def most_that_can_stay(life: Life, owners: dict[TopicPartition, str]) -> int:
    """Return how many claims a balanced assignment can honour, where all asked alike."""
    claims = Counter(
        owner
        for (topic, number), owner in owners.items()
        if owner in life.subscriptions and number < life.topics.get(topic, 0)
    )
    threads = sum(life.threads.get(member, 1) for member in life.subscriptions)
    if not threads:
        return 0
    each, over = divmod(sum(life.topics.values()), threads)
    stay = sum(min(n, each * life.threads.get(m, 1)) for m, n in claims.items())
    more = (max(0, n - each * life.threads.get(m, 1)) for m, n in claims.items())
    room = (life.threads.get(m, 1) for m in claims)
    return stay + min(over, sum(map(min, more, room)))


def owners_before(life: Life, assignor: Assignor) -> dict[TopicPartition, str]:
    """Decide the claims a second time: by generation, then present members, then order."""
    claims = life.claims[assignor]
    successors = {life.instance_ids[m]: m for m in life.subscriptions if m in life.instance_ids}
    best: dict[TopicPartition, tuple[int, bool, str]] = {}
    for member, part in claims.previous.items():
        rank = claims.generations.get(member, NO_GENERATION), member in life.subscriptions, member
        for partition in part:
            best[partition] = max(best.get(partition, rank), rank)
    return {
        p: m if m in life.subscriptions else successors.get(life.instance_ids.get(m, ""), m)
        for p, (_, _, m) in best.items()
    }


def missed_any(life: Life, assignor: Assignor) -> bool:
    """Tell whether somebody missed the last rebalance, so that what was assigned is not known."""
    claims = life.claims[assignor]
    last = life.generation - 1
    return any(claims.generations.get(m) not in (last, None) for m in life.subscriptions)


def check_same_parts(life: Life, before: Outcome, after: Outcome, where: str) -> None:
    """A static member that came back has its part, and nobody else's has changed."""
    names = {life.instance_ids.get(m, m): part for m, part in before.assignment.items()}
    now = {life.instance_ids.get(m, m): part for m, part in after.assignment.items()}
    assert now == names, where
