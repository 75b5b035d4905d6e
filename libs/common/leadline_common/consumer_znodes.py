"""The znodes of consumer groups under `/consumers`: paths, values, codec. Pure: no IO.

    /consumers/coordinator                        ephemeral: the active coordinator
    /consumers/coordinator_epoch                  each election adds 1; writes check its version
    /consumers/groups/{g}                         assignor, protocol, generation, empty since when
    /consumers/groups/{g}/ids/{member}            the member's subscription, hashes of its secrets
    /consumers/groups/{g}/owners/{topic}          the owner of each partition of a topic
    /consumers/groups/{g}/offsets/{topic}         empty
    /consumers/groups/{g}/offsets/{topic}/{p}     committed offset, and the topic's id

Only the coordinator writes here. The Consumer Coordinator design has one owner node per partition;
here there is one per topic, so that a rebalance moves any number of partitions in one transaction.
Offsets have one node per partition, so that a commit writes only the offsets that it commits. Each
names the id of its topic, because a deleted topic can be recreated while its offsets still exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeVar
from urllib.parse import quote, unquote

import msgspec

from leadline_client.channel import Assignor, Protocol
from leadline_common.versions import VersionedRegistration
from leadline_common.znode_json import decode_json

CONSUMERS: Final = "/consumers"
COORDINATOR: Final = "/consumers/coordinator"
COORDINATOR_EPOCH: Final = "/consumers/coordinator_epoch"
GROUPS: Final = "/consumers/groups"

NO_OWNER: Final = -1
"""The index of a partition without an owner."""


def node_name(name: str) -> str:
    """Return a group's or member's name, which may be any text, as the name of a znode."""
    return quote(name, safe=" !$&'()*+,:;=@[]{}|<>?^~") if name not in (".", "..") else f"%{name}"


def name_of_node(node: str) -> str:
    """Return the group's or member's name of a znode; the inverse of `node_name`."""
    return node[1:] if node in ("%.", "%..") else unquote(node)


def group_path(group: str) -> str:
    """Return the node of a group."""
    return f"{GROUPS}/{node_name(group)}"


def ids_path(group: str) -> str:
    """Return the parent of a group's members."""
    return f"{group_path(group)}/ids"


def member_path(group: str, member: str) -> str:
    """Return the node of one member."""
    return f"{ids_path(group)}/{node_name(member)}"


def owners_path(group: str) -> str:
    """Return the parent of a group's owners."""
    return f"{group_path(group)}/owners"


def topic_owners_path(group: str, topic: str) -> str:
    """Return the node with the owners of one topic's partitions."""
    return f"{owners_path(group)}/{topic}"


def offsets_path(group: str) -> str:
    """Return the parent of a group's committed offsets."""
    return f"{group_path(group)}/offsets"


def topic_offsets_path(group: str, topic: str) -> str:
    """Return the parent of the committed offsets of one topic."""
    return f"{offsets_path(group)}/{topic}"


def offset_path(group: str, topic: str, partition: int) -> str:
    """Return the node of one committed offset."""
    return f"{offsets_path(group)}/{topic}/{partition}"


class CoordinatorRegistration(VersionedRegistration, frozen=True):
    """The active coordinator, in `/consumers/coordinator`; `timestamp` is in Unix ms.

    Other services call it at `internal_url`, clients at `url`.
    """

    id: int
    url: str
    timestamp: int
    version: int = 1
    internal_url: str = ""


class GroupNode(msgspec.Struct, frozen=True):
    """The state of a group. `empty_since` is in Unix ms, None while it has members."""

    assignor: Assignor
    protocol: Protocol
    generation: int
    empty_since: int | None = None
    version: int = 1


class MemberNode(msgspec.Struct, frozen=True, omit_defaults=True):
    """A member's subscription when it joined, and SHA-256 of its secrets, in hex.

    A member that polls over HTTP has a `session_timeout_ms`, and starts at `offset_reset`.
    """

    client_id: str = ""
    instance_id: str | None = None
    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    threads: int = 1
    topic_threads: tuple[tuple[str, int], ...] = ()
    secret_hash: str = ""
    instance_hash: str = ""
    version: int = 1
    session_timeout_ms: int | None = None
    offset_reset: Literal["earliest", "latest"] = "earliest"


class OwnersNode(msgspec.Struct, frozen=True):
    """The owners of a topic's partitions: partition p belongs to `members[owners[p]]`."""

    members: tuple[str, ...]
    owners: tuple[int, ...]
    version: int = 1


class OffsetNode(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A committed offset: the next record to read. `time` is when it was committed, Unix ms.

    It is valid only for the topic with the id `topic_id`; empty means that the id is unknown. One
    without a leader epoch has the `first_epoch` of its partition, which a removal changes.
    """

    offset: int
    time: int
    leader_epoch: int | None = None
    metadata: str = ""
    topic_id: str = ""
    version: int = 1
    first_epoch: int | None = None


_Node = TypeVar("_Node", bound=msgspec.Struct)


def encode(node: msgspec.Struct) -> bytes:
    """Encode any of the values above."""
    return msgspec.json.encode(node)


def decode(data: bytes, kind: type[_Node]) -> _Node:
    """Decode one of the values above.

    Raises:
        msgspec.MsgspecError: the data is no such value.

    """
    value: _Node = decode_json(data or b"{}", kind)
    return value


def owners_node(owners: Mapping[int, str]) -> OwnersNode:
    """Return the value of the node with the owners of one topic's partitions."""
    members = sorted(set(owners.values()))
    index = {member: place for place, member in enumerate(members)}
    last = max(owners, default=-1)
    row = (index.get(owners.get(number, ""), NO_OWNER) for number in range(last + 1))
    return OwnersNode(tuple(members), tuple(row))


def owners_of(node: OwnersNode) -> dict[int, str]:
    """Return the owners by partition, without the partitions that have none."""
    members = node.members
    return {
        number: members[place]
        for number, place in enumerate(node.owners)
        if 0 <= place < len(members)
    }
