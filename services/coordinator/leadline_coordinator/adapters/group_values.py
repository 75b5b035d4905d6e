"""Conversion between the domain's records and the values of znodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar

import msgspec

from leadline_client.wire import TopicPartition
from leadline_common import consumer_znodes as nodes
from leadline_common.unreadable import UNREADABLE
from leadline_coordinator.domain.records import (
    CommittedOffset,
    GroupRecord,
    MemberCredentials,
    MemberSubscription,
)

_Node = TypeVar("_Node")
_decode_group = partial(nodes.decode, kind=nodes.GroupNode)
_decode_member = partial(nodes.decode, kind=nodes.MemberNode)
_decode_owners = partial(nodes.decode, kind=nodes.OwnersNode)
_decode_offset = partial(nodes.decode, kind=nodes.OffsetNode)


def decoded(decode: Callable[[bytes], _Node], data: bytes, path: str) -> _Node | None:
    """Decode a node; note it and return None if it is unreadable."""
    try:
        value = decode(data)
    except msgspec.MsgspecError as problem:
        UNREADABLE.add(path, problem)
        return None
    UNREADABLE.discard(path)
    return value


def group_value(record: GroupRecord) -> bytes:
    """Return the value of a group's node."""
    return nodes.encode(
        nodes.GroupNode(record.assignor, record.protocol, record.generation, record.empty_since_ms)
    )


def member_values(record: GroupRecord) -> dict[str, bytes]:
    """Return the values of the members' nodes, by member."""
    return {
        name: _member_value(subscription, record.credentials.get(name, MemberCredentials()))
        for name, subscription in record.members.items()
    }


def _member_value(subscription: MemberSubscription, credentials: MemberCredentials) -> bytes:
    node = msgspec.convert(subscription, nodes.MemberNode, from_attributes=True)
    return nodes.encode(
        msgspec.structs.replace(
            node,
            secret_hash=credentials.secret_hash,
            instance_hash=credentials.instance_hash,
        )
    )


def owner_values(owners: Mapping[TopicPartition, str]) -> dict[str, bytes]:
    """Return the values of the owners' nodes, by topic."""
    topics: dict[str, dict[int, str]] = {}
    for (topic, number), member in owners.items():
        topics.setdefault(topic, {})[number] = member
    return {topic: nodes.encode(nodes.owners_node(one)) for topic, one in topics.items()}


def offset_value(committed: CommittedOffset) -> bytes:
    """Return the value of an offset's node."""
    return nodes.encode(
        nodes.OffsetNode(
            committed.offset,
            committed.time_ms,
            committed.leader_epoch,
            committed.metadata,
            committed.topic_id,
            first_epoch=committed.first_epoch,
        )
    )


def offset_of(data: bytes, path: str) -> CommittedOffset | None:
    """Return a committed offset."""
    node = decoded(_decode_offset, data, path)
    if node is None:
        return None
    return CommittedOffset(
        node.offset, node.time, node.leader_epoch, node.metadata, node.topic_id, node.first_epoch
    )


def record_of(
    group: str, value: bytes, members: Mapping[str, bytes], owners: Mapping[str, bytes]
) -> GroupRecord | None:
    """Return a group's record; None if its node is unreadable."""
    node = decoded(_decode_group, value, nodes.group_path(group))
    if node is None:
        return None
    subscriptions, credentials = {}, {}
    for member, data in members.items():
        one = decoded(_decode_member, data, nodes.member_path(group, member))
        if one is not None:
            subscriptions[member] = msgspec.convert(one, MemberSubscription, from_attributes=True)
            credentials[member] = MemberCredentials(one.secret_hash, one.instance_hash)
    owned: dict[TopicPartition, str] = {}
    for topic, data in owners.items():
        row = decoded(_decode_owners, data, nodes.topic_owners_path(group, topic))
        if row is not None:
            owned |= {
                TopicPartition(topic, number): name for number, name in nodes.owners_of(row).items()
            }
    return GroupRecord(
        name=group,
        assignor=node.assignor,
        protocol=node.protocol,
        generation=node.generation,
        members=subscriptions,
        owners=owned,
        empty_since_ms=node.empty_since,
        credentials=credentials,
    )
