"""The changes that `ClusterImage.apply` accepts: nodes that were read from or written to ZooKeeper.

`zxid` is the transaction that wrote the node.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from leadline_common.znodes import BrokerRegistration, PartitionState, TopicAssignment

NO_NODE = -1
"""The version of a node that does not exist: writing it means creating it."""


class BrokerUp(msgspec.Struct, frozen=True):
    """A broker registered; `zxid` is the transaction that created its ephemeral node."""

    registration: BrokerRegistration
    zxid: int = 0


class BrokerDown(msgspec.Struct, frozen=True):
    """The ephemeral node of a broker is gone."""

    broker_id: int
    zxid: int = 0


class TopicSet(msgspec.Struct, frozen=True):
    """A topic node was read or written."""

    topic: str
    assignment: TopicAssignment
    version: int = 0
    zxid: int = 0


class ConfigsSet(msgspec.Struct, frozen=True):
    """A topic's dynamic configs were read or written; version `NO_NODE` means that it has none.

    `problems` maps the names of invalid configs to the reasons; the empty name stands for
    the whole node.
    """

    topic: str
    configs: Mapping[str, str]
    zxid: int = 0
    version: int = NO_NODE
    problems: Mapping[str, str] = {}


class StateSet(msgspec.Struct, frozen=True, gc=False):
    """A partition's state node was read or written."""

    topic: str
    partition: int
    state: PartitionState
    version: int
    zxid: int = 0


class DeletionPending(msgspec.Struct, frozen=True):
    """A topic has a tombstone (rule R12)."""

    topic: str
    zxid: int = 0


class RemovalPending(msgspec.Struct, frozen=True):
    """Partitions of a topic are pending removal (rule R12)."""

    topic: str
    partitions: frozenset[int]
    zxid: int = 0


class TopicGone(msgspec.Struct, frozen=True):
    """A topic node is gone."""

    topic: str
    zxid: int = 0


Change: TypeAlias = (
    StateSet
    | TopicSet
    | ConfigsSet
    | BrokerUp
    | BrokerDown
    | DeletionPending
    | RemovalPending
    | TopicGone
)
