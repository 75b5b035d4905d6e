"""Who may commit which offsets: the present owner under its present generation (rule R16)."""

from __future__ import annotations

from leadline_client.errors import GroupNotEmpty, PartitionNotOwned, StaleGeneration
from leadline_client.wire import TopicPartition
from leadline_coordinator.domain.group import Group
from leadline_coordinator.domain.members import GroupMember


def committing_member(
    group: Group, member_id: str | None, generation: int | None, epoch: int | None
) -> GroupMember | None:
    """Return the member that commits, or None for a group without members.

    Raises:
        GroupNotEmpty: no member is named, and the group has some.
        UnknownMember: the group has no such member.
        StaleGeneration: generation or coordinator epoch are not the member's present ones.

    """
    if member_id is None:
        if group.is_active:
            raise GroupNotEmpty(f"group {group.name!r} has members: only they may commit")
        return None
    member = group.member(member_id)
    if epoch != group.epoch:
        raise StaleGeneration(
            f"the coordinator epoch is {group.epoch}, not {epoch}", coordinator_epoch=group.epoch
        )
    if generation not in (member.sent_generation, member.confirmed_generation):
        raise StaleGeneration(
            f"the member's generation is {member.sent_generation}, not {generation}",
            generation=member.sent_generation,
        )
    return member


def check_owned(member: GroupMember | None, topic_partition: TopicPartition) -> None:
    """Refuse a commit for a partition that the member does not hold.

    Raises:
        PartitionNotOwned: the member gave the partition up, or never had it.

    """
    if member is not None and topic_partition not in member.held:
        raise PartitionNotOwned(f"{topic_partition} is not owned by {member.id}")
