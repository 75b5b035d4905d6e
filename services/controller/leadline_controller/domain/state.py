"""What is read from ZooKeeper beside the image: live brokers, pending deletions, any node."""

from __future__ import annotations

import msgspec

from leadline_controller.domain.cluster import BrokerUp


class LiveBrokers(msgspec.Struct, frozen=True):
    """The registered brokers; `zxid` is the last transaction that changed who they are."""

    brokers: dict[int, BrokerUp]
    zxid: int


class Tombstone(msgspec.Struct, frozen=True):
    """An order to delete a topic (rule R12); an empty id means whichever topic has the name."""

    topic: str
    topic_id: str


class ReadNode(msgspec.Struct, frozen=True):
    """A node's value, data version and number of children."""

    data: bytes
    version: int
    children: int
