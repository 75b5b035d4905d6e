"""How far a partition is committed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from leadline_broker.domain.isr import UNKNOWN_END, FollowerProgress, committed_end

ends = st.dictionaries(st.integers(2, 6), st.integers(-1, 50))


def progress_of(known: dict[int, int]) -> dict[int, FollowerProgress]:
    return {broker: FollowerProgress(end=end) for broker, end in known.items()}


@given(ends, st.integers(0, 50))
def test_it_is_the_least_end_of_all_members(known: dict[int, int], leader_end: int) -> None:
    members = {1, *known}

    committed = committed_end(members, progress_of(known), leader=1, leader_end=leader_end)

    assert committed == min([leader_end, *known.values()])


@given(ends, st.integers(0, 50), st.integers(2, 6))
def test_another_member_never_raises_it(known: dict[int, int], leader_end: int, more: int) -> None:
    progress = progress_of(known)
    members = {1, *known} - {more}

    before = committed_end(members, progress, leader=1, leader_end=leader_end)
    after = committed_end({*members, more}, progress, leader=1, leader_end=leader_end)

    assert after <= before


@given(ends, st.integers(0, 50))
def test_a_member_that_never_fetched_holds_it_back(known: dict[int, int], leader_end: int) -> None:
    members = {1, 7, *known}

    assert committed_end(members, progress_of(known), leader=1, leader_end=leader_end) == -1
    assert UNKNOWN_END == -1


def test_alone_the_leader_decides() -> None:
    assert committed_end([1], {}, leader=1, leader_end=9) == 9


def test_those_outside_do_not_count() -> None:
    assert committed_end([1, 2], progress_of({2: 4, 3: 0}), leader=1, leader_end=9) == 4
