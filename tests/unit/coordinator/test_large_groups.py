"""What a coordinator does on its event loop for each member must not grow with the whole group."""

from __future__ import annotations

from typing import Any

import pytest

from leadline_client.channel import Hello, Start, partition_pairs
from leadline_client.wire import TopicPartition
from leadline_coordinator.domain.credentials import hash_of
from leadline_coordinator.domain.effects import SendToMember
from leadline_coordinator.domain.group import Group
from leadline_coordinator.domain.members import GroupLimits
from leadline_coordinator.domain.membership import GroupMembership, restored
from leadline_coordinator.domain.records import GroupRecord, MemberCredentials, MemberSubscription

OWN = "the secret of every member here"
MEMBERS = [f"m{number}" for number in range(20)]
OWNERS = {TopicPartition("t", number): MEMBERS[number % 20] for number in range(60)}


class CountedOwners(dict[TopicPartition, str]):
    """Owners that count how often all of them are read."""

    reads = 0

    def items(self) -> Any:
        """Return all owners."""
        self.reads += 1
        return super().items()


def taken_over(*, static: bool) -> tuple[Group, CountedOwners]:
    """Return a group as a new coordinator finds it, and its owners."""
    credentials = MemberCredentials(hash_of(OWN), hash_of(OWN) if static else "")
    record = GroupRecord(
        "g",
        "range",
        "eager",
        3,
        {
            name: MemberSubscription(instance_id=name if static else None, topics=("t",))
            for name in MEMBERS
        },
        OWNERS,
        credentials=dict.fromkeys(MEMBERS, credentials),
    )
    group = restored(record, 2, GroupLimits(), {"t": len(OWNERS)}, {}, 0)
    group.awaited = set(MEMBERS)
    group.owners = owners = CountedOwners(group.owners)
    return group, owners


def join(group: Group, **said: Any) -> None:
    """Let each member, or its successor, say hello."""
    members = GroupMembership(group)
    for connection, name in enumerate(MEMBERS, 1):
        proof = dict.fromkeys(said.get("names", ()), name) | said.get("secrets", {})
        hello = Hello(topics=("t",), **proof)
        members.on_hello(hello, connection, f"{name}-new", 10, new_secret=OWN)


def test_the_members_that_return_after_an_election_read_the_owners_of_the_group_once() -> None:
    group, owners = taken_over(static=False)

    join(group, names=["member"], secrets={"secret": OWN})

    frames = [one.frame for one in group.effects if isinstance(one, SendToMember)]
    started = [set(partition_pairs(one.assignment)) for one in frames if isinstance(one, Start)]
    expected = [{one for one, owner in OWNERS.items() if owner == name} for name in MEMBERS]
    assert started == expected
    assert owners.reads <= 1


def test_static_members_that_are_all_replaced_read_the_owners_of_the_group_once() -> None:
    group, owners = taken_over(static=True)

    join(group, names=["instance_id"], secrets={"instance_secret": OWN})

    assert dict(group.owners) == {one: f"{owner}-new" for one, owner in OWNERS.items()}
    assert owners.reads <= 1


@pytest.mark.parametrize("name", MEMBERS[:2])
def test_what_a_member_owns_follows_the_owners(name: str) -> None:
    group, _ = taken_over(static=True)
    before = group.owned_by(name)

    group.hand_over(name, "successor")
    handed_over = group.owned_by("successor"), group.owned_by(name)
    group.owners = {TopicPartition("t", 7): name}

    assert handed_over == (before, set())
    assert group.owned_by(name) == {TopicPartition("t", 7)}
    assert group.owned_by("successor") == set()
