"""What can happen to the active controller, as frozen types.

Watches, timers, brokers and the API put events into one queue; the controller handles
them one after another. The decorator `handler` ties a method to an event type, so mypy
checks the method's parameters against the event and, for a request, against its answer:

    @CreateTopic.handler
    async def on_create(self, event: CreateTopic, reply: Reply[Assignment]) -> None: ...

Handlers keep further events in their own modules.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeAlias, TypeVar

from leadline_client.errors import LeadlineError
from leadline_client.wire import TopicPartition
from leadline_common.access.caller import EVERYBODY, Caller
from leadline_common.tasks import TargetRow
from leadline_common.tracing.traceparent import TraceParent
from leadline_controller.runtime.engine.guard import Guard

Answer = TypeVar("Answer")
_Owner = TypeVar("_Owner")
_Event = TypeVar("_Event")
_TriggerHandler: TypeAlias = Callable[[_Owner], Coroutine[Any, Any, None]]
_Handler: TypeAlias = Callable[[_Owner, _Event], Coroutine[Any, Any, None]]
_RequestHandler: TypeAlias = Callable[[_Owner, _Event, "Reply[Answer]"], Coroutine[Any, Any, None]]

MAX_AUDITED_TOPICS = 100
"""The most topics that an audit entry names for a request about several topics."""


@dataclass(eq=False, slots=True)
class Reply(Generic[Answer]):
    """The answer to a request. Nothing happens if the caller has stopped waiting for it."""

    _future: asyncio.Future[Answer]

    @property
    def is_done(self) -> bool:
        """Whether the request was answered, or the caller has stopped waiting."""
        return self._future.done()

    def settle(self, answer: Answer) -> None:
        """Answer the request."""
        if not self._future.done():
            self._future.set_result(answer)

    def refuse(self, problem: LeadlineError) -> None:
        """Fail the request."""
        if not self._future.done():
            self._future.set_exception(problem)


@dataclass(frozen=True, slots=True)
class ControllerEvent:
    """Something that happened; nobody waits for an answer."""

    @classmethod
    def handler(cls, method: _Handler[_Owner, Self]) -> _Handler[_Owner, Self]:
        """Register a method as the handler of this event."""
        _KINDS[method] = cls
        return method


class Trigger:
    """Asks a handler to read or check again. The queue holds at most one of each type."""

    @classmethod
    def handler(cls, method: _TriggerHandler[_Owner]) -> _TriggerHandler[_Owner]:
        """Register a method as the handler of this trigger."""
        _KINDS[method] = cls
        return method


@dataclass(frozen=True, slots=True)
class ControllerRequest(Generic[Answer]):
    """A request whose caller waits for an `Answer`."""

    @classmethod
    def handler(
        cls, method: _RequestHandler[_Owner, Self, Answer]
    ) -> _RequestHandler[_Owner, Self, Answer]:
        """Register a method as the handler of this request."""
        _KINDS[method] = cls
        return method

    @property
    def resource(self) -> Mapping[str, Any]:
        """The resource that an audit entry names if the request changes nothing."""
        return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRunRequest(ControllerRequest[Answer]):
    """A request that changes nothing with `dry_run`."""

    dry_run: bool


AnyEvent: TypeAlias = ControllerEvent | Trigger | ControllerRequest[Any]

_KINDS: dict[object, type[AnyEvent]] = {}


def handled_kind(method: object) -> type[AnyEvent] | None:
    """Return the event type that a method handles, if `handler` has registered it."""
    return _KINDS.get(method)


@dataclass(frozen=True, slots=True)
class QueuedEvent:
    """An event in the queue. `at_ms` is the monotonic time of posting, `caller` who caused it.

    `span` is the span in which it was posted.
    """

    event: AnyEvent
    cause: str
    at_ms: int
    reply: Reply[Any] | None = None
    guard: Guard | None = None
    caller: Caller = EVERYBODY
    span: TraceParent | None = None

    def refuse(self, problem: LeadlineError) -> None:
        """Fail the request, if somebody waits for an answer."""
        if self.reply is not None:
            self.reply.refuse(problem)


def partitions_resource(
    topic_partitions: Iterable[TopicPartition | TargetRow],
) -> Mapping[str, Any]:
    """Return the audited resource of a request: one partition, one topic, or several topics."""
    named = sorted({(one.topic, one.partition) for one in topic_partitions})
    topics = sorted({topic for topic, _ in named})
    if len(named) == 1:
        return {"topic": topics[0], "partition": named[0][1]}
    return {"topic": topics[0]} if len(topics) == 1 else {"topics": topics[:MAX_AUDITED_TOPICS]}


class BrokersChanged(Trigger):
    """The watch on the list of brokers fired, or an unknown broker sent a heartbeat."""


class Reconcile(Trigger):
    """Compare everything with ZooKeeper (rule R8): periodically and after a reconnection."""


class ControllerChanged(Trigger):
    """A broker says that it knows a later controller: check who holds `/controller`."""


@dataclass(frozen=True, slots=True)
class IsrChanged(ControllerEvent):
    """Leaders wrote the ISR of these partitions, or a broker has refused the known state."""

    topic_partitions: tuple[TopicPartition, ...]
