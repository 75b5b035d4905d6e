"""Elections: a table of cases, and properties of every case."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline_client.wire import NO_LEADER
from leadline_controller.domain.election import (
    Election,
    ElectionKind,
    ElectionReason,
    elect,
    eligible_after,
)

BROKERS = st.integers(0, 5)
REPLICAS = st.lists(BROKERS, min_size=1, max_size=5, unique=True).map(tuple)

CASES = [
    pytest.param("new_partition", (3, 1, 2), (), {1, 2}, {}, (1, (1, 2), "new"), id="new"),
    pytest.param("new_partition", (1, 2), (), {3}, {}, (-1, (), "none"), id="new-none-live"),
    pytest.param("offline", (1, 2, 3), (3, 2), {2, 3}, {}, (2, (3, 2), "isr"), id="clean"),
    pytest.param("offline", (1, 2, 3), (1, 2), {3}, {}, (-1, (1, 2), "none"), id="isr-kept"),
    pytest.param(
        "offline", (1, 2, 3), (1,), {2, 3}, {"unclean": True}, (2, (2,), "unclean"), id="unclean"
    ),
    pytest.param(
        "offline",
        (1, 2, 3),
        (1,),
        {2, 3},
        {"unclean": True, "eligible": (3,)},
        (3, (3,), "unclean"),
        id="unclean-prefers-eligible",
    ),
    pytest.param(
        "offline", (1, 2), (1, 2), {2}, {"unclean": True}, (2, (2,), "isr"), id="clean-first"
    ),
    pytest.param(
        "offline", (1, 2), (1,), {9}, {"unclean": True}, (-1, (1,), "none"), id="nobody-at-all"
    ),
    pytest.param(
        "replica_offline",
        (1, 2, 3),
        (1, 2, 3),
        {2, 3},
        {"leader": 2},
        (2, (2, 3), "unchanged"),
        id="follower-lost",
    ),
    pytest.param(
        "preferred", (1, 2), (2, 1), {1, 2}, {"leader": 2}, (1, (2, 1), "preferred"), id="preferred"
    ),
    pytest.param(
        "preferred", (1, 2), (2,), {1, 2}, {"leader": 2}, (2, (2,), "unchanged"), id="not-in-sync"
    ),
    pytest.param(
        "reassign",
        (4, 5),
        (1, 5, 4),
        {1, 4, 5},
        {"leader": 1},
        (4, (1, 5, 4), "reassigned"),
        id="reassign",
    ),
    pytest.param(
        "controlled_shutdown",
        (1, 2, 3),
        (1, 2, 3),
        {1, 2, 3},
        {"leader": 1, "shutting_down": {1}},
        (2, (2, 3), "isr"),
        id="hand-over",
    ),
    pytest.param(
        "controlled_shutdown",
        (1, 2),
        (1,),
        {1, 2},
        {"leader": 1, "shutting_down": {1}},
        (1, (1,), "unchanged"),
        id="last-one-stays",
    ),
    pytest.param(
        "controlled_shutdown",
        (1, 2),
        (1, 2),
        {1, 2},
        {"leader": 1, "shutting_down": {1}, "floor": 2},
        (2, (1, 2), "isr"),
        id="stays-in-sync-for-acks-all",
    ),
    pytest.param(
        "controlled_shutdown",
        (1, 2, 3),
        (2, 1, 3),
        {1, 2, 3},
        {"leader": 2, "shutting_down": {1}, "floor": 2},
        (2, (2, 3), "unchanged"),
        id="a-follower-leaves-the-isr",
    ),
    pytest.param(
        "offline",
        (1, 2, 3),
        (1, 2),
        {1, 2, 3},
        {"shutting_down": {1}},
        (2, (1, 2), "isr"),
        id="not-to-one-that-stops",
    ),
    pytest.param(
        "offline",
        (1, 2, 3),
        (1,),
        {1, 2, 3},
        {"shutting_down": {1}, "unclean": True},
        (-1, (1,), "none"),
        id="nothing-is-lost-while-a-member-lives",
    ),
    pytest.param(
        "new_partition", (1, 2), (), {1, 2}, {"shutting_down": {1}}, (2, (2,), "new"), id="new-stop"
    ),
    pytest.param(
        "preferred",
        (1, 2),
        (2, 1),
        {1, 2},
        {"leader": 2, "shutting_down": {1}},
        (2, (2, 1), "unchanged"),
        id="preferred-stops",
    ),
]


@pytest.mark.parametrize(("kind", "assignment", "isr", "live", "options", "expected"), CASES)
def test_elections(kind, assignment, isr, live, options, expected) -> None:  # type: ignore[no-untyped-def]  # a table row
    leader, in_sync, reason = expected
    election = elect(ElectionKind(kind), assignment, isr, live, **options)
    assert election == Election(leader, in_sync, ElectionReason(reason))


@given(
    REPLICAS, st.data(), st.sets(BROKERS), st.booleans(), st.sampled_from(["offline", "preferred"])
)
def test_the_leader_is_live_and_in_an_isr_of_assigned_replicas(
    assignment: tuple[int, ...], data: st.DataObject, live: set[int], unclean: bool, kind: str
) -> None:
    isr = tuple(data.draw(st.lists(st.sampled_from(assignment), min_size=1, unique=True)))
    election = elect(ElectionKind(kind), assignment, isr, live, unclean=unclean)
    assert election.isr
    assert set(election.isr) <= set(assignment)
    if election.leader != NO_LEADER:
        assert election.leader in live
        assert election.leader in election.isr
    if election.leader not in isr and election.leader != NO_LEADER:
        assert unclean
        assert not live & set(isr)
    if not live & set(isr) and election.leader == NO_LEADER:
        assert election.isr == isr


@given(REPLICAS, st.data(), st.sets(BROKERS))
def test_a_clean_election_takes_the_first_live_isr_member_in_assignment_order(
    assignment: tuple[int, ...], data: st.DataObject, live: set[int]
) -> None:
    isr = tuple(data.draw(st.lists(st.sampled_from(assignment), min_size=1, unique=True)))
    election = elect(ElectionKind.OFFLINE, assignment, isr, live, unclean=True)
    in_sync = [broker for broker in assignment if broker in isr and broker in live]
    if in_sync:
        assert election.leader == in_sync[0]
        assert set(election.isr) == set(in_sync)


@pytest.mark.parametrize(
    ("isr", "eligible", "chosen", "expected"),
    [
        pytest.param((1, 2, 3), (), (2, 3), (), id="still-at-the-floor"),
        pytest.param((2, 3), (), (3,), (2,), id="falls-below"),
        pytest.param((1, 2, 3), (), (3,), (1, 2), id="two-at-once"),
        pytest.param((3,), (2,), (3,), (2,), id="stays-below"),
        pytest.param((3,), (2,), (2,), (3,), id="eligible-leads"),
        pytest.param((3,), (2,), (1,), (), id="outsider-leads"),
        pytest.param((3,), (2,), (2, 3), (), id="back-at-the-floor"),
    ],
)
def test_eligible_members_hold_every_committed_record(
    isr: tuple[int, ...], eligible: tuple[int, ...], chosen: tuple[int, ...], expected: tuple[int]
) -> None:
    election = Election(chosen[0], chosen, ElectionReason.ISR)
    assert eligible_after((1, 2, 3), isr, eligible, election, 2) == expected


def test_one_replica_has_a_floor_of_one() -> None:
    assert eligible_after((1,), (1,), (), Election(1, (1,), ElectionReason.ISR), 2) == ()
