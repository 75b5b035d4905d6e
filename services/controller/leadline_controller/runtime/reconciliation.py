"""The beginning of a term, and the level-triggered part: compare with ZooKeeper and repair (R8)."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from typing import Final

import structlog

from leadline_common.cause import current_cause
from leadline_common.clock import Clock
from leadline_common.leader_election import LeadershipTerm, require_leadership
from leadline_common.slices import in_turns
from leadline_controller.domain.cluster import ClusterImage, StateSet
from leadline_controller.domain.failover import StateDecision, on_controller_failover
from leadline_controller.runtime.channel.dispatcher import BrokerDispatcher
from leadline_controller.runtime.engine.dynamic_configs import DynamicConfigs
from leadline_controller.runtime.engine.event_queue import EventHandler, EventQueue
from leadline_controller.runtime.engine.events import (
    BrokersChanged,
    ControllerChanged,
    Reconcile,
)
from leadline_controller.runtime.engine.executor import isolated
from leadline_controller.runtime.engine.external_changes import ExternalChanges
from leadline_controller.runtime.engine.metrics import ControllerMetrics
from leadline_controller.runtime.engine.publishing import StatePublisher
from leadline_controller.runtime.engine.state_writer import StaleImage
from leadline_controller.runtime.ports import ControllerStore
from leadline_controller.runtime.topics.brokers import BrokerManager
from leadline_controller.runtime.topics.topics import TopicManager, TopicsChanged

logger = structlog.get_logger(__name__)

MAX_SHARE: Final = 20
"""The reconciliation takes at most one part in this many of the time, if possible."""
MAX_INTERVALS: Final = 12
"""The longest pause: a slow reconciliation may be due to ZooKeeper, which recovers."""


@dataclass(eq=False)
class Reconciler(EventHandler):
    """Begins the term, and reconciles periodically, with all `handlers`."""

    term: LeadershipTerm
    store: ControllerStore
    image: ClusterImage
    queue: EventQueue
    configs: DynamicConfigs
    publisher: StatePublisher
    dispatcher: BrokerDispatcher
    clock: Clock
    brokers: BrokerManager
    topics: TopicManager
    external: ExternalChanges
    handlers: Sequence[EventHandler]
    metrics: ControllerMetrics
    _last_ms: int = field(default=0, init=False)

    async def begin(self) -> None:
        """Begin the term from the loaded image (Replication V3, on_controller_failover).

        Publish first, then grant: a broker that registered after a state was written must not
        be granted the old role that the state names.
        """
        cause = current_cause()
        try:
            await self._repair("controller_failover")
        except StaleImage as error:
            logger.info("broker has changed; reading again", path=str(error))
            self.queue.trigger(Reconcile, cause)
        self.dispatcher.follow_image(self.image.brokers)
        for handler in self.handlers:
            await self._isolated(handler.on_elected(), handler)
        await self.check_leadership()
        # Find what changed between loading the image and setting the watches.
        self.queue.trigger(BrokersChanged, cause)
        self.queue.trigger(TopicsChanged, cause)

    @Reconcile.handler
    async def on_reconcile(self) -> None:
        """Read everything, apply the changes, and decide again."""
        begun_ms = self.clock.monotonic_ms()
        await self.check_leadership()
        await self._isolated(self.brokers.read_brokers(), self.brokers)
        await self._isolated(self.topics.read_topics(everything=True), self.topics)
        await self._isolated(self._read_states(), self)
        await self._isolated(self._repair("reconciliation"), self)
        for handler in self.handlers:
            await self._isolated(handler.reconcile(), handler)
        self._last_ms = self.clock.monotonic_ms() - begun_ms

    async def _read_states(self) -> None:
        states: list[StateSet] = []
        async for topics in in_turns(self.image.topic_parts()):
            known = {one: partition.version for one, partition in self.image.partitions(topics)}
            states += await self.store.read_states(list(known), list(known.values()))
        await self.external.record_states(states, everything=True)
        self.publisher.apply_read(states)

    async def _isolated(self, work: Awaitable[None], owner: object) -> None:
        """Do one part; a fault in it is logged and counted, and the others are done."""
        await isolated(work, "part of the reconciliation failed", owner, self.metrics)

    @ControllerChanged.handler
    async def check_leadership(self) -> None:
        """End the term if this session does not hold `/controller`, or its epoch is over."""
        await require_leadership(self.store, self.term, self._leader_changed)

    def _leader_changed(self) -> None:
        self.queue.trigger(Reconcile)

    async def _repair(self, kind: str) -> None:
        decisions: list[StateDecision] = []
        async for topics in in_turns(self.image.topic_parts()):
            decisions += on_controller_failover(self.image, topics)
        if decisions:
            logger.info("partition states due", kind=kind, count=len(decisions))
        await self.publisher.write(decisions, kind)

    async def run(self) -> None:
        """Trigger a reconciliation periodically; less often if it takes long."""
        while True:
            interval_ms = self.configs.current().reconcile_interval_ms
            await self.configs.changed(within_s=pause_ms(interval_ms, self._last_ms) / 1000)
            self.queue.trigger(Reconcile)


def pause_ms(interval_ms: int, last_ms: int) -> int:
    """Return how long to wait until the next reconciliation, if the last one took `last_ms`."""
    return max(interval_ms, min(MAX_SHARE * last_ms, MAX_INTERVALS * interval_ms))
