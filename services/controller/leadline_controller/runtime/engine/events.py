"""What can happen to the active controller, as frozen types; one queue carries them.

Watches, timers, brokers and the API only put events in; the engine alone acts on
them, one after another. `at_ms` is the monotonic time of the occurrence. Each duty
of the controller may keep further events beside its keeper: three bases say how the
engine treats them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from leadline_client.errors import LeadlineError
from leadline_client.wire import NewTopic, TopicPartition
from leadline_common.tasks import TargetRow
from leadline_controller.domain.failover import StateDecision
from leadline_controller.runtime.engine.guard import Guard

_Answer = TypeVar("_Answer")

TOPICS_NAMED = 100
"""Topics that the audit names of a request about several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened."""

    cause: str
    at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Hint(Event):
    """Says no more than "look again": one of a kind in the queue is enough."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Request(Event, Generic[_Answer]):
    """What somebody asks for, and awaits the outcome of in `reply`.

    `guard` says under which condition it is to be handled, if under any.
    One that can be tried without effect has a member `dry_run`. `about` says in
    the audit what a request that was refused, or was only tried, was about.
    """

    reply: asyncio.Future[_Answer] = field(repr=False)
    guard: Guard | None = None

    @property
    def is_tried(self) -> bool:
        """Whether nothing is to be changed."""
        return bool(getattr(self, "dry_run", False))

    @property
    def about(self) -> Mapping[str, Any]:
        """What the request is about."""
        return {}

    def settle(self, value: _Answer) -> None:
        """Answer, unless whoever asked has given up waiting."""
        if not self.reply.done():
            self.reply.set_result(value)

    def refuse(self, problem: LeadlineError) -> None:
        """Say that it failed, unless whoever asked has given up waiting."""
        if not self.reply.done():
            self.reply.set_exception(problem)


def about_partitions(names: Iterable[TopicPartition | TargetRow]) -> Mapping[str, Any]:
    """Say what a request is about that names partitions: one, those of one topic, or more."""
    named = sorted({(name.topic, name.partition) for name in names})
    topics = sorted({topic for topic, _ in named})
    if len(named) == 1:
        return {"topic": topics[0], "partition": named[0][1]}
    return {"topic": topics[0]} if len(topics) == 1 else {"topics": topics[:TOPICS_NAMED]}


@dataclass(frozen=True, slots=True)
class BrokerGone(Event):
    """The watch on one broker's registration fired: it failed, or bounced."""

    broker_id: int
    incarnation: int


@dataclass(frozen=True, slots=True)
class BrokersChanged(Hint):
    """The watch on the list of brokers fired, or a broker speaks that is not known."""


@dataclass(frozen=True, slots=True)
class TopicsChanged(Hint):
    """The watch on the list of topics fired."""


@dataclass(frozen=True, slots=True)
class DeletionsChanged(Hint):
    """The watch on the tombstones fired."""


@dataclass(frozen=True, slots=True)
class Reconcile(Hint):
    """Compare everything with ZooKeeper (rule R8): by timer, on reconnection, in doubt."""


@dataclass(frozen=True, slots=True)
class OfficeInDoubt(Hint):
    """Somebody speaks of a later controller: see who holds the office."""


@dataclass(frozen=True, slots=True)
class TopicStopped(Event):
    """Every live broker has acknowledged that it stopped and deleted a topic's replicas."""

    topic: str


@dataclass(frozen=True, slots=True)
class IsrChanged(Event):
    """Leaders wrote these partitions' ISR."""

    names: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, eq=False)
class CreateTopic(Request[Mapping[int, tuple[int, ...]]]):
    """An operator creates a topic; answered with its replicas once the states are written."""

    new: NewTopic
    dry_run: bool

    @property
    def about(self) -> Mapping[str, Any]:
        """The topic."""
        return {"topic": self.new.name}


@dataclass(frozen=True, slots=True, eq=False)
class DeleteTopic(Request[str]):
    """An operator deletes a topic; answered with the topic id once the tombstone stands."""

    topic: str

    @property
    def about(self) -> Mapping[str, Any]:
        """The topic."""
        return {"topic": self.topic}


@dataclass(frozen=True, slots=True, eq=False)
class ElectLeaders(Request[list[StateDecision]]):
    """An operator asks for elections; `names` None means every partition.

    A dry run is answered with what would be written.
    """

    unclean: bool
    names: tuple[TopicPartition, ...] | None
    dry_run: bool = False

    @property
    def about(self) -> Mapping[str, Any]:
        """The partitions, if they are named."""
        return about_partitions(self.names or ())
