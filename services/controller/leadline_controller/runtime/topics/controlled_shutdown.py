"""Controlled shutdown: moves leadership off a broker before it stops.

Only the broker and the current term know that a broker is shutting down: after a
change of controller the broker has to ask again. Repeating the request is safe.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final

import structlog

from leadline_client.errors import BrokerFenced, StaleIncarnation
from leadline_client.wire import TopicPartition
from leadline_common.slices import slices
from leadline_controller.domain.cluster import ClusterImage
from leadline_controller.domain.controlled_shutdown import (
    decide_controlled_shutdown,
    partitions_hosted_by,
    partitions_led_by,
)
from leadline_controller.domain.failover import StateDecision
from leadline_controller.runtime.channel.dispatcher import BrokerDispatcher
from leadline_controller.runtime.engine.event_queue import EventHandler, EventQueue
from leadline_controller.runtime.engine.events import (
    BrokersChanged,
    ControllerRequest,
    Reply,
)
from leadline_controller.runtime.engine.publishing import StatePublisher

logger = structlog.get_logger(__name__)

AT_ONCE: Final = 2_000
"""Partitions that are decided in one turn of the event loop."""


@dataclass(frozen=True, slots=True)
class BrokerStops(ControllerRequest[list[TopicPartition]]):
    """A broker is shutting down; the answer is what it still leads after the elections."""

    broker_id: int
    incarnation: int


@dataclass(eq=False)
class ControlledShutdownManager(EventHandler):
    """Handles controlled shutdowns."""

    image: ClusterImage
    queue: EventQueue
    publisher: StatePublisher
    dispatcher: BrokerDispatcher

    @BrokerStops.handler
    async def on_controlled_shutdown(
        self, event: BrokerStops, reply: Reply[list[TopicPartition]]
    ) -> None:
        """Move leadership off a broker, and give it no role until its next incarnation.

        Raises:
            StaleIncarnation: a later incarnation of the broker is live.
            BrokerFenced: this incarnation is not known yet.

        """
        broker_id = event.broker_id
        self._check_known(event)
        self.image.mark_stopping(broker_id)
        decide = partial(decide_controlled_shutdown, self.image)
        decisions: list[StateDecision] = []
        async for some in slices(partitions_hosted_by(self.image, broker_id), AT_ONCE):
            decisions += decide(some)
        reason, actor = f"broker {broker_id} is about to stop", f"broker-{broker_id}"
        await self.publisher.write(
            decisions, "controlled_shutdown", reason, actor=actor, decide=decide
        )
        await self.dispatcher.halt_replicas(broker_id)
        remaining: list[TopicPartition] = []
        async for some in slices(partitions_hosted_by(self.image, broker_id), AT_ONCE):
            remaining += partitions_led_by(self.image, broker_id, some)
        logger.info(
            "controlled shutdown",
            broker=broker_id,
            decisions=len(decisions),
            remaining=len(remaining),
        )
        reply.settle(remaining)

    def _check_known(self, event: BrokerStops) -> None:
        known = self.image.brokers.get(event.broker_id)
        if known is not None and known.incarnation == event.incarnation:
            return
        if known is not None and known.incarnation > event.incarnation:
            raise StaleIncarnation(
                f"broker {event.broker_id} has registered as incarnation {known.incarnation} since"
            )
        self.queue.trigger(BrokersChanged)
        raise BrokerFenced(
            f"broker {event.broker_id} is not known as incarnation {event.incarnation} yet"
        )
