"""Which of the pending roles of one broker its next request holds."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from leadline_client.wire import TopicPartition
from leadline_controller.runtime.channel.pending_roles import PendingRoles


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
