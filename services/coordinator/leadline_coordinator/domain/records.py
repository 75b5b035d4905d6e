"""What is read from and written to ZooKeeper, as the decisions see it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from leadline_client.channel import Assignor, Protocol

Partition: TypeAlias = tuple[str, int]
"""Topic and number."""


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """A topic: its id, and how many partitions it has."""

    topic_id: str
    partitions: int


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a member asked for when it joined: topics, or one pattern of topics."""

    client_id: str = ""
    instance_id: str | None = None
    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    threads: int = 1


@dataclass(frozen=True, slots=True)
class Committed:
    """A committed offset: the next record to read; `time_ms` is when, in Unix ms."""

    offset: int
    time_ms: int
    leader_epoch: int | None = None
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class Ends:
    """The readable range of a partition is [start, end).

    `found` is the first offset at or after a timestamp that was asked for, None without one.
    """

    start: int
    end: int
    found: int | None = None


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """All that ZooKeeper holds of a group but its offsets. `empty_since_ms` in Unix ms."""

    name: str
    assignor: Assignor
    protocol: Protocol
    generation: int
    members: Mapping[str, Subscription] = field(default_factory=dict)
    owners: Mapping[Partition, str] = field(default_factory=dict)
    empty_since_ms: int | None = None


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """A group as it was found: its record, and its committed offsets with their topics' ids."""

    record: GroupRecord
    offsets: Mapping[Partition, Committed]
    topic_ids: Mapping[str, str]
