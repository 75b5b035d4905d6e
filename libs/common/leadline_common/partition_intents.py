"""Orders about single partitions in ZooKeeper: to add one, to remove one, to elect by preference.

Paths and values are those of seed 1 and of Kafka's tools. Operators may write all of
them by hand, and then as little as a bare list of brokers, or nothing at all. Pure: no IO.
"""

from __future__ import annotations

import msgspec

from leadline_common import znodes


class AddIntent(msgspec.Struct, frozen=True):
    """A partition that a topic is to get, on these replicas (first = preferred leader).

    `topic_id`, if it is there, is that of the topic that was meant.
    """

    replicas: tuple[int, ...]
    topic_id: str = ""


class RemoveIntent(msgspec.Struct, frozen=True):
    """A partition that a topic is to lose; `topic_id` as for `AddIntent`."""

    topic_id: str = ""


class PartitionRef(msgspec.Struct, frozen=True):
    """A partition, as Kafka's preferred election names it."""

    topic: str
    partition: int


class PreferredElection(msgspec.Struct, frozen=True):
    """Partitions to be led by their preferred replicas; None means every one."""

    partitions: tuple[PartitionRef, ...] | None = None


def intents_path(root: str, topic: str) -> str:
    """Return the parent of the intents for a topic's partitions."""
    return f"{root}/{topic}"


def intent_path(root: str, topic: str, partition: int) -> str:
    """Return the intent for one partition; `root` is one of the roots in `znodes`."""
    return f"{root}/{topic}/{partition}"


def encode_removal(intent: RemoveIntent) -> bytes:
    """Encode the order to remove a partition."""
    return znodes.pack_value(msgspec.structs.asdict(intent), None)


def decode_addition(data: bytes) -> AddIntent:
    """Decode the order to add a partition; a bare list of brokers is one.

    Raises:
        msgspec.MsgspecError: the value is no such order.

    """
    value = msgspec.json.decode(data)
    if isinstance(value, list):
        value = {"replicas": value}
    return msgspec.convert(value, AddIntent)


def decode_removal(data: bytes) -> RemoveIntent:
    """Decode the order to remove a partition; an empty node is one.

    Raises:
        msgspec.MsgspecError: the value is no such order.

    """
    return msgspec.json.decode(data, type=RemoveIntent) if data.strip() else RemoveIntent()


def decode_preferred(data: bytes) -> PreferredElection:
    """Decode the order to elect preferred leaders (Kafka's JSON); an empty node means all.

    Raises:
        msgspec.MsgspecError: the value is no such order.

    """
    return (
        msgspec.json.decode(data, type=PreferredElection) if data.strip() else PreferredElection()
    )
