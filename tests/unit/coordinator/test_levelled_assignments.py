"""Sticky with members that asked for different topics: no chain of moves makes it better.

An assignment is the best if no chain of members, each of which gives one partition to the next,
levels it or saves a move (the optimality condition of minimum-cost flows). That can be checked
for groups too large for a search of all assignments.
"""

from __future__ import annotations

from itertools import product
from typing import TypeAlias

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from leadline_client.wire import TopicPartition
from leadline_coordinator.domain.assignors.assign import assign
from leadline_coordinator.domain.assignors.flow import Network

LEVEL = 1_000
"""What a level costs, in moves: more than any chain moves."""
FAR = 1 << 40

Group: TypeAlias = tuple[
    dict[str, int], dict[str, list[str]], dict[TopicPartition, str], dict[str, int]
]
"""Topics, subscriptions, who had what (also who left or did not ask for it) and threads."""

TOPICS = tuple("tuvwxyz")
MEMBERS = tuple("abcdefgh")


def claims_of(owners: dict[TopicPartition, str]) -> dict[str, list[TopicPartition]]:
    claims: dict[str, list[TopicPartition]] = {}
    for partition, owner in owners.items():
        claims.setdefault(owner, []).append(partition)
    return claims


@st.composite
def groups(draw: st.DrawFn) -> Group:
    """Draw a group."""
    topics = draw(st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 12), min_size=2))
    some_topics = st.lists(st.sampled_from(sorted(topics)), unique=True)
    subscriptions = draw(st.dictionaries(st.sampled_from(MEMBERS), some_topics, min_size=2))
    holders = draw(st.lists(st.sampled_from([*subscriptions, "gone"]), min_size=1, unique=True))
    partitions = [TopicPartition(t, n) for t, count in topics.items() for n in range(count)]
    owners = {partition: draw(st.sampled_from([*holders, ""])) for partition in partitions}
    threads = draw(st.dictionaries(st.sampled_from(sorted(subscriptions)), st.integers(1, 3)))
    return topics, subscriptions, {p: owner for p, owner in owners.items() if owner}, threads


def costs_of_hops(
    assignment: dict[str, list[TopicPartition]],
    subscriptions: dict[str, list[str]],
    owners: dict[TopicPartition, str],
    threads: dict[str, int],
) -> dict[tuple[str, str], int]:
    """Return what it costs that a member gives one partition to another.

    The member "" closes a chain to a circle: its end gets one more partition, its begin has one
    less.
    """
    nodes = ["", *assignment]
    costs = {(giver, receiver): FAR for giver in nodes for receiver in nodes}
    for giver, held in assignment.items():
        count, row = len(held), threads.get(giver, 1)
        costs[giver, ""] = count // row * LEVEL
        costs["", giver] = -((count - 1) // row) * LEVEL if held else FAR
        for partition, receiver in product(held, assignment):
            if receiver != giver and partition.topic in subscriptions[receiver]:
                cost = (owners.get(partition) == giver) - (owners.get(partition) == receiver)
                costs[giver, receiver] = min(costs[giver, receiver], cost)
    return costs


ONE_HAD_ALL: Group = (
    {"t": 1, "u": 1, "v": 5},
    {"a": ["t", "v"], "b": ["u", "v"], "c": ["t", "u", "v"]},
    {TopicPartition(*one): "a" for one in [("t", 0), ("u", 0), *(("v", n) for n in range(5))]},
    {},
)
"""Rare at random: members whose number of partitions is just the level."""


@given(groups())
@example(ONE_HAD_ALL)
def test_no_chain_of_moves_is_an_improvement(group: Group) -> None:
    topics, subscriptions, owners, threads = group
    claims = claims_of(owners)

    assignment = assign("sticky", topics, subscriptions, claims, threads=threads).assignment

    costs = costs_of_hops(assignment, subscriptions, owners, threads)
    nodes = ["", *assignment]
    for by, begin, end in product(nodes, repeat=3):
        costs[begin, end] = min(costs[begin, end], costs[begin, by] + costs[by, end])
    assert all(costs[node, node] >= 0 for node in nodes)


@given(groups())
def test_what_was_assigned_stays(group: Group) -> None:
    topics, subscriptions, owners, threads = group
    claims = claims_of(owners)
    before = assign("sticky", topics, subscriptions, claims, threads=threads).assignment

    after = assign("sticky", topics, subscriptions, before, threads=threads)

    assert after.assignment == before
    assert after.moved == ()


def searches(partitions: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return how often the network is searched if one of 50 members had everything so far."""
    found = []
    real = Network._layer

    def counted(network: Network) -> bool:
        found.append(network)
        return real(network)

    names = [f"t{number}" for number in range(20)]
    subscriptions = {f"m{number}": names[:10] for number in range(50)} | {"m0": names}
    had = [TopicPartition(name, number) for name in names for number in range(partitions)]
    with monkeypatch.context() as patch:
        patch.setattr(Network, "_layer", counted)
        outcome = assign("sticky", dict.fromkeys(names, partitions), subscriptions, {"m0": had})
    assert len(outcome.moved) == 10 * partitions
    return len(found)


def test_the_searches_do_not_grow_with_the_partitions_that_move(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert searches(490, monkeypatch) <= searches(49, monkeypatch) + 5
