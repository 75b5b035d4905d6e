"""Who may commit which offsets: the present owner under its present generation (rule R16).

A commit also belongs to one topic: a deleted topic may be recreated under its name (rule R1).
The commits of one member are ordered by a sequence number that the member gives them, because
a request may be delayed on its way, and arrive after later ones.
"""

from __future__ import annotations

from collections.abc import Mapping

from leadline_client.errors import (
    GroupNotEmpty,
    PartitionNotOwned,
    RebalanceInProgress,
    StaleGeneration,
    TopicIdMismatch,
    UnknownPartition,
    UnknownTopic,
)
from leadline_client.wire import TopicPartition
from leadline_coordinator.domain.credentials import check_member_secret
from leadline_coordinator.domain.group import Group
from leadline_coordinator.domain.members import GroupMember
from leadline_coordinator.domain.records import CommittedOffset, TopicState


def committing_member(
    group: Group,
    member_id: str | None,
    generation: int | None,
    epoch: int | None,
    secret: str | None,
) -> GroupMember | None:
    """Return the member that commits, or None for a group without members.

    Raises:
        GroupNotEmpty, RebalanceInProgress: no member is named, and the group has or had some.
        UnknownMember: the group has no such member.
        WrongMemberSecret: the caller is not the member.
        StaleGeneration: generation or coordinator epoch are not the member's present ones.

    """
    if member_id is None:
        check_without_members(group)
        return None
    member = group.member(member_id)
    check_member_secret(member, secret)
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


def check_without_members(group: Group) -> None:
    """Refuse a change that needs a group whose partitions nobody consumes.

    Raises:
        GroupNotEmpty: the group has members.
        RebalanceInProgress: it has none, but former members may still be consuming.

    """
    if group.members:
        raise GroupNotEmpty(f"group {group.name!r} has {len(group.members)} members")
    if group.is_active:
        reason = f"former members of group {group.name!r} may still be consuming: try again"
        raise RebalanceInProgress(reason)


def check_owned(member: GroupMember | None, topic_partition: TopicPartition) -> None:
    """Refuse a commit for a partition that the member does not hold.

    Raises:
        PartitionNotOwned: the member gave the partition up, or never had it.

    """
    if member is not None and topic_partition not in member.held:
        raise PartitionNotOwned(f"{topic_partition} is not owned by {member.id}")


def existing_topic(
    topics: Mapping[str, TopicState], topic_partition: TopicPartition, topic_id: str | None = None
) -> TopicState:
    """Return the topic of a partition; `topic_id` is the id that the caller knows, if any.

    Raises:
        UnknownTopic, UnknownPartition: it does not exist.
        TopicIdMismatch: the topic has another id, because it was recreated.

    """
    name, number = topic_partition
    topic = topics.get(name)
    if topic is None:
        raise UnknownTopic(f"topic {name!r} does not exist")
    if number >= topic.partitions:
        raise UnknownPartition(
            f"topic {name!r} has {topic.partitions} partitions, not {number + 1}"
        )
    if topic_id not in (None, topic.topic_id):
        raise TopicIdMismatch(f"topic {name!r} was deleted and recreated: its id is another one")
    return topic


def is_outdated(
    topics: Mapping[str, TopicState], topic_partition: TopicPartition, committed: CommittedOffset
) -> bool:
    """Tell whether an offset belongs to a partition or to a topic that does not exist any more."""
    topic = topics.get(topic_partition.topic)
    if topic is None or topic_partition.partition >= topic.partitions:
        return True
    if committed.topic_id not in ("", topic.topic_id):
        return True
    known = committed.leader_epoch, committed.first_epoch
    epoch = next((one for one in known if one is not None and one >= 0), None)
    return epoch is not None and epoch < topic.first_epochs.get(topic_partition.partition, 0)


def first_epoch(topic: TopicState, partition: int, leader_epoch: int | None) -> int | None:
    """Return what tells of which partition an offset is that is committed now; see `is_outdated`.

    If its own epoch is known, that does.
    """
    if leader_epoch is not None and leader_epoch >= 0:
        return None
    return topic.first_epochs.get(partition, 0)


def is_superseded(
    member: GroupMember | None, topic_partition: TopicPartition, sequence: int | None
) -> bool:
    """Tell whether the member has made a later commit; if not, remember this one.

    The same number again is a repetition of a request whose answer was lost. It takes effect,
    because its first outcome may have been a failure. Without a number a commit is in the order
    of its arrival.
    """
    if member is None or sequence is None:
        return False
    last = member.commit_sequences.get(topic_partition, sequence)
    member.commit_sequences[topic_partition] = max(last, sequence)
    return sequence < last
