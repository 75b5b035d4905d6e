"""Intents for single partitions in ZooKeeper: add it, remove it, elect its preferred leader.

Paths and values are those of Replication V3 and of Kafka's tools. Operators may write these nodes
directly, with only a list of brokers or without a value. Pure: no IO.
"""

from __future__ import annotations

import msgspec

from leadline_common.znode_json import (
    MAX_NODE_PARTITION,
    check_range,
    decode_json,
    node_number,
)


class AddIntent(msgspec.Struct, frozen=True):
    """A partition to add, on these replicas (first = preferred leader).

    `topic_id`, if set, is the id of the intended topic.
    """

    replicas: tuple[int, ...]
    topic_id: str = ""


class RemoveIntent(msgspec.Struct, frozen=True):
    """A partition to remove; `topic_id` as in `AddIntent`."""

    topic_id: str = ""


class PartitionRef(msgspec.Struct, frozen=True):
    """A partition, as in Kafka's JSON for preferred elections."""

    topic: str
    partition: int


class PreferredElection(msgspec.Struct, frozen=True):
    """Partitions whose preferred leaders to elect; None means all partitions."""

    partitions: tuple[PartitionRef, ...] | None = None


def intents_path(root: str, topic: str) -> str:
    """Return the parent of the intents for a topic's partitions."""
    return f"{root}/{topic}"


def intent_path(root: str, topic: str, partition: int) -> str:
    """Return the intent for one partition; `root` is one of the roots in `znodes`."""
    return f"{root}/{topic}/{partition}"


def is_partition(name: str) -> bool:
    """Tell whether a node's name is a partition number as it is usually written."""
    number = node_number(name)
    return number is not None and number <= MAX_NODE_PARTITION


def decode_addition(data: bytes) -> AddIntent:
    """Decode the intent to add a partition; a bare list of brokers is one.

    Raises:
        msgspec.MsgspecError: the value is no such intent.

    """
    value = decode_json(data)
    if isinstance(value, list):
        value = {"replicas": value}
    intent = msgspec.convert(value, AddIntent)
    check_range("broker", intent.replicas, 0)
    return intent


def decode_removal(data: bytes) -> RemoveIntent:
    """Decode the intent to remove a partition; an empty node is one.

    Raises:
        msgspec.MsgspecError: the value is no such intent.

    """
    intent: RemoveIntent = decode_json(data.strip() or b"{}", RemoveIntent)
    return intent


def decode_preferred(data: bytes) -> PreferredElection:
    """Decode the intent to elect preferred leaders (Kafka's JSON); an empty node means all.

    Raises:
        msgspec.MsgspecError: the value is no such intent.

    """
    intent: PreferredElection = decode_json(data.strip() or b"{}", PreferredElection)
    return intent
