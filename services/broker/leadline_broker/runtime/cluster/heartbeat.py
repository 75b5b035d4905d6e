"""Heartbeats to the controller, which report the roles that this broker has applied (rule R8).

The controller sends again what is missing. Its response carries the throttle of moving
replicas (KIP-73).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import structlog

from leadline_broker.runtime.cluster.broker_state import NO_INCARNATION, BrokerState
from leadline_broker.runtime.ports import Peers
from leadline_client.errors import LeadlineError
from leadline_client.wire import TopicPartition
from leadline_common.identity import InternalAddress
from leadline_common.rpc import HeartbeatRequest, HeartbeatResponse

logger = structlog.get_logger(__name__)

_SHORTEST_TIMEOUT_MS: Final = 1_000


@dataclass(eq=False)
class Heartbeats:
    """Sends heartbeats periodically, and at once after an ISR change.

    `build_request(isr_changes)` returns the next request; `controller()` returns the
    controller's address, None while it is unknown; `on_response(response)` is called with each
    response.
    """

    peers: Peers
    broker_state: BrokerState
    interval_ms: int
    controller: Callable[[], InternalAddress | None]
    build_request: Callable[[list[tuple[str, int]]], HeartbeatRequest]
    on_response: Callable[[HeartbeatResponse], None]
    _isr_changes: dict[TopicPartition, None] = field(default_factory=dict, init=False)
    _due: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _failing: bool = field(default=False, init=False)

    def isr_changed(self, topic_partition: TopicPartition) -> None:
        """Report a written ISR at once."""
        self._isr_changes[topic_partition] = None
        self._due.set()

    def trigger(self) -> None:
        """Send the next heartbeat at once."""
        self._due.set()

    async def run(self) -> None:
        """Send heartbeats; never returns."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self.interval_ms / 1000):
                    await self._due.wait()
            self._due.clear()
            controller = self.controller()
            if controller is not None and self.broker_state.incarnation != NO_INCARNATION:
                await self._send(controller)

    async def _send(self, to: InternalAddress) -> None:
        changes, self._isr_changes = self._isr_changes, {}
        timeout_ms = max(_SHORTEST_TIMEOUT_MS, self.interval_ms)
        try:
            request = self.build_request(list(changes))
            response = await self.peers.heartbeat(to, request, timeout_ms)
        except LeadlineError as error:
            self._isr_changes = changes | self._isr_changes
            if not self._failing:
                logger.warning("heartbeat failed", controller=to.url, reason=error.message)
            self._failing = True
        else:
            self._failing = False
            self.on_response(response)
