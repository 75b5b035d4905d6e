"""Who may commit what: the present owner, under its present generation (rule R16)."""

from __future__ import annotations

from leadline_client.errors import GroupNotEmpty, PartitionNotOwned, StaleGeneration
from leadline_coordinator.domain.group import Group
from leadline_coordinator.domain.members import Member
from leadline_coordinator.domain.records import Partition


def committing_member(
    group: Group, name: str | None, generation: int | None, epoch: int | None
) -> Member | None:
    """Return the member that commits; None where a group without members is committed for.

    Raises:
        GroupNotEmpty: no member is named, and the group has some.
        UnknownMember: the group has no such member.
        StaleGeneration: the member is told of another generation or coordinator by now.

    """
    if name is None:
        if group.is_active:
            raise GroupNotEmpty(f"group {group.name!r} has members: only they may commit")
        return None
    member = group.member(name)
    if epoch != group.epoch:
        raise StaleGeneration(
            f"the coordinator epoch is {group.epoch}, not {epoch}", coordinator_epoch=group.epoch
        )
    if generation not in (member.told, member.confirmed):
        raise StaleGeneration(
            f"the member is of generation {member.told}, not {generation}", generation=member.told
        )
    return member


def check_owned(member: Member | None, partition: Partition) -> None:
    """Refuse the commit of what the member has given up, or never had.

    Raises:
        PartitionNotOwned: the member does not hold the partition.

    """
    if member is not None and partition not in member.held:
        topic, number = partition
        raise PartitionNotOwned(f"{topic}-{number} is not owned by {member.id}")
