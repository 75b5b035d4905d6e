"""State read from ZooKeeper besides the image: leadership, live brokers, deletions."""

from __future__ import annotations

import msgspec

from leadline_common.znodes import ControllerRegistration
from leadline_controller.domain.cluster import BrokerUp


class Holder(msgspec.Struct, frozen=True):
    """The active controller: the session that owns `/controller`, and the zxid of its creation."""

    registration: ControllerRegistration
    session_id: int
    zxid: int


class Term(msgspec.Struct, frozen=True):
    """One leadership term: the controller epoch, and the version of its node (rule R11)."""

    epoch: int
    epoch_version: int


class LiveBrokers(msgspec.Struct, frozen=True):
    """The registered brokers; `zxid` is the last transaction that created a registration."""

    brokers: dict[int, BrokerUp]
    zxid: int


class Tombstone(msgspec.Struct, frozen=True):
    """A request to delete a topic (rule R12); with an empty id it matches any topic of the name."""

    topic: str
    topic_id: str


class ReadNode(msgspec.Struct, frozen=True):
    """A node's value, data version and number of children."""

    data: bytes
    version: int
    children: int
