"""What the handlers of one term share: the image, the queue, the writer, the delivery."""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from leadline_client.errors import LeadlineError, NoController, StoreOutcomeUnknown
from leadline_client.wire import TopicPartition
from leadline_common.cause import new_cause
from leadline_common.leader_election import TermEnded
from leadline_common.rpc import ControllerRow
from leadline_common.zk.errors import ZkError
from leadline_common.znodes import AuditEntry, BrokerRegistration
from leadline_controller.domain.cluster import ClusterImage, StateSet
from leadline_controller.domain.failover import StateDecision, decide_all, stale_finder
from leadline_controller.runtime.channel.broker_queue import BrokerRequestQueue, Command, Listener
from leadline_controller.runtime.channel.dispatcher import BrokerDispatcher
from leadline_controller.runtime.channel.requests import Commands
from leadline_controller.runtime.engine import events
from leadline_controller.runtime.engine.dynamic_configs import DynamicConfigs
from leadline_controller.runtime.engine.events import Event
from leadline_controller.runtime.engine.guard import Condition
from leadline_controller.runtime.engine.state_writer import Decide, Why, Writer
from leadline_controller.runtime.engine.term import Office
from leadline_controller.runtime.ports import BrokerGateway

_log = logging.getLogger(__name__)
_WORD_STARTS = re.compile(r"(?<!^)(?=[A-Z])")


