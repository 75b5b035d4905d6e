"""State read from ZooKeeper besides the image: live brokers, deletions, single nodes."""

from __future__ import annotations

import msgspec

from leadline_controller.domain.cluster import BrokerUp


class LiveBrokers(msgspec.Struct, frozen=True):
    """The registered brokers; `zxid` is the last transaction that created a registration."""

    brokers: dict[int, BrokerUp]
    zxid: int


class Tombstone(msgspec.Struct, frozen=True):
    """A request to delete a topic (rule R12); with an empty id it matches any topic of the name.

    `zxid` is the transaction that created the node.
    """

    topic: str
    topic_id: str
    zxid: int = 0


class ReadNode(msgspec.Struct, frozen=True):
    """A node's value, its data version, and the transaction (zxid) that last wrote it."""

    data: bytes
    version: int
    zxid: int = 0


class AuditedTransactions(msgspec.Struct, frozen=True):
    """The transactions with an audit entry; only those from `since` on (a zxid) are known."""

    zxids: frozenset[int]
    since: int

    def lacks(self, zxid: int) -> bool:
        """Tell whether a transaction certainly has no entry."""
        return zxid >= self.since and zxid not in self.zxids
