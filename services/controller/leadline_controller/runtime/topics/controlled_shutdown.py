"""Relieving a broker that is about to stop of what it leads (controlled shutdown).

That a broker is about to stop is known from the broker alone, and to this term
alone: a new controller hears of it when the broker asks again. Repeating the
request is harmless: only what is left to be moved is moved.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial

from leadline_client.errors import BrokerFenced, StaleIncarnation
from leadline_client.wire import TopicPartition
from leadline_controller.domain.cluster import ClusterImage
from leadline_controller.domain.controlled_shutdown import (
    decide_controlled_shutdown,
    partitions_hosted_by,
    partitions_led_by,
)
from leadline_controller.runtime.engine import events
from leadline_controller.runtime.engine.context import EventContext
from leadline_controller.runtime.engine.handler import EventHandler, Handlers
from leadline_controller.runtime.engine.state_writer import Why

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class BrokerStops(events.Request[list[TopicPartition]]):
    """A broker is about to stop; answered with what it leads still, when all else is written."""

    broker_id: int
    incarnation: int


class ControlledShutdownManager(EventHandler):
    """The handler of controlled shutdowns."""

    def __init__(self, desk: EventContext) -> None:
        self._desk = desk

    @property
    def handlers(self) -> Handlers:
        """Return who handles what."""
        return {BrokerStops: self.on_controlled_shutdown}

    @property
    def _image(self) -> ClusterImage:
        return self._desk.image

    async def on_controlled_shutdown(self, event: BrokerStops) -> None:
        """Move leadership off a broker, and give it nothing new until its next incarnation.

        Raises:
            StaleIncarnation: a later incarnation of the broker is live.
            BrokerFenced: this incarnation is not known yet.

        """
        self._check_known(event)
        self._image.mark_stopping(event.broker_id)
        decide = partial(decide_controlled_shutdown, self._image)
        decisions = decide(partitions_hosted_by(self._image, event.broker_id))
        reason = f"broker {event.broker_id} is about to stop"
        why = Why(event.cause, f"broker-{event.broker_id}", "controlled_shutdown", reason)
        await self._desk.write(decisions, why, decide)
        self._desk.delivery.halt(event.broker_id, event.cause)
        remaining = partitions_led_by(self._image, event.broker_id)
        _log.info(
            "%s: %d states written, it leads %d partitions still",
            reason,
            len(decisions),
            len(remaining),
        )
        event.settle(remaining)

    def _check_known(self, event: BrokerStops) -> None:
        known = self._image.brokers.get(event.broker_id)
        if known is not None and known.incarnation == event.incarnation:
            return
        if known is not None and known.incarnation > event.incarnation:
            raise StaleIncarnation(
                f"broker {event.broker_id} has registered as incarnation {known.incarnation} since"
            )
        self._desk.hint(events.BrokersChanged)
        raise BrokerFenced(
            f"broker {event.broker_id} is not known as incarnation {event.incarnation} yet"
        )
