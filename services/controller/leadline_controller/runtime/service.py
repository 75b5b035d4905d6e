"""What the API asks of a controller, active or standby."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from leadline_client.errors import (
    HistoryUnavailable,
    NoController,
    NotFound,
    RequestTimedOut,
    StoreOutcomeUnknown,
)
from leadline_client.wire import NewTopic, TopicPartition
from leadline_common.cause import current_cause, new_cause
from leadline_common.rpc import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    ControllerRow,
    HeartbeatRequest,
    HeartbeatResponse,
)
from leadline_common.znodes import BrokerRegistration
from leadline_controller.domain.cluster import ClusterImage, TopicImage
from leadline_controller.domain.failover import StateDecision
from leadline_controller.domain.stats import count_unhealthy
from leadline_controller.domain.topics import find_topic
from leadline_controller.runtime.active_controller import ActiveController
from leadline_controller.runtime.channel.metadata_snapshot import MetadataView
from leadline_controller.runtime.engine import events
from leadline_controller.runtime.engine.config_events import ConfigResource
from leadline_controller.runtime.engine.dynamic_configs import DynamicConfigs
from leadline_controller.runtime.engine.guard import Named, current_guard
from leadline_controller.runtime.leadership import ControllerLeadership
from leadline_controller.runtime.ports import History
from leadline_controller.runtime.topics.controlled_shutdown import BrokerStops

_Answer = TypeVar("_Answer")

HAND_OVER_WAIT_MS = 2_000
"""How long a broker that stops may wait for the new leaders to have taken over."""

CATCH_UP_S = 5.0
"""How long a question about the past waits for the history to hold the present."""


class ControllerService:
    """The face of one controller process."""

    def __init__(self, leadership: ControllerLeadership) -> None:
        self._leadership = leadership
        self._stopping = asyncio.Event()

    # -- this process ----------------------------------------------------------

    @property
    def id(self) -> int:
        """The number of this controller."""
        return self._leadership.settings.controller_id

    @property
    def url(self) -> str:
        """Where this controller answers."""
        return self._leadership.url

    @property
    def is_active(self) -> bool:
        """Whether this process rules, and has published what was due when it took over."""
        reign = self._leadership.reign
        return reign is not None and reign.ready.is_set()

    @property
    def active(self) -> ControllerRow | None:
        """Who rules, as far as this process knows."""
        return self._leadership.active

    def active_url(self) -> str:
        """Return the URL of the active controller, when that is another one.

        Raises:
            NoController: none is known, or this process is just taking over.

        """
        active = self.active
        if active is None or not active.url:
            raise NoController("no controller is active at the moment")
        if active.id == self.id:
            raise NoController("this controller is taking over")
        return active.url

    def stopping(self) -> None:
        """Let long polls answer what they have: the process is about to end."""
        self._stopping.set()

    @property
    def is_stopping(self) -> bool:
        """Whether the process is about to end."""
        return self._stopping.is_set()

    def problems(self) -> Iterator[tuple[str, bool]]:
        """Yield what is amiss, each with whether requests are served in spite of it."""
        store = self._leadership.store
        if store is None or not store.is_connected():
            yield "no session with ZooKeeper", False
        elif self.active is None:
            yield "no active controller is known", False
        elif self.active.id == self.id and not self.is_active:
            yield "taking over as the active controller", False
        if self.is_active:
            offline, under = count_unhealthy(self.reign().image)
            if offline:
                yield f"{offline} partitions have no leader", True
            if under:
                yield f"{under} partitions are under-replicated", True
            if self.reign().healing.is_suspended:
                failed = sorted(self.reign().healing.failed)
                yield f"healing is suspended: brokers {failed} are down, over the budget", True

    # -- reading ---------------------------------------------------------------

    def reign(self) -> ActiveController:
        """Return the present term of office.

        Raises:
            NoController: this process does not rule, or is just taking over.

        """
        reign = self._leadership.reign
        if reign is None or not reign.ready.is_set():
            raise NoController("this controller is not the active one")
        return reign

    def image(self) -> ClusterImage:
        """Return the cluster as the active controller knows it, to be read at once.

        Raises:
            NoController: this process does not rule.

        """
        return self.reign().image

    def cluster_id(self) -> str:
        """Return the cluster's id."""
        return self._leadership.cluster_id

    async def metadata(self, after: int | None, wait_ms: int) -> MetadataView:
        """Return the metadata, once it is newer than version `after` or `wait_ms` have passed.

        Raises:
            NoController: this process does not rule.

        """
        reign = self.reign()
        if after is not None and wait_ms > 0:
            newer = reign.delivery.until(lambda: reign.metadata.version > after)
            await self._until(newer, wait_ms)
        if reign.delivery.is_over:
            raise NoController("this controller is not the active one any more")
        return reign.metadata

    async def history(self) -> History:
        """Return the history, once it holds all that was written until now.

        Raises:
            HistoryUnavailable: it cannot be read, or is still catching up.

        """
        historian = self._leadership.historian
        if historian is None:
            raise HistoryUnavailable("this controller keeps no history")
        if not await historian.catch_up(CATCH_UP_S):
            raise HistoryUnavailable(
                "this controller's history is still catching up, or ZooKeeper is away: ask again"
            )
        return historian.history

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

    def etag(self, resource: Named) -> str | None:
        """Return the ETag of a resource; None where there is no such resource."""
        return self.reign().etags.of(resource)

    def configs(self, resource: ConfigResource) -> DynamicConfigs:
        """Return the settings in force, which hold those of `resource`.

        Raises:
            UnknownTopic: there is no such topic.
            NotFound: no such broker is known.

        """
        configs = self.reign().desk.configs
        configs.find(resource)
        return configs

    # -- changing --------------------------------------------------------------

    async def ask(self, kind: Callable[..., events.Request[_Answer]], **what: Any) -> _Answer:
        """Put a request of a kind into the engine's queue, and return the answer to it.

        Raises:
            NoController: this process does not rule.
            LeadlineError: whatever the handler refuses with.

        """
        reign = self.reign()
        reply: asyncio.Future[_Answer] = asyncio.get_running_loop().create_future()
        cause = current_cause() or new_cause()
        now_ms = reign.office.clock.monotonic_ms()
        guard = current_guard()
        reign.desk.post(kind(cause=cause, at_ms=now_ms, reply=reply, guard=guard, **what))
        return await reply

    def tell(self, kind: Callable[..., events.Event], **what: Any) -> None:
        """Put an event into the engine's queue, if this process still rules."""
        reign = self._leadership.reign
        if reign is not None:
            now_ms = reign.office.clock.monotonic_ms()
            reign.desk.post(kind(cause=current_cause() or new_cause(), at_ms=now_ms, **what))

    async def create_topic(
        self, new: NewTopic, *, dry_run: bool
    ) -> tuple[str, Mapping[int, tuple[int, ...]]]:
        """Create a topic; return its id and its replicas when every live broker knows them.

        Raises:
            Refused: against the rules; nothing was written.
            OutcomeUnknown: written, but not known to be heard of within
                create.topic.timeout.ms; or ZooKeeper was lost.

        """
        asked = self.ask(events.CreateTopic, new=new, dry_run=dry_run)
        if dry_run:
            return "", await asked
        assignment = await self.spread(new.name, asked)
        return self.image().topics[new.name].topic_id, assignment

    async def spread(self, topic: str, asked: Awaitable[_Answer]) -> _Answer:
        """Await a change of a topic, and then that every live broker knows it.

        Raises:
            OutcomeUnknown: written, but not known to be heard of within
                create.topic.timeout.ms, or the topic was deleted meanwhile.

        """
        reign = self.reign()
        deadline_ms = reign.desk.configs.current().create_topic_timeout_ms
        try:
            async with asyncio.timeout(deadline_ms / 1000):
                answer = await asked
                version = reign.image.version
                told = partial(reign.delivery.heard_of, topic, version)
                if not await reign.delivery.until(told) or topic not in reign.image.topics:
                    raise StoreOutcomeUnknown(
                        f"topic {topic!r}: this controller lost its office, or it was deleted"
                    )
        except TimeoutError:
            raise RequestTimedOut(
                f"topic {topic!r}: not every broker has heard of it in {deadline_ms} ms"
            ) from None
        return answer

    async def delete_topic(self, name: str, wait_ms: int) -> tuple[str, bool]:
        """Order a topic's deletion; return its id, and whether it was complete within `wait_ms`.

        Raises:
            UnknownTopic: there is no such topic.
            OutcomeUnknown: ZooKeeper was lost.

        """
        reign = self.reign()
        topic_id = await self.ask(events.DeleteTopic, topic=name)

        def is_gone() -> bool:
            topic = reign.image.topics.get(name)
            return topic is None or topic.topic_id != topic_id

        return topic_id, await self._until(reign.delivery.until(is_gone), wait_ms)

    async def elect(
        self, names: Sequence[TopicPartition] | None, *, unclean: bool, dry_run: bool = False
    ) -> list[StateDecision]:
        """Have leaders elected; return what was written, or on a dry run would be.

        Raises:
            Refused: a partition does not exist; nothing was written.
            OutcomeUnknown: ZooKeeper was lost.

        """
        wanted = None if names is None else tuple(names)
        return await self.ask(events.ElectLeaders, unclean=unclean, names=wanted, dry_run=dry_run)

    def heartbeat(self, beat: HeartbeatRequest) -> HeartbeatResponse:
        """Take in a broker's heartbeat.

        Raises:
            NoController: this process does not rule.

        """
        reign = self.reign()
        reign.on_heartbeat(beat)
        throttle = reign.tasks.book.moving_bytes_per_s
        return HeartbeatResponse(self.id, reign.office.term.epoch, throttle)

    async def controlled_shutdown(
        self, stopping: ControlledShutdownRequest
    ) -> ControlledShutdownResponse:
        """Relieve a broker that is about to stop; answer when the new leaders have taken over.

        Raises:
            NoController: this process does not rule.
            Refused: the broker is not known in this incarnation.
            OutcomeUnknown: ZooKeeper was lost.

        """
        reign = self.reign()
        remaining = await self.ask(
            BrokerStops, broker_id=stopping.broker_id, incarnation=stopping.incarnation
        )
        await self._until(reign.delivery.until(reign.delivery.settled), HAND_OVER_WAIT_MS)
        return ControlledShutdownResponse(reign.office.term.epoch, [*remaining])

    async def comes_true(self, condition: Callable[[], bool], wait_ms: int) -> bool:
        """Wait until something holds that the active controller brings about; False if it is late.

        Raises:
            NoController: this process does not rule.

        """
        return await self._until(self.reign().delivery.until(condition), wait_ms)

    # -- within ----------------------------------------------------------------

    async def _until(self, condition: Awaitable[bool], wait_ms: int) -> bool:
        """Await a condition; False when time is up, or the term or the process is about to end."""
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
