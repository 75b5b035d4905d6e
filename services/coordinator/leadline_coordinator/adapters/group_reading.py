"""Reading many consumer groups from ZooKeeper at once.

The number of round trips does not grow with the groups, members and topics that are read
together. The number of requests does, by one for each batch of nodes. Offsets are the most: they
are read some at a time, so that others are served meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from leadline_client.wire import TopicPartition
from leadline_common import consumer_znodes as nodes
from leadline_common.slices import slices
from leadline_common.zk.errors import NotPermitted
from leadline_common.zk.session import ZkSession
from leadline_common.znode_json import NO_DATA, node_number
from leadline_coordinator.adapters.group_values import offset_of, record_of
from leadline_coordinator.domain.records import CommittedOffset, StoredGroup

_OFFSETS_AT_ONCE: Final = 5_000


@dataclass(slots=True)
class WrittenGroup:
    """The nodes of one group as they are in ZooKeeper."""

    group: bytes | None = None
    members: dict[str, bytes] = field(default_factory=dict)
    owners: dict[str, bytes] = field(default_factory=dict)
    offsets: dict[str, set[int]] = field(default_factory=dict)
    """The partitions that have an offset node, by topic."""


@dataclass(frozen=True, slots=True)
class ReadGroup:
    """A group's nodes, and what they say; `stored` is None if the group's node is unreadable.

    `forbidden` names a node that the session may not read; the rest is then not complete.
    """

    written: WrittenGroup
    stored: StoredGroup | None
    forbidden: str = ""


@dataclass(slots=True)
class _Listing:
    """The names of a group's nodes."""

    group: str
    value: bytes
    members: Sequence[str]
    topics: Sequence[str]
    committed: Sequence[str]
    forbidden: str = ""
    """A node that the session may not read, if there is one."""
    offsets: list[TopicPartition] = field(default_factory=list)

    def value_paths(self) -> Iterator[str]:
        """Yield the paths of the members' and owners' nodes."""
        for name in self.members:
            yield f"{nodes.ids_path(self.group)}/{name}"
        for name in self.topics:
            yield f"{nodes.owners_path(self.group)}/{name}"


async def read_groups(session: ZkSession, groups: Sequence[str]) -> dict[str, ReadGroup]:
    """Read groups in few round trips; those without a node are left out."""
    listings = await _list(session, groups)
    values, _ = await asyncio.gather(
        _values(session, [path for one in listings for path in one.value_paths()]),
        _list_offsets(session, listings),
    )
    offsets = (nodes.offset_path(one.group, *each) for one in listings for each in one.offsets)
    async for paths in slices(offsets, _OFFSETS_AT_ONCE):
        values |= await _values(session, paths)
    has_refused = NO_DATA in values.values()
    found = {}
    for one in listings:
        if has_refused:
            _note_forbidden(one, values)
        found[one.group] = _read_group(one, values)
        await asyncio.sleep(0)  # Groups may be large, and the session has heartbeats to send.
    return found


async def _list(session: ZkSession, groups: Sequence[str]) -> list[_Listing]:
    parts = (nodes.ids_path, nodes.owners_path, nodes.offsets_path)
    found, children = await asyncio.gather(
        session.get_many([nodes.group_path(group) for group in groups]),
        session.get_permitted_children([path_of(group) for group in groups for path_of in parts]),
    )
    names = iter(children)
    return [
        _listing(group, node[0], each)
        for group, node, *each in zip(groups, found, names, names, names, strict=True)
        if node is not None
    ]


def _listing(
    group: str, value: bytes, children: Sequence[Sequence[str] | NotPermitted | None]
) -> _Listing:
    refused = [one.path for one in children if isinstance(one, NotPermitted)]
    if value == NO_DATA:
        refused.append(nodes.group_path(group))
    members, topics, committed = ([] if isinstance(one, NotPermitted) else one for one in children)
    forbidden = refused[0] if refused else ""
    return _Listing(group, value, members or (), topics or (), committed or (), forbidden)


async def _values(session: ZkSession, paths: Sequence[str]) -> dict[str, bytes]:
    """Return the data of the nodes that exist, by path."""
    found = await session.get_many(paths)
    return {path: node[0] for path, node in zip(paths, found, strict=True) if node is not None}


async def _list_offsets(session: ZkSession, listings: Sequence[_Listing]) -> None:
    """Add to each listing the partitions that have an offset node."""
    parents = [(one, topic) for one in listings for topic in one.committed]
    paths = [nodes.topic_offsets_path(one.group, topic) for one, topic in parents]
    children = await session.get_permitted_children(paths)
    for (one, topic), names in zip(parents, children, strict=True):
        if isinstance(names, NotPermitted):
            one.forbidden = names.path
            continue
        numbers = map(node_number, names or [])
        one.offsets += [TopicPartition(topic, number) for number in numbers if number is not None]


def _note_forbidden(listing: _Listing, values: Mapping[str, bytes]) -> None:
    """Note a node of the listing whose value may not be read."""
    offsets = (nodes.offset_path(listing.group, *one) for one in listing.offsets)
    for path in chain(listing.value_paths(), offsets):
        if values.get(path) == NO_DATA:
            listing.forbidden = path


def _read_group(listing: _Listing, values: Mapping[str, bytes]) -> ReadGroup:
    group = listing.group
    members = {
        nodes.name_of_node(name): values[path]
        for name in listing.members
        if (path := f"{nodes.ids_path(group)}/{name}") in values
    }
    owners = {
        name: values[path]
        for name in listing.topics
        if (path := f"{nodes.owners_path(group)}/{name}") in values
    }
    present: dict[str, set[int]] = {topic: set() for topic in listing.committed}
    for topic, number in listing.offsets:
        present[topic].add(number)
    written = WrittenGroup(listing.value, members, owners, present)
    if listing.forbidden:
        return ReadGroup(written, None, listing.forbidden)
    record = record_of(group, listing.value, members, owners)
    stored = None if record is None else StoredGroup(record, _offsets(listing, values))
    return ReadGroup(written, stored)


def _offsets(
    listing: _Listing, values: Mapping[str, bytes]
) -> dict[TopicPartition, CommittedOffset]:
    """Return the committed offsets that are readable."""
    offsets = {}
    for topic_partition in listing.offsets:
        path = nodes.offset_path(listing.group, *topic_partition)
        committed = offset_of(values[path], path) if path in values else None
        if committed is not None:
            offsets[topic_partition] = committed
    return offsets
