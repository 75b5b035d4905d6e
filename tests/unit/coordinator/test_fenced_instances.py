"""Who was replaced as a static member does not take the place of its successor (KIP-345)."""

from __future__ import annotations

import pytest

from leadline_client.channel import Hello
from leadline_client.errors import FencedInstance, InstanceInUse, UnknownMember
from leadline_client.wire import TopicPartition
from leadline_coordinator.adapters.group_values import group_value, member_values, record_of
from leadline_coordinator.domain.commits import committing_member
from leadline_coordinator.domain.group import Group
from leadline_coordinator.domain.members import GroupLimits
from leadline_coordinator.domain.membership import GroupMembership, restored
from leadline_coordinator.domain.polling import polling_member

LIMITS = GroupLimits()
OF_THE_INSTANCE = "what the operator has given to the instance"
P = TopicPartition("t", 0)


def secret_of(member: str) -> str:
    return f"what only {member} knows, and nobody guesses"


def hello(member: str | None = None, secret: str | None = OF_THE_INSTANCE) -> Hello:
    own = None if member is None else secret_of(member)
    return Hello(topics=("t",), member=member, secret=own, instance_id="i", instance_secret=secret)


def join(members: GroupMembership, name: str, connection: int, said: Hello | None = None) -> None:
    members.on_hello(said or hello(), connection, name, connection, new_secret=secret_of(name))


def replaced_group(*names: str) -> GroupMembership:
    """Return a group with one static member, the last of `names`; each has replaced another."""
    members = GroupMembership(Group("g", 1, LIMITS, {"t": 1}, {}))
    for connection, name in enumerate(names, 1):
        join(members, name, connection)
        members.group.send_start(members.group.members[name], {P})
    return members


def after_an_election(members: GroupMembership) -> GroupMembership:
    """Return the group as the next coordinator reads it."""
    record = members.group.record()
    read = record_of("g", group_value(record), member_values(record), {})
    assert read is not None
    return GroupMembership(restored(read, 2, LIMITS, {"t": 1}, {}, 0))


@pytest.mark.parametrize("elected", [False, True])
@pytest.mark.parametrize("former", ["a", "b"])
def test_defect_40_a_replaced_consumer_that_reconnects_ends(former: str, elected: bool) -> None:
    members = replaced_group("a", "b", "c")
    if elected:
        members = after_an_election(members)

    with pytest.raises(FencedInstance):
        join(members, "d", 9, hello(former))

    assert list(members.group.members) == ["c"]


@pytest.mark.parametrize("former", ["a", "b"])
def test_nothing_else_is_done_in_the_name_of_a_replaced_member(former: str) -> None:
    members = replaced_group("a", "b", "c")
    group, secret = members.group, secret_of(former)

    with pytest.raises(FencedInstance):
        polling_member(group, former, secret)
    with pytest.raises(FencedInstance):
        committing_member(group, former, 1, 1, secret)
    with pytest.raises(FencedInstance):
        members.on_leave(former, secret)
    with pytest.raises(UnknownMember):
        members.evict(former, UnknownMember("evicted"))
    assert list(group.members) == ["c"]


def test_a_consumer_that_was_replaced_after_it_had_stopped_ends_too() -> None:
    members = GroupMembership(Group("g", 1, LIMITS, {"t": 1}, {}))
    join(members, "a", 1, hello(secret=None))
    members.on_closed(1, 10)
    with pytest.raises(InstanceInUse):
        join(members, "b", 20, hello(secret=None))
    join(members, "b", 20 + LIMITS.evict_limit_ms, hello(secret=None))

    with pytest.raises(FencedInstance):
        join(members, "c", 21 + LIMITS.evict_limit_ms, hello("a", secret=None))


def test_once_its_successor_is_gone_it_may_join_again() -> None:
    members = replaced_group("a", "b")
    members.on_leave("b", secret_of("b"))

    join(members, "c", 9, hello("a"))

    assert list(members.group.members) == ["c"]


def test_a_member_whose_replacement_was_not_recorded_takes_the_place_again() -> None:
    """A coordinator that died has welcomed it; the next one knows its predecessor alone."""
    before = replaced_group("a")
    unrecorded = after_an_election(before)

    join(unrecorded, "c", 9, hello("b"))

    assert list(unrecorded.group.members) == ["c"]
    with pytest.raises(FencedInstance):
        join(unrecorded, "d", 10, hello("a"))


def test_a_consumer_that_could_not_prove_itself_is_not_fenced_by_its_own_join() -> None:
    """An earlier release recorded no hash of its secret; its first welcome may be lost."""
    record = replaced_group("a").group.record()
    nodes = {"a": b'{"topics":["t"],"instance_id":"i"}'}
    read = record_of("g", group_value(record), nodes, {})
    assert read is not None
    members = GroupMembership(restored(read, 2, LIMITS, {"t": 1}, {}, 0))
    late = LIMITS.evict_limit_ms

    for connection in (late, late + 1):
        join(members, f"of {connection}", connection, hello("a"))

    assert list(members.group.members) == [f"of {late + 1}"]


def test_a_member_names_as_many_predecessors_as_is_documented() -> None:
    names = [f"member-{number}" for number in range(20)]
    record = after_an_election(replaced_group(*names)).group.record()

    (credentials,) = record.credentials.values()

    assert credentials.replaced == tuple(reversed(names[-9:-1]))


def test_a_member_that_reconnects_still_names_them() -> None:
    members = replaced_group("a", "b")

    join(members, "unused", 9, hello("b"))

    assert members.group.members["b"].credentials.replaced == ("a",)
