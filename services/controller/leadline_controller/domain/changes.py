"""What can change in the cluster, as it is read from ZooKeeper or written to it.

`ClusterImage.apply` takes these in. `zxid` is the transaction that wrote the node.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from leadline_common.znodes import BrokerRegistration, PartitionState, TopicAssignment

NO_NODE = -1
"""The version of a node that does not exist: writing it means creating it."""


class BrokerUp(msgspec.Struct, frozen=True):
    """A broker registered; `zxid` is the transaction that created its ephemeral."""

    registration: BrokerRegistration
    zxid: int = 0


class BrokerDown(msgspec.Struct, frozen=True):
    """A broker's ephemeral is gone."""

    broker_id: int
    zxid: int = 0


class TopicSet(msgspec.Struct, frozen=True):
    """A topic node was read or written."""

    topic: str
    assignment: TopicAssignment
    version: int = 0
    zxid: int = 0


class ConfigsSet(msgspec.Struct, frozen=True):
    """A topic's dynamic settings were read or written; `NO_NODE` says that there are none.

    `problems` say by name what cannot be obeyed; without a name it is the whole node.
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
    """Partitions of a topic are ordered to be removed (rule R12)."""

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
