"""State read from ZooKeeper besides the image: live brokers, deletions, single nodes."""

from __future__ import annotations

import msgspec

from leadline_controller.domain.cluster import BrokerUp


class LiveBrokers(msgspec.Struct, frozen=True):
    """The registered brokers; `zxid` is the last transaction that created a registration."""

    brokers: dict[int, BrokerUp]
    zxid: int


class Tombstone(msgspec.Struct, frozen=True):
    """A request to delete a topic (rule R12); with an empty id it matches any topic of the name."""

    topic: str
    topic_id: str


class ReadNode(msgspec.Struct, frozen=True):
    """A node's value and data version."""

    data: bytes
    version: int
