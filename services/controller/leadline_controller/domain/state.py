"""What is read from ZooKeeper beside the image: who rules, who is live, what is to be deleted."""

from __future__ import annotations

import msgspec

from leadline_common.znodes import ControllerRegistration
from leadline_controller.domain.cluster import BrokerUp


class Holder(msgspec.Struct, frozen=True):
    """Who holds `/controller`, through which session, since which transaction."""

    registration: ControllerRegistration
    session_id: int
    zxid: int


class Term(msgspec.Struct, frozen=True):
    """One term of office: the controller epoch, and the version of its node (rule R11)."""

    epoch: int
    epoch_version: int


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