class EventContext:
    """The shared means of one term. `cause` is that of the event being handled.

    `noticed_at` is when that event happened, in Unix ms, 0 while there is none.
    `configs` are the settings in force: `desk.configs.current()`, at each use.
    """

    def __init__(self, office: Office, image: ClusterImage, gateway: BrokerGateway) -> None:
        self.office = office
        self.image = image
        self.cause = ""
        self.noticed_at = 0
        self.deposed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.listeners: list[Callable[[Sequence[StateSet]], None]] = []
        self._gateway = gateway
        self._queue: asyncio.Queue[Event] = asyncio.Queue()
        self._hinted: set[type[Any]] = set()
        self.controller = ControllerRow(
            office.registration.id, office.registration.url, office.term.epoch
        )
        settings = office.settings
        self.configs = DynamicConfigs(settings, image)
        self._commands = Commands(
            image, office.cluster_id, self.controller, settings.command_ack_timeout_ms
        )
        self.delivery = BrokerDispatcher(image, self._make_sender)
        self.writer = Writer(
            office.store,
            image,
            office.term,
            office.clock,
            max_ops=settings.zookeeper_multi_max_ops,
            on_written=self.tell,
        )

    # -- the queue -------------------------------------------------------------

    def post(self, event: Event) -> None:
        """Put an event into the queue, unless it is a hint that is there already."""
        kind = type(event)
        if isinstance(event, events.Hint):
            if kind in self._hinted:
                return
            self._hinted.add(kind)
        self._queue.put_nowait(event)

    def hint(self, kind: type[events.Hint], cause: str = "") -> None:
        """Post a hint."""
        self.post(kind(cause=cause or new_cause(), at_ms=self.office.clock.monotonic_ms()))

    def doubt(self, names: Sequence[TopicPartition]) -> None:
        """Have these partitions' states read again."""
        now = self.office.clock.monotonic_ms()
        self.post(events.IsrChanged(cause=new_cause(), at_ms=now, names=tuple(names)))

    async def next_event(self) -> Event:
        """Take the next event, and work under its cause from now on."""
        event = await self._queue.get()
        self._hinted.discard(type(event))
        self.cause = event.cause
        clock = self.office.clock
        self.noticed_at = clock.wall_ms() - max(0, clock.monotonic_ms() - event.at_ms)
        return event

    @contextmanager
    def guarded(self, event: Event, check: Callable[[Condition], None]) -> Iterator[None]:
        """Handle an event under its guard: check its condition, and leave its mark.

        The condition once for each request, though it may ask for several things: the
        first would change what the second is compared with.

        Raises:
            NoController, StoreOutcomeUnknown: the request was begun in an earlier term.
            LeadlineError: the condition does not hold.

        """
        guard = event.guard if isinstance(event, events.Request) else None
        if guard is not None and guard.mark is not None:
            self._check_term(guard.mark.epoch, guard.marked)
        if guard is not None and guard.condition is not None and not guard.checked:
            check(guard.condition)
            guard.checked = True
        self.writer.guard = guard
        try:
            yield
        finally:
            self.writer.guard = None

    def _check_term(self, epoch: int, is_marked: bool) -> None:
        if epoch != self.office.term.epoch:
            refusal = StoreOutcomeUnknown if is_marked else NoController
            raise refusal("this controller lost its office, and won it again, meanwhile")

    def refuse_all(self, problem: LeadlineError) -> None:
        """Answer every request that is still queued with `problem`."""
        while not self._queue.empty():
            answer(self._queue.get_nowait(), problem)

    def resign(self, reason: str) -> None:
        """End the term: somebody else rules, or may."""
        if not self.deposed.done():
            self.deposed.set_exception(TermEnded(reason))

    # -- publishing and telling ------------------------------------------------

    async def tell_of(self, request: events.Request[Any], outcome: str, reason: str = "") -> None:
        """Leave an audit entry about a request that has changed nothing; do without if need be."""
        kind = _WORD_STARTS.sub("_", type(request).__name__).lower()
        entry = self.entry(kind, request.about, actor="operator", reason=reason)
        try:
            await self.writer.commit([], msgspec.structs.replace(entry, outcome=outcome))
        except ZkError as problem:
            _log.info("the audit does not say that %s was %s: %s", kind, outcome, problem)

    def entry(
        self,
        kind: str,
        resource: Mapping[str, Any],
        *,
        actor: str = "",
        reason: str = "",
        before: Any = None,
        after: Any = None,
    ) -> AuditEntry:
        """Return an audit entry about the event being handled; the controller is the actor."""
        return AuditEntry(
            time=self.office.clock.wall_ms(),
            cause=self.cause,
            actor=actor or self.office.actor,
            kind=kind,
            reason=reason,
            resource=resource,
            before=before,
            after=after,
        )

    def decide(self, names: Sequence[TopicPartition]) -> list[StateDecision]:
        """Decide for partitions from the image alone, as the reconciliation does."""
        return decide_all(self.image, names, self.image.live, stale_finder(self.image))

    async def write(
        self, decisions: list[StateDecision], why: Why, decide: Decide | None = None
    ) -> list[StateDecision]:
        """Publish decisions, and return those that were written.

        Roles are told as they are written, metadata when all are.
        """
        if not decisions:
            return []
        why = msgspec.structs.replace(why, noticed_at=self.noticed_at)
        with self.delivery.metadata_held():
            written = await self.writer.write(decisions, why, decide or self.decide)
        # One increment for each reason: ten thousand of them cost as much as the decisions.
        for reason, number in Counter(decision.reason for decision in written).items():
            self.office.metrics.elections.labels(reason.value).inc(number)
        return written

    def adopt(self, states: list[StateSet]) -> None:
        """Take in states as read: whose leader epoch is news is told to its replicas."""
        epochs = {}
        for change in states:
            partition = self.image.partition(TopicPartition(change.topic, change.partition))
            if partition is not None and partition.state is not None:
                epochs[change.topic, change.partition] = partition.state.leader_epoch
        news = [change for change in self.image.apply(states) if isinstance(change, StateSet)]
        led_anew = [
            change
            for change in news
            if epochs.get((change.topic, change.partition)) != change.state.leader_epoch
        ]
        if led_anew:
            self.delivery.roles(led_anew, self.cause)
        elif news:
            self.delivery.metadata()
        self._heed(news)

    def tell(self, states: Sequence[StateSet]) -> None:
        """Tell the replicas of states that were written, and whoever listens here."""
        self.delivery.roles(states, self.cause)
        self._heed(states)

    def _heed(self, states: Sequence[StateSet]) -> None:
        for listener in self.listeners:
            listener(states)

    def _make_sender(self, broker: BrokerRegistration) -> BrokerRequestQueue:
        listener = Listener(
            progress=self.delivery.progressed,
            doubt=self.doubt,
            deposed=self.resign,
            sent=self._count,
            holds_metadata=lambda: self.delivery.holds_metadata,
        )
        timeout_ms = self.office.settings.command_ack_timeout_ms
        return BrokerRequestQueue(
            broker, self.image, self._commands, self._gateway, listener, timeout_ms
        )

    def _count(self, command: Command, answered: bool, size: int) -> None:
        metrics = self.office.metrics
        metrics.commands.labels(command.value, "answered" if answered else "failed").inc()
        metrics.command_bytes.labels(command.value).inc(size)


def answer(event: Event, problem: LeadlineError) -> None:
    """Let a request that waits for an event know that it failed."""
    if isinstance(event, events.Request):
        event.refuse(problem)
