"""The operations of one controller process, active or standby, that the API calls."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from functools import partial

from leadline_client.errors import (
    HistoryUnavailable,
    NoController,
    NotFound,
    RequestTimedOut,
    StoreOutcomeUnknown,
)
from leadline_client.wire import NewTopic
from leadline_common.cause import current_cause, new_cause
from leadline_common.identity import ServiceAddress, ServiceIdentity
from leadline_common.rpc import (
    UNKNOWN_TIME,
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    ControllerRow,
    HeartbeatRequest,
    HeartbeatResponse,
)
from leadline_common.unreadable import UNREADABLE
from leadline_common.waiting import CountedWait
from leadline_common.znodes import BrokerRegistration
from leadline_controller.domain.cluster import ClusterImage, TopicImage
from leadline_controller.domain.stats import count_unhealthy
from leadline_controller.domain.topics import find_topic
from leadline_controller.runtime.active_controller import ActiveController
from leadline_controller.runtime.audit.bounded_reads import BoundedReads, ReadLimits
from leadline_controller.runtime.channel.metadata_snapshot import MetadataView
from leadline_controller.runtime.engine.events import Answer, ControllerEvent, ControllerRequest
from leadline_controller.runtime.engine.guard import current_guard
from leadline_controller.runtime.leadership import ControllerLeadership
from leadline_controller.runtime.ports import HistoryReads
from leadline_controller.runtime.topics.controlled_shutdown import BrokerStops
from leadline_controller.runtime.topics.deletions import DeleteTopic
from leadline_controller.runtime.topics.topics import Assignment, CreateTopic

HAND_OVER_WAIT_MS = 2_000
"""How long a controlled shutdown waits for the new leaders to take over."""

CATCH_UP_S = 5.0
"""How long a query of the history waits for the latest audit entries to be stored."""


class ControllerService:
    """The operations of one controller process.

    Attributes:
        read_limits: bounds the reads of its history.

    """

    def __init__(self, leadership: ControllerLeadership) -> None:
        self._leadership = leadership
        self.read_limits = ReadLimits()
        self._stopping = asyncio.Event()

    # -- this process ----------------------------------------------------------

    @property
    def id(self) -> int:
        """The id of this controller."""
        return self._leadership.settings.controller_id

    @property
    def url(self) -> str:
        """The URL of this controller."""
        return self._leadership.url

    @property
    def is_active(self) -> bool:
        """Whether this process is active, and has published what was due at its election."""
        active = self._leadership.active_controller
        return active is not None and active.ready.is_set()

    @property
    def active(self) -> ControllerRow | None:
        """The active controller as far as this process knows."""
        return self._leadership.active

    def active_address(self) -> ServiceAddress:
        """Return the address of the active controller, if that is another one.

        Raises:
            NoController: none is known, or this process has just been elected.

        """
        active = self.active
        if active is None or not active.url:
            raise NoController("no controller is active at the moment")
        if active.id == self.id:
            raise NoController("this controller is taking over")
        service = ServiceIdentity("controller", active.id)
        return ServiceAddress(service, active.url, active.internal_url)

    def stopping(self) -> None:
        """End long polls: the process is about to stop."""
        self._stopping.set()

    @property
    def is_stopping(self) -> bool:
        """Whether the process is about to stop."""
        return self._stopping.is_set()

    def problems(self) -> Iterator[tuple[str, bool]]:
        """Yield problems, each with whether requests are served despite it."""
        store = self._leadership.store
        if store is None or not store.is_connected():
            yield self._leadership.no_session(), False
        elif self.active is None:
            yield "no active controller is known", False
        elif self.active.id == self.id and not self.is_active:
            yield "taking over as the active controller", False
        if self.is_active:
            for problem in _cluster_problems(self.active_controller()):
                yield problem, True
        replicator = self._leadership.audit_replicator
        if replicator is not None and replicator.problem:
            yield f"the history is not kept: {replicator.problem}", True
        if unreadable := UNREADABLE.summary():
            yield unreadable, True

    # -- reading ---------------------------------------------------------------

    def active_controller(self) -> ActiveController:
        """Return the active controller, if it is this process.

        Raises:
            NoController: this process is not active, or has just been elected.

        """
        active = self._leadership.active_controller
        if active is None or not active.ready.is_set():
            raise NoController("this controller is not the active one")
        return active

    def image(self) -> ClusterImage:
        """Return the cluster as the active controller knows it; read it without awaiting.

        Raises:
            NoController: this process is not active.

        """
        return self.active_controller().image

    def cluster_id(self) -> str:
        """Return the cluster's id."""
        return self._leadership.cluster_id

    async def metadata(self, after: int | None, wait_ms: int) -> MetadataView:
        """Return the metadata when it is newer than version `after`, or `wait_ms` have passed.

        Raises:
            NoController: this process is not active.

        """
        active = self.active_controller()
        if after is not None and wait_ms > 0:
            newer = active.dispatcher.until(lambda: active.metadata.version > after)
            with CountedWait():
                await self._until(newer, wait_ms)
        if active.dispatcher.is_closed:
            raise NoController("this controller is not the active one any more")
        return active.metadata

    async def history(self) -> HistoryReads:
        """Return the audit history when it holds all entries written before the call.

        Its reads raise HistoryUnavailable if the database does not answer in time.

        Raises:
            HistoryUnavailable: it is unreadable, or still catching up.

        """
        replicator = self._leadership.audit_replicator
        if replicator is None:
            raise HistoryUnavailable("this controller keeps no history")
        if not await replicator.catch_up(CATCH_UP_S):
            raise HistoryUnavailable(
                replicator.problem
                or "this controller's history is still catching up, or ZooKeeper is away: ask again"
            )
        return BoundedReads(replicator.history, self.read_limits)

    def topic(self, name: str) -> TopicImage:
        """Return a topic.

        Raises:
            UnknownTopic: there is none of this name.

        """
        return find_topic(self.image(), name)

    def broker(self, broker_id: int) -> BrokerRegistration:
        """Return a live broker.

        Raises:
            NotFound: it is not live.

        """
        found = self.image().brokers.get(broker_id)
        if found is None:
            raise NotFound(f"broker {broker_id} is not live")
        return found

    # -- changing --------------------------------------------------------------

    async def ask(self, request: ControllerRequest[Answer]) -> Answer:
        """Have the active controller handle a request, and return the answer.

        Raises:
            NoController: this process is not active.
            LeadlineError: the handler refused the request.

        """
        queue = self.active_controller().queue
        return await queue.submit(request, current_cause() or new_cause(), current_guard())

    def post(self, event: ControllerEvent) -> None:
        """Post an event, if this process is still active."""
        active = self._leadership.active_controller
        if active is not None:
            active.queue.post(event, current_cause())

    async def create_topic(self, new: NewTopic, *, dry_run: bool) -> tuple[str, Assignment]:
        """Create a topic; return its id and its replicas when every live broker knows them.

        Raises:
            Refused: against the rules; nothing was written.
            OutcomeUnknown: written, but not acknowledged within create.topic.timeout.ms; or
                ZooKeeper was lost.

        """
        request = CreateTopic(new, dry_run=dry_run)
        if dry_run:
            return "", await self.ask(request)
        assignment = await self.ask_until_acknowledged(new.name, request)
        return self.image().topics[new.name].topic_id, assignment

    async def ask_until_acknowledged(
        self, topic: str, request: ControllerRequest[Answer]
    ) -> Answer:
        """Have a topic changed, and wait for the acknowledgement of every live broker.

        Raises:
            NoController: this process is not active.
            Refused: against the rules; nothing was written.
            OutcomeUnknown: written, but not acknowledged within create.topic.timeout.ms, or
                the topic was deleted meanwhile.

        """
        active = self.active_controller()
        timeout_ms = active.configs.current().create_topic_timeout_ms
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                answer = await self.ask(request)
                version = active.image.version
                acknowledged = partial(active.dispatcher.is_acknowledged, topic, version)
                known = await active.dispatcher.until(acknowledged)
                if not known or topic not in active.image.topics:
                    raise StoreOutcomeUnknown(
                        f"topic {topic!r}: this controller lost its leadership, or it was deleted"
                    )
        except TimeoutError:
            raise RequestTimedOut(
                f"topic {topic!r}: not every broker has acknowledged it in {timeout_ms} ms"
            ) from None
        return answer

    async def delete_topic(self, name: str, wait_ms: int) -> tuple[str, bool]:
        """Delete a topic; return its id, and whether that was complete within `wait_ms`.

        Raises:
            UnknownTopic: there is no such topic.
            OutcomeUnknown: ZooKeeper was lost.

        """
        active = self.active_controller()
        topic_id = await self.ask(DeleteTopic(name))

        def is_deleted() -> bool:
            topic = active.image.topics.get(name)
            return topic is None or topic.topic_id != topic_id

        with CountedWait():
            return topic_id, await self._until(active.dispatcher.until(is_deleted), wait_ms)

    def heartbeat(self, beat: HeartbeatRequest) -> HeartbeatResponse:
        """Apply a broker's heartbeat.

        Raises:
            NoController: this process is not active.

        """
        active = self.active_controller()
        active.on_heartbeat(beat)
        rates = active.throttles.of_broker(beat.broker_id)
        time_ms = active.cluster_time_ms()
        if time_ms is None:
            time_ms = UNKNOWN_TIME
        return HeartbeatResponse(self.id, active.context.term.epoch, rates, time_ms)

    async def controlled_shutdown(
        self, stopping: ControlledShutdownRequest
    ) -> ControlledShutdownResponse:
        """Move leadership off a broker that is shutting down; wait for the new leaders.

        Raises:
            NoController: this process is not active.
            Refused: this incarnation of the broker is not known.
            OutcomeUnknown: ZooKeeper was lost.

        """
        active = self.active_controller()
        remaining = await self.ask(BrokerStops(stopping.broker_id, stopping.incarnation))
        await self._until(active.dispatcher.until(active.dispatcher.settled), HAND_OVER_WAIT_MS)
        return ControlledShutdownResponse(active.context.term.epoch, [*remaining])

    async def wait_until(self, condition: Callable[[], bool], wait_ms: int) -> bool:
        """Wait at most `wait_ms` until a condition holds; return whether it does.

        Raises:
            NoController: this process is not active.

        """
        with CountedWait():
            return await self._until(self.active_controller().dispatcher.until(condition), wait_ms)

    # -- waiting ---------------------------------------------------------------

    async def _until(self, condition: Awaitable[bool], wait_ms: int) -> bool:
        """Await a condition; return False on a timeout, or if the term or the process ends."""
        waits: list[asyncio.Future[bool]] = [
            asyncio.ensure_future(condition),
            asyncio.ensure_future(self._stopping.wait()),
        ]
        try:
            done, _ = await asyncio.wait(
                waits, timeout=wait_ms / 1000, return_when=asyncio.FIRST_COMPLETED
            )
            return waits[0] in done and bool(waits[0].result())
        finally:
            for wait in waits:
                wait.cancel()


def _cluster_problems(active: ActiveController) -> Iterator[str]:
    """Yield what the active controller knows of the cluster; it serves requests all the same."""
    offline, under, _ = count_unhealthy(active.image)
    if offline:
        yield f"{offline} partitions have no leader"
    if under:
        yield f"{under} partitions are under-replicated"
    if missing := active.out_of_reach():
        yield f"brokers {missing} are registered, but out of this controller's reach"
    if active.healing.is_suspended:
        down = active.healing.down
        yield f"healing is suspended: brokers {down} are down, over the budget"
