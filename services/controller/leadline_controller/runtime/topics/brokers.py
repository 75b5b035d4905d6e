"""Handlers of broker and ISR changes (Replication V3, section A)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import msgspec
import structlog

from leadline_client.wire import TopicPartition
from leadline_common.clock import Clock
from leadline_common.slices import in_turns
from leadline_common.znodes import BrokerRegistration
from leadline_controller.domain.cluster import BrokerDown, Change, ClusterImage
from leadline_controller.domain.failover import BrokerChange, StateDecision, on_broker_change
from leadline_controller.domain.memberships import misplaced_on
from leadline_controller.runtime.channel.dispatcher import BrokerDispatcher
from leadline_controller.runtime.engine.event_queue import EventHandler, EventQueue
from leadline_controller.runtime.engine.events import (
    BrokersChanged,
    ControllerEvent,
    IsrChanged,
)
from leadline_controller.runtime.engine.external_changes import ExternalChanges
from leadline_controller.runtime.engine.metrics import ControllerMetrics
from leadline_controller.runtime.engine.publishing import StatePublisher
from leadline_controller.runtime.ports import ControllerStore

logger = structlog.get_logger(__name__)

MAX_NAMED = 5
"""How many partitions the reason of an audit entry names."""


@dataclass(frozen=True, slots=True)
class BrokerGone(ControllerEvent):
    """The watch on one broker's registration fired: the broker failed or restarted."""

    broker_id: int
    incarnation: int


@dataclass(eq=False)
class BrokerManager(EventHandler):
    """Handles broker changes and ISR changes."""

    store: ControllerStore
    image: ClusterImage
    queue: EventQueue
    publisher: StatePublisher
    dispatcher: BrokerDispatcher
    clock: Clock
    metrics: ControllerMetrics
    external: ExternalChanges

    async def on_elected(self) -> None:
        """Watch the registration of every live broker, and record what an earlier term left out."""
        await self._watch(list(self.image.brokers))
        async for broker in in_turns(sorted(self.image.live)):
            found = misplaced_on(self.image, self.image.brokers, [broker])
            await self._record_misplaced(found)

    async def reconcile(self) -> None:
        """Set missing watches again."""
        await self._watch(list(self.image.brokers))

    @BrokerGone.handler
    async def on_broker_gone(self, event: BrokerGone) -> None:
        """Act on the end of one broker's registration at once, without reading anything."""
        known = self.image.brokers.get(event.broker_id)
        if known is None or known.incarnation != event.incarnation:
            return
        live = {b: r for b, r in self.image.brokers.items() if b != event.broker_id}
        await self._apply(live, [BrokerDown(event.broker_id)])

    @BrokersChanged.handler
    async def read_brokers(self) -> None:
        """Read the live brokers, and act on changes (Replication V3, on_broker_change)."""
        found = await self.store.live_brokers(self._read_again)
        live = {broker: up.registration for broker, up in found.brokers.items()}
        changes: list[Change] = [
            BrokerDown(broker, found.zxid) for broker in self.image.brokers if broker not in live
        ]
        changes += found.brokers.values()
        await self._apply(live, changes)

    @IsrChanged.handler
    async def on_isr_change(self, event: IsrChanged) -> None:
        """Read states that a leader has written, or that a broker has refused."""
        states = await self.store.read_states(event.topic_partitions)
        await self.external.record_states(states)
        self.publisher.apply_read(states)

    async def _watch(self, broker_ids: Sequence[int]) -> None:
        """Watch the registrations of these brokers."""
        for broker_id in broker_ids:
            broker = self.image.brokers.get(broker_id)
            if broker is not None and not await self.store.watch_broker(
                broker_id, partial(self._gone, broker)
            ):
                self._read_again()

    def _gone(self, broker: BrokerRegistration) -> None:
        cause = f"broker-{broker.id}-{broker.incarnation}-gone"
        self.queue.post(BrokerGone(broker.id, broker.incarnation), cause)

    def _read_again(self) -> None:
        self.queue.trigger(BrokersChanged)

    async def _apply(self, live: dict[int, BrokerRegistration], changes: Sequence[Change]) -> None:
        """Decide and publish; grant roles to new incarnations only then (rule R9)."""
        change = await self._decide(live)
        misplaced = misplaced_on(self.image, live, change.granted)
        self.image.apply(changes)
        self.dispatcher.follow_image(())
        if change.failed or change.granted:
            logger.info(
                "brokers changed",
                failed=change.failed,
                bounced=change.bounced,
                started=change.started,
                decisions=len(change.decisions),
            )
        try:
            await self.publisher.write(change.decisions, "broker_change", _reason(change))
        finally:
            self.dispatcher.follow_image(change.granted)
        if change.decisions:
            self._measure(self.queue.posted_ms, len(change.decisions))
        await self._watch(change.granted)
        await self._record_misplaced(misplaced)

    async def _decide(self, live: Mapping[int, BrokerRegistration]) -> BrokerChange:
        change = on_broker_change(self.image, live, ())
        if not (change.failed or change.granted):
            return change
        decisions: list[StateDecision] = []
        async for topics in in_turns(self.image.topic_parts()):
            decisions += on_broker_change(self.image, live, topics).decisions
        return msgspec.structs.replace(change, decisions=decisions)

    async def _record_misplaced(self, found: Mapping[int, Sequence[TopicPartition]]) -> None:
        """Record in which partitions returned brokers have lost their membership (rule R17)."""
        for broker_id, partitions in found.items():
            broker = self.image.brokers[broker_id]
            reason = _lost_memberships(broker_id, partitions)
            logger.warning("directory replaced", broker=broker_id, reason=reason)
            await self.publisher.audit.record(
                self.publisher.audit.entry(
                    "directory_replaced",
                    {"broker": broker_id},
                    reason=reason,
                    after={
                        "directory_id": broker.directory_id,
                        "directory_epoch": broker.directory_epoch,
                        "partitions": len(partitions),
                    },
                )
            )

    def _measure(self, posted_ms: int, partitions: int) -> None:
        """Measure, beside the queue, the time from the event to the last acknowledgement."""

        async def measure() -> None:
            await self.dispatcher.until(self.dispatcher.settled)
            took_ms = self.clock.monotonic_ms() - posted_ms
            self.metrics.failover_seconds.observe(took_ms / 1000)
            logger.info("failover acknowledged", partitions=partitions, ms=took_ms)

        self.run_in_background(measure(), "failover-timer")


def _lost_memberships(broker_id: int, partitions: Sequence[TopicPartition]) -> str:
    shown = ", ".join(f"{topic}-{number}" for topic, number in partitions[:MAX_NAMED])
    more = ", …" if len(partitions) > MAX_NAMED else ""
    return (
        f"broker {broker_id} registered with another log directory than that of its membership, "
        f"or without that log or its end, in {len(partitions)} partitions ({shown}{more}): it "
        "counts for no ISR there"
    )


def _reason(change: BrokerChange) -> str:
    parts = (("failed", change.failed), ("bounced", change.bounced), ("started", change.started))
    return "; ".join(f"{word} {list(ids)}" for word, ids in parts if ids)
