"""The requests that one broker has to acknowledge (rule R8).

Invariant: a change for the broker is pending or in flight until the broker has
acknowledged it, or until this incarnation of the broker is gone.

Only partition names are pending. A request is built when it is sent, so it carries the latest
state, and any number of changes of a partition cost one row. One request is in flight at a time;
requests to different brokers run in parallel. The order is the first roles, metadata, the other
roles, stops, and so on. A failed request is repeated after an exponential back-off while the
incarnation lives. A role that the broker refuses is sent again likewise; it keeps no other waiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Set
from dataclasses import dataclass, field
from functools import partial
from itertools import chain

from leadline_client.errors import TopicIdMismatch
from leadline_client.wire import TopicPartition
from leadline_common import rpc
from leadline_common.cause import cause_scope, current_cause
from leadline_common.tracing import spans
from leadline_common.tracing.traceparent import TraceParent
from leadline_common.znodes import BrokerRegistration
from leadline_controller.domain.cluster import ClusterImage
from leadline_controller.runtime.channel.answers import metadata_version
from leadline_controller.runtime.channel.calls import BrokerCalls
from leadline_controller.runtime.channel.listener import Command, DispatchListener
from leadline_controller.runtime.channel.pending_roles import (
    MOST_STOPS,
    PendingPartitions,
    PendingRoles,
    add_partitions,
    take_partitions,
)
from leadline_controller.runtime.channel.requests import BrokerRequest, RequestBuilder
from leadline_controller.runtime.channel.tracing import dispatch_span

MIN_BACKOFF_S = 0.05
MAX_BACKOFF_S = 2.0


@dataclass(eq=False)
class BrokerRequestQueue:
    """Sends requests to one incarnation of one broker; `run` is its task."""

    broker: BrokerRegistration
    image: ClusterImage
    requests: RequestBuilder
    listener: DispatchListener
    calls: BrokerCalls
    cause: str = ""
    _span: TraceParent | None = field(default=None, init=False)
    _wake: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _grant: bool = field(default=False, init=False)
    _is_granting: bool = field(default=False, init=False)
    _roles: PendingRoles = field(default_factory=PendingRoles, init=False)
    _stops: PendingPartitions = field(default_factory=dict, init=False)
    _halts: PendingPartitions = field(default_factory=dict, init=False)
    _in_flight: tuple[Command, PendingPartitions] | None = field(default=None, init=False)
    _refused: set[TopicPartition] = field(default_factory=set, init=False)
    _for_next_round: Set[TopicPartition] = field(default=frozenset(), init=False)
    _answers: bool = field(default=True, init=False)
    _acked_version: int | None = field(default=None, init=False)

    # -- what is pending -------------------------------------------------------

    def set_cause(self) -> None:
        """Let the next requests name the current cause, and be part of the current trace."""
        self.cause, self._span = current_cause(), spans.current()

    def add_grant(self) -> None:
        """Add the full grant, which holds all roles."""
        self._grant = True
        self._roles.clear()
        self._wake.set()

    def add_roles(self, topic: str, partitions: Collection[int], *, may_wait: bool = False) -> None:
        """Add LeaderAndISR for partitions, unless a pending grant holds them anyway.

        These precede the metadata, unless they `may_wait`.
        """
        self._put_roles(topic, partitions, may_wait=may_wait)
        self._wake.set()

    def _put_roles(self, topic: str, partitions: Collection[int], *, may_wait: bool) -> None:
        if self._refused:
            self._refused.difference_update(TopicPartition(topic, number) for number in partitions)
        if not self._grant:
            self._roles.add(topic, partitions, may_wait=may_wait)

    def retry_role(self, topic: str, partition: int) -> None:
        """Send a role again that the broker reports to lack, unless it is pending."""
        if not self._roles.has(topic, partition):
            self.add_roles(topic, [partition])

    def add_stop(self, topic: str, partitions: Iterable[int]) -> None:
        """Add StopReplica with deletion; it replaces pending roles in these partitions."""
        numbers = dict.fromkeys(partitions)
        self._stops.setdefault(topic, {}).update(numbers)
        self._roles.remove(topic, numbers)
        self._wake.set()

    def add_halt(self, topic: str, partitions: Iterable[int]) -> None:
        """Add StopReplica that keeps the log, for a broker that is shutting down.

        It is sent after the roles: a former leader learns its successor first, and can
        complete its pending requests.
        """
        self._halts.setdefault(topic, {}).update(dict.fromkeys(partitions))
        self._wake.set()

    def metadata_changed(self) -> None:
        """Note that there may be newer metadata than the broker has."""
        if self._metadata_pending and not (self._roles or self._stops or self._halts):
            self.set_cause()
        self._wake.set()

    def metadata_is(self, version: int) -> None:
        """Note which metadata version the broker reports; it may have lost a later one."""
        if not (self._in_flight or self._is_granting) and version != self._acked_version:
            self._acked_version = None
            self._wake.set()

    @property
    def roles_pending(self) -> bool:
        """Whether any role is not acknowledged."""
        return self._grant or self._is_granting or bool(self._roles) or self._flying(Command.ROLES)

    @property
    def roles_unanswered(self) -> bool:
        """Whether any role awaits an answer; a role that the broker keeps refusing has one."""
        if self._grant or self._is_granting:
            return True
        in_flight = self._in_flight[1] if self._in_flight and self._flying(Command.ROLES) else {}
        sent = (TopicPartition(topic, n) for topic, numbers in in_flight.items() for n in numbers)
        return any(role not in self._refused for role in chain(self._roles, sent))

    @property
    def answers(self) -> bool:
        """Whether the last request was answered."""
        return self._answers

    @property
    def stops_pending(self) -> bool:
        """Whether a stop of any replica is not acknowledged."""
        return bool(self._stops or self._halts) or self._flying(Command.STOP, Command.HALT)

    @property
    def idle(self) -> bool:
        """Whether everything is acknowledged."""
        pending = self.roles_pending or self.stops_pending
        return not (pending or self._metadata_pending or self._in_flight)

    @property
    def _has_work(self) -> bool:
        """Whether anything is to be sent now; while metadata is held, some roles and halts wait."""
        is_held = self.listener.holds_metadata()
        return (
            self._grant
            or self._roles.are_due(more_coming=is_held)
            or self._metadata_pending
            or bool(self._stops or (self._halts and not is_held))
        )

    @property
    def _metadata_pending(self) -> bool:
        return self._acked_version != self.image.version and not self.listener.holds_metadata()

    def topic_pending(self, topic: str) -> bool:
        """Return whether a role in a topic, or a stop of it, is not acknowledged."""
        if self._grant or self._is_granting or topic in self._roles or topic in self._stops:
            return True
        return self._in_flight is not None and topic in self._in_flight[1]

    def stop_pending(self, topic: str, partitions: Iterable[int]) -> bool:
        """Return whether a deletion of any of these partitions is not acknowledged."""
        pending = set(self._stops.get(topic, ()))
        if self._in_flight is not None and self._in_flight[0] is Command.STOP:
            pending |= self._in_flight[1].get(topic, {}).keys()
        return not pending.isdisjoint(partitions)

    def has_metadata(self, version: int) -> bool:
        """Return whether the broker acknowledged metadata of this version or later."""
        return self._acked_version is not None and self._acked_version >= version

    def _flying(self, *commands: Command) -> bool:
        return self._in_flight is not None and self._in_flight[0] in commands

    # -- sending ---------------------------------------------------------------

    async def run(self) -> None:
        """Send what is pending until cancelled."""
        backoff_s = MIN_BACKOFF_S
        while True:
            if self.idle:
                self._span = None
            if not self._has_work:
                self._wake.clear()
                await self._wake.wait()
            self._wake.clear()
            if await self._send_round():
                backoff_s = MIN_BACKOFF_S
            else:
                await self._pause(backoff_s)
                backoff_s = min(2 * backoff_s, MAX_BACKOFF_S)

    async def _pause(self, for_s: float) -> None:
        """Wait before what failed is repeated.

        If the broker answers, it is sent what is added meanwhile: a role that it keeps refusing, as
        when its disk is broken, keeps no other waiting.
        """
        loop = asyncio.get_running_loop()
        until_s = loop.time() + for_s
        while (left_s := until_s - loop.time()) > 0:
            if not self._answers:
                await asyncio.sleep(left_s)
                return
            try:
                async with asyncio.timeout(left_s):
                    await self._wake.wait()
            except TimeoutError:
                return
            self._wake.clear()
            await self._send_round(but=self._refused)

    async def _send_round(self, *, but: Set[TopicPartition] = frozenset()) -> bool:
        """Send the pending requests of each kind; return False if some have to be repeated.

        Roles in `but` wait. A refused request delays no other; one without an answer ends it.
        """
        self.calls.is_unreachable = False
        self._for_next_round = but
        succeeded = True
        stop, halt = (partial(self._send_stops, kind) for kind in (Command.STOP, Command.HALT))
        # A grant makes strays of the replicas that it does not name: delete before it.
        rounds: list[Callable[[], Awaitable[bool]]] = [stop] if self._grant else []
        rounds += [self._send_first_roles, self._send_metadata, self._send_other_roles, stop, halt]
        for send in rounds:
            succeeded = await send() and succeeded
            self.listener.progressed()
            if self.calls.is_unreachable:
                return False
        return succeeded

    async def _send_first_roles(self) -> bool:
        """Send the roles that precede metadata, and those of them that are written meanwhile.

        Those that the broker refuses wait for the next round, and no others wait for them.
        """
        while self._grant or (partitions := self._take(self._roles.take_first)):
            is_grant, self._grant = self._grant, False
            self._is_granting = is_grant  # What changes from now on is sent after the grant.
            if not await self._send_roles({} if is_grant else partitions, is_grant=is_grant):
                return False
        return True

    async def _send_other_roles(self) -> bool:
        """Send the roles that are left; metadata that is due meanwhile waits for one request."""
        while partitions := self._take(self._roles.take):
            if not await self._send_roles(partitions, is_grant=False):
                return False
            self.listener.progressed()
            if not await self._send_metadata():
                return False
        return not any(self._roles.has(*role) for role in self._refused)

    def _take(self, take: Callable[..., PendingPartitions]) -> PendingPartitions:
        return take(but=self._for_next_round, more_coming=self.listener.holds_metadata())

    async def _send_roles(self, partitions: PendingPartitions, *, is_grant: bool) -> bool:
        """Send a grant or some roles; return whether they were answered."""
        if is_grant:
            request = await self._build_grant()
        else:
            request = self.requests.leader_and_isr(self.broker, partitions, self.cause)
            if not request.partitions:
                return True
        command = Command.GRANT if is_grant else Command.ROLES
        answer = await self._call(command, partitions, rpc.LEADER_AND_ISR_PATH, request.body)
        self._is_granting = False
        if answer is None:
            if is_grant:
                self.add_grant()
            for topic, numbers in partitions.items():
                self._put_roles(topic, numbers, may_wait=False)
            return False
        refused = self.calls.refusals(request, answer)
        if self._refused:
            self._refused.difference_update(
                TopicPartition(topic, number)
                for topic, numbers in request.partitions
                for number in numbers
            )
        for topic_partition in refused:
            self._put_roles(topic_partition.topic, [topic_partition.partition], may_wait=False)
        self._refused.update(refused)
        self._for_next_round = self._refused
        if refused:
            self.listener.invalidate(refused)
        return True

    async def _build_grant(self) -> BrokerRequest:
        """Build the full grant, and first delete what is to be deleted by the end of that."""
        topics = await self.requests.all_roles(self.broker)
        deleted: PendingPartitions = {}
        await self._send_stops(Command.STOP, deleted)
        add_partitions(deleted, self._stops)
        return self.requests.grant(self.broker, topics, deleted, self.cause)

    async def _send_stops(self, command: Command, sent: PendingPartitions | None = None) -> bool:
        """Send stops, some in each request, and add them to `sent`; return whether none is left.

        Each is sent once. Roles and metadata do not wait for all, but for the next answer. A grant
        does: it makes strays of the replicas that it does not name.
        """
        pending = self._stops if command is Command.STOP else self._halts
        refused: set[TopicPartition] = set()
        while not (command is Command.HALT and self.listener.holds_metadata()):
            partitions = take_partitions(pending, MOST_STOPS, refused)
            if not partitions:
                break
            add_partitions({} if sent is None else sent, partitions)
            answer = await self._send_some_stops(command, pending, partitions)
            if answer is None:
                return False
            refused.update(answer)
            is_other_due = self._roles or self._metadata_pending
            if is_other_due and not (self._grant or self._is_granting):
                break
        return not refused

    async def _send_some_stops(
        self, command: Command, pending: PendingPartitions, some: PendingPartitions
    ) -> list[TopicPartition] | None:
        """Send one request; return what was refused and is pending again, None if all is."""
        delete = command is Command.STOP
        request = self.requests.stop(self.broker, some, self.cause, delete=delete)
        if not request.partitions:
            return []
        answer = await self._call(command, some, rpc.STOP_REPLICA_PATH, request.body)
        if answer is None:
            add_partitions(pending, some)
            return None
        refused = self.calls.refusals(
            request, answer, accepted=(rpc.NO_ERROR, TopicIdMismatch.code)
        )
        for topic, number in refused:
            pending.setdefault(topic, {})[number] = None
        return refused

    async def _send_metadata(self) -> bool:
        if not self._metadata_pending:
            return True
        await self.requests.encode_topics(self._acked_version)
        body, version = self.requests.metadata(self.broker, self._acked_version, self.cause)
        answer = await self._call(Command.METADATA, {}, rpc.UPDATE_METADATA_PATH, body)
        # If the broker did not apply it, nobody knows what the broker has: send all next time.
        is_applied = answer is not None and metadata_version(answer) >= version
        self._acked_version = version if is_applied else None
        return self._acked_version is not None

    async def _call(
        self, command: Command, partitions: PendingPartitions, path: str, body: bytes
    ) -> bytes | None:
        """Send a request; return None if it failed, or the broker was unreachable in this round."""
        if self.calls.is_unreachable:
            return None
        self._in_flight = (command, partitions)
        try:
            about = self._span, command, self.broker.id
            with cause_scope(self.cause), dispatch_span(*about) as span:
                answer = await self.calls.post(command, path, body, span)
        finally:
            self._in_flight = None
        self._answers = answer is not None
        self.listener.sent(command, answer is not None, len(body))
        return answer
