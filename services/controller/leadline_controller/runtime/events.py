"""What can happen to the active controller, as frozen types; one queue carries them.

Watches, timers, brokers and the API only put events in; the engine alone acts on
them, one after another. `at_ms` is the monotonic time of the occurrence.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from leadline_client.wire import NewTopic
from leadline_controller.domain.cluster import TopicPartition
from leadline_controller.domain.failover import StateDecision

_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Event:
    cause: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class BrokerGone(_Event):
    """The watch on one broker's registration fired: it failed, or bounced."""

    broker_id: int
    incarnation: int


@dataclass(frozen=True, slots=True)
class BrokersChanged(_Event):
    """The watch on the list of brokers fired, or a broker speaks that is not known."""


@dataclass(frozen=True, slots=True)
class TopicsChanged(_Event):
    """The watch on the list of topics fired."""


@dataclass(frozen=True, slots=True)
class DeletionsChanged(_Event):
    """The watch on the tombstones fired."""


@dataclass(frozen=True, slots=True)
class TopicStopped(_Event):
    """Every live broker has acknowledged that it stopped and deleted a topic's replicas."""

    topic: str


@dataclass(frozen=True, slots=True)
class IsrChanged(_Event):
    """Leaders wrote these partitions' ISR."""

    names: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Reconcile(_Event):
    """Compare everything with ZooKeeper (rule R8): by timer, on reconnection, in doubt."""


@dataclass(frozen=True, slots=True, eq=False)
class CreateTopic(_Event):
    """An operator creates a topic. `reply` gets its replicas once the states are written."""

    new: NewTopic
    dry_run: bool
    reply: asyncio.Future[Mapping[int, tuple[int, ...]]] = field(repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class DeleteTopic(_Event):
    """An operator deletes a topic. `reply` gets the topic id once the tombstone stands."""

    topic: str
    reply: asyncio.Future[str] = field(repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class ElectLeaders(_Event):
    """An operator asks for elections; `names` None means every partition."""

    unclean: bool
    names: tuple[TopicPartition, ...] | None
    reply: asyncio.Future[list[StateDecision]] = field(repr=False)


def settle(reply: asyncio.Future[_Answer], value: _Answer) -> None:
    """Answer a request, unless whoever asked has given up waiting."""
    if not reply.done():
        reply.set_result(value)


Event: TypeAlias = (
    BrokerGone
    | BrokersChanged
    | TopicsChanged
    | DeletionsChanged
    | TopicStopped
    | IsrChanged
    | Reconcile
    | CreateTopic
    | DeleteTopic
    | ElectLeaders
)
Request: TypeAlias = CreateTopic | DeleteTopic | ElectLeaders
"""Events that somebody awaits the outcome of."""
