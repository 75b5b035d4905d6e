"""Ids and generations are public: only its secret makes a consumer the member."""

from __future__ import annotations

from typing import Any

import pytest

from leadline_client.channel import Hello, Welcome
from leadline_client.errors import (
    InstanceInUse,
    InvalidSubscription,
    LeadlineError,
    WrongMemberSecret,
)
from leadline_client.wire import TopicPartition
from leadline_coordinator.adapters.group_values import group_value, member_values, record_of
from leadline_coordinator.domain.credentials import hash_of, is_proof
from leadline_coordinator.domain.effects import SendToMember
from leadline_coordinator.domain.group import Group
from leadline_coordinator.domain.members import GroupLimits
from leadline_coordinator.domain.membership import GroupMembership, restored

LIMITS = GroupLimits()
OWN = "what only the member knows, and nobody guesses"
INSTANCE = "what the operator has given to the instance"
UNUSED = "of no member, as the member is not new"
GUESS = "guess"
P = TopicPartition("t", 0)


def hello(**said: Any) -> Hello:
    return Hello(topics=("t",), **said)


def group_of_one(**said: Any) -> GroupMembership:
    """A group whose member `a` is consuming."""
    members = GroupMembership(Group("g", 1, LIMITS, {"t": 1}, {}))
    member = members.on_hello(hello(**said), 1, "a", 0, new_secret=OWN)
    members.group.owners = {P: "a"}
    members.group.send_start(member, {P})
    return members


def refused(members: GroupMembership, error: type[LeadlineError], now_ms: int, **said: Any) -> None:
    before = repr(vars(members.group))
    with pytest.raises(error) as problem:
        members.on_hello(hello(**said), 9, "x", now_ms, new_secret="x" * 43)
    assert OWN not in problem.value.message
    assert INSTANCE not in problem.value.message
    assert repr(vars(members.group)) == before


def test_only_the_first_welcome_of_a_member_has_its_secret_and_no_repr_shows_it() -> None:
    members = group_of_one()
    members.on_hello(hello(member="a", secret=OWN), 2, "x", 10, new_secret=UNUSED)

    sent = [one.frame for one in members.group.effects if isinstance(one, SendToMember)]
    secrets = [frame.secret for frame in sent if isinstance(frame, Welcome)]
    assert secrets == [OWN, None]
    assert OWN not in repr(sent) + repr(vars(members.group))


@pytest.mark.parametrize("secret", [None, "", "a", "guess", hash_of(OWN), OWN + " ", "\ud800"])
def test_a_stranger_takes_no_channel_over_and_removes_nobody(secret: str | None) -> None:
    members = group_of_one()

    refused(members, WrongMemberSecret, 10, member="a", secret=secret)
    with pytest.raises(WrongMemberSecret):
        members.on_leave("a", secret)

    assert members.group.members["a"].held == {P}


def test_a_static_member_with_an_instance_secret_is_replaced_by_nobody_without_it() -> None:
    members = group_of_one(instance_id="i", instance_secret=INSTANCE)
    for secret in (None, "a guess of sixteen characters", hash_of(INSTANCE)):
        refused(members, WrongMemberSecret, 10, instance_id="i", instance_secret=secret)
    members.on_closed(1, 20)
    members.on_tick(20 + LIMITS.evict_limit_ms)
    refused(members, WrongMemberSecret, 20 + LIMITS.evict_limit_ms, instance_id="i")

    successor = hello(instance_id="i", instance_secret=INSTANCE)
    members.on_hello(successor, 2, "b", 30 + LIMITS.evict_limit_ms, new_secret=OWN)

    assert members.group.owners == {P: "b"}


def test_a_static_member_without_an_instance_secret_is_replaced_once_it_has_certainly_stopped() -> (
    None
):
    members = group_of_one(instance_id="i")
    refused(members, InstanceInUse, 10, instance_id="i")
    refused(members, InstanceInUse, 10, instance_id="i", instance_secret=INSTANCE)
    members.on_closed(1, 20)
    refused(members, InstanceInUse, 30, instance_id="i")
    members.on_hello(hello(member="a", secret=OWN, instance_id="i"), 2, "x", 40, new_secret=OWN)
    assert list(members.group.members) == ["a"], "it reconnects before anyone takes its place"
    members.on_closed(2, 50)

    later_ms = 50 + LIMITS.reconnect_grace_ms
    members.on_hello(hello(instance_id="i"), 3, "b", later_ms, new_secret=OWN)

    assert members.group.owners == {P: "b"}


@pytest.mark.parametrize(
    "said",
    [
        {"instance_secret": INSTANCE},
        {"instance_id": "i", "instance_secret": "short"},
        {"instance_id": "i", "instance_secret": "x" * 256},
        {"instance_id": "i", "instance_secret": "\ud800" * 20},
    ],
)
def test_an_instance_secret_has_an_instance_and_a_length(said: dict[str, str]) -> None:
    refused(group_of_one(), InvalidSubscription, 10, **said)


def test_the_next_coordinator_knows_a_member_by_the_hash_that_was_recorded() -> None:
    record = group_of_one(instance_id="i", instance_secret=INSTANCE).group.record()
    nodes = member_values(record)
    read = record_of("g", group_value(record), nodes, {})
    assert read is not None
    assert OWN.encode() not in b"".join(nodes.values())
    assert INSTANCE.encode() not in b"".join(nodes.values())

    members = GroupMembership(restored(read, 2, LIMITS, {"t": 1}, {}, 0))

    refused(members, WrongMemberSecret, 10, member="a", secret=GUESS)
    refused(members, WrongMemberSecret, 10, instance_id="i")
    back = hello(member="a", secret=OWN, instance_id="i", instance_secret=INSTANCE)
    assert members.on_hello(back, 1, "x", 20, new_secret=UNUSED).id == "a"


def test_a_member_of_an_earlier_release_has_no_secret_and_joins_again() -> None:
    record = group_of_one().group.record()
    read = record_of("g", group_value(record), {"a": b'{"topics":["t"]}'}, {})
    assert read is not None
    members = GroupMembership(restored(read, 2, LIMITS, {"t": 1}, {}, 0))

    assert members.on_hello(hello(member="a"), 1, "x", 10, new_secret=OWN).id == "x"


def test_without_a_recorded_hash_nothing_is_a_proof() -> None:
    assert not is_proof(None, "")
    assert not is_proof("", "")
    assert not is_proof(OWN, "")
    assert is_proof(OWN, hash_of(OWN))
