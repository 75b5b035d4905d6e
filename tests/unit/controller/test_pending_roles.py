"""Which of the pending roles of one broker its next request holds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from leadline_client.wire import TopicPartition
from leadline_controller.runtime.channel.pending_roles import (
    MOST_ROLES,
    ROLES_PER_REQUEST,
    PendingRoles,
)

WRITTEN = 995
"""States in one write, less its checks and its audit entry."""


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.sets(st.integers(0, 9), min_size=1), st.booleans()),
        max_size=12,
    ),
    st.sets(st.tuples(st.integers(0, 2), st.integers(0, 9))),
)
def test_each_pending_role_is_taken_once(
    added: list[tuple[int, set[int], bool]], stays: set[tuple[int, int]]
) -> None:
    """One that is added both as one of the first and as one that may wait is one of the first."""
    roles = PendingRoles()
    but = {TopicPartition(f"t{topic}", number) for topic, number in stays}
    for topic, numbers, may_wait in added:
        roles.add(f"t{topic}", numbers, may_wait=may_wait)
    all_added = {TopicPartition(f"t{topic}", n) for topic, numbers, _ in added for n in numbers}

    assert sorted(roles) == sorted(all_added)
    assert all(roles.has(*one) for one in all_added)
    taken = roles.take(but=but)

    found = [TopicPartition(topic, n) for topic, numbers in taken.items() for n in numbers]
    assert sorted(found) == sorted(all_added - but)
    assert sorted(roles) == sorted(all_added & but)


@given(st.lists(st.tuples(st.integers(0, WRITTEN), st.booleans()), min_size=10, max_size=40))
def test_the_number_of_requests_is_bounded_however_fast_a_broker_answers(
    writes: list[tuple[int, bool]],
) -> None:
    """N roles, of which any may be first ones, are at most 2 + N / 1000 requests."""
    roles = PendingRoles()
    sent: list[int] = []
    for number, (first, is_answered) in enumerate(writes):
        roles.add(f"t{number}", range(first))
        roles.add(f"t{number}", range(first, WRITTEN), may_wait=True)
        if is_answered:
            sent += _send(roles, more_coming=True)
    sent += _send(roles, more_coming=False)

    assert not roles
    assert sum(sent) == len(writes) * WRITTEN
    assert len(sent) <= 2 + len(writes) * WRITTEN / 1000
    assert max(sent) <= MOST_ROLES


def test_two_requests_of_each_series_of_writes_are_sent_at_once() -> None:
    """The others wait for the last write, or until enough first roles were added."""
    roles = PendingRoles()
    for series in ("a", "b"):
        for number in range(2):
            roles.add(series, [number])
            assert roles.are_due(more_coming=True)
            assert roles.take_first(more_coming=True) == {series: {number: None}}
        roles.add(series, [2, 3])
        assert not roles.are_due(more_coming=True)
        assert not roles.take_first(more_coming=True)
        roles.add("waiting", range(MOST_ROLES), may_wait=True)
        assert not roles.are_due(more_coming=True)
        roles.add("enough", range(ROLES_PER_REQUEST))
        taken = roles.take_first(more_coming=True)
        assert {topic: len(numbers) for topic, numbers in taken.items()} == {
            series: 2,
            "enough": ROLES_PER_REQUEST,
        }
        assert not roles.are_due(more_coming=True)
        assert roles.take(more_coming=True) == {}
        assert roles.take_first(more_coming=False) == {}
        assert len(roles.take(more_coming=False)["waiting"]) == MOST_ROLES


def test_to_add_no_role_leaves_nothing_to_send() -> None:
    roles = PendingRoles()
    roles.add("t0", ())
    roles.add("t1", (), may_wait=True)
    assert not roles
    assert not roles.are_due(more_coming=False)


class Counted(frozenset[TopicPartition]):
    """Partitions that stay; counts how many are looked up."""

    lookups = 0

    def __contains__(self, one: object) -> bool:
        self.lookups += 1
        return super().__contains__(one)


def test_a_request_does_not_look_at_the_roles_that_stay() -> None:
    """A topic of 100,000 partitions took 60 ms for each of its 50 requests."""
    roles = PendingRoles()
    roles.add("large", range(20 * MOST_ROLES))
    stays = Counted({TopicPartition("large", 1)})

    taken = roles.take(but=stays)

    assert list(taken["large"]) == [0, *range(2, MOST_ROLES + 1)]
    assert stays.lookups <= MOST_ROLES + 2


def _send(roles: PendingRoles, *, more_coming: bool) -> list[int]:
    """Take requests as a queue does, and return how many roles each holds."""
    sent: list[int] = []
    while roles.are_due(more_coming=more_coming):
        for take in (roles.take_first, roles.take):
            while taken := take(more_coming=more_coming):
                sent.append(sum(map(len, taken.values())))
    return sent
