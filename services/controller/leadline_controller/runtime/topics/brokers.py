"""What the active controller does when brokers, leaders' ISR and leadership change (seed 1 A)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial

from leadline_common.znodes import BrokerRegistration
from leadline_controller.domain.cluster import (
    BrokerDown,
    Change,
    ClusterImage,
)
from leadline_controller.domain.failover import BrokerChange, on_broker_change
from leadline_controller.runtime.engine import events
from leadline_controller.runtime.engine.context import EventContext
from leadline_controller.runtime.engine.handler import EventHandler, Handlers
from leadline_controller.runtime.engine.state_writer import Why

_log = logging.getLogger(__name__)


class BrokerManager(EventHandler):
    """The handlers of broker changes and ISR changes."""

    def __init__(self, desk: EventContext) -> None:
        self._desk = desk
        self._store = desk.office.store
        self._timers: set[asyncio.Task[None]] = set()

    @property
    def handlers(self) -> Handlers:
        """Return who handles what."""
        return {
            events.BrokerGone: self.on_broker_gone,
            events.BrokersChanged: self.on_broker_change,
            events.IsrChanged: self.on_isr_change,
        }

    async def take_over(self, _cause: str) -> None:
        """Be told of the end of every live broker."""
        await self.watch(list(self._image.brokers))

    async def reconcile(self, _event: events.Reconcile) -> None:
        """Set the watches anew that were lost."""
        await self.watch(list(self._image.brokers))

    @property
    def _image(self) -> ClusterImage:
        return self._desk.image

    async def on_broker_gone(self, event: events.BrokerGone) -> None:
        """Act on one broker's vanished registration at once, without reading anything."""
        known = self._image.brokers.get(event.broker_id)
        if known is None or known.incarnation != event.incarnation:
            return
        live = {b: r for b, r in self._image.brokers.items() if b != event.broker_id}
        await self._follow(live, [BrokerDown(event.broker_id)], event)

    async def on_broker_change(self, event: events.BrokersChanged | events.Reconcile) -> None:
        """Read who is live, and follow it (seed 1: on_broker_change)."""
        found = await self._store.live_brokers(self._look_again)
        live = {broker: up.registration for broker, up in found.brokers.items()}
        changes: list[Change] = [
            BrokerDown(broker, found.zxid) for broker in self._image.brokers if broker not in live
        ]
        changes += found.brokers.values()
        await self._follow(live, changes, event)

    async def on_isr_change(self, event: events.IsrChanged) -> None:
        """Read the states that a leader has written, or that a broker would not take."""
        self._desk.adopt(await self._store.read_states(event.names))

    async def watch(self, broker_ids: Sequence[int]) -> None:
        """Be told of the end of these brokers' registrations."""
        for broker_id in broker_ids:
            broker = self._image.brokers.get(broker_id)
            if broker is not None and not await self._store.watch_broker(
                broker_id, partial(self._gone, broker)
            ):
                self._look_again()

    def _gone(self, broker: BrokerRegistration) -> None:
        self._desk.post(
            events.BrokerGone(
                cause=f"broker-{broker.id}-{broker.incarnation}-gone",
                at_ms=self._desk.office.clock.monotonic_ms(),
                broker_id=broker.id,
                incarnation=broker.incarnation,
            )
        )

    def _look_again(self) -> None:
        self._desk.hint(events.BrokersChanged)

    async def _follow(
        self,
        live: dict[int, BrokerRegistration],
        changes: Sequence[Change],
        event: events.BrokerGone | events.BrokersChanged | events.Reconcile,
    ) -> None:
        """Decide, publish, tell, and only then grant roles to who has come (rule R9)."""
        delivery = self._desk.delivery
        change = on_broker_change(self._image, live)
        self._image.apply(changes)
        delivery.meet_brokers((), event.cause)
        if change.failed or change.granted:
            _log.info(
                "brokers: failed %s, bounced %s, started %s; %d decisions",
                change.failed,
                change.bounced,
                change.started,
                len(change.decisions),
            )
        why = Why(event.cause, self._desk.office.actor, "broker_change", _words(change))
        try:
            await self._desk.write(change.decisions, why)
        finally:
            delivery.meet_brokers(change.granted, event.cause)
        if change.decisions:
            self._time(event, len(change.decisions))
        await self.watch(change.granted)

    def _time(self, event: events.Event, partitions: int) -> None:
        """Measure from the event to the last acknowledgement, beside the queue."""

        async def measure() -> None:
            await self._desk.delivery.until(self._desk.delivery.settled)
            took_ms = self._desk.office.clock.monotonic_ms() - event.at_ms
            self._desk.office.metrics.failover_seconds.observe(took_ms / 1000)
            _log.info(
                "%d partitions led anew and acknowledged %d ms after the news (cause %s)",
                partitions,
                took_ms,
                event.cause,
            )

        timer = asyncio.create_task(measure(), name="failover-timer")
        self._timers.add(timer)
        timer.add_done_callback(self._timers.discard)

    async def close(self) -> None:
        """End what runs beside the queue."""
        for timer in list(self._timers):
            timer.cancel()
        await asyncio.gather(*self._timers, return_exceptions=True)


def _words(change: BrokerChange) -> str:
    parts = (("failed", change.failed), ("bounced", change.bounced), ("started", change.started))
    return "; ".join(f"{word} {list(ids)}" for word, ids in parts if ids)
