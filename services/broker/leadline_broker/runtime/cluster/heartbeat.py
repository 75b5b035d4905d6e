"""Heartbeats to the controller: what this broker has applied (rule R8).

The controller compares and sends again what is missing. The answer means that it
heard, and says how much moving replicas may be sent (KIP-73).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import structlog

from leadline_broker.runtime.cluster.broker_state import NO_INCARNATION, BrokerState
from leadline_broker.runtime.ports import Peers
from leadline_client.errors import LeadlineError
from leadline_common.rpc import HeartbeatRequest, HeartbeatResponse

logger = structlog.get_logger(__name__)

_SHORTEST_TIMEOUT_MS: Final = 1_000


class Heartbeats:
    """Tells the controller regularly, and at once after an ISR change.

    `describe(isr_changes)` makes the request; `controller_url()` says where the
    controller is, "" while nobody knows; `heard(answer)` is told of each answer.
    """

    def __init__(
        self,
        peers: Peers,
        broker_state: BrokerState,
        *,
        interval_ms: int,
        controller_url: Callable[[], str],
        describe: Callable[[list[tuple[str, int]]], HeartbeatRequest],
        heard: Callable[[HeartbeatResponse], None],
    ) -> None:
        self._peers = peers
        self._broker_state = broker_state
        self._interval_ms = interval_ms
        self._controller_url = controller_url
        self._describe = describe
        self._heard = heard
        self._isr_changes: dict[tuple[str, int], None] = {}
        self._now = asyncio.Event()
        self._unheard = False

    def isr_changed(self, topic: str, partition: int) -> None:
        """Tell of a written ISR at once."""
        self._isr_changes[topic, partition] = None
        self._now.set()

    def trigger(self) -> None:
        """Send the next heartbeat at once."""
        self._now.set()

    async def run(self) -> None:
        """Send heartbeats for ever."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._interval_ms / 1000):
                    await self._now.wait()
            self._now.clear()
            url = self._controller_url()
            if url and self._broker_state.incarnation != NO_INCARNATION:
                await self._beat(url)

    async def _beat(self, url: str) -> None:
        changes, self._isr_changes = self._isr_changes, {}
        timeout_ms = max(_SHORTEST_TIMEOUT_MS, self._interval_ms)
        try:
            answer = await self._peers.heartbeat(url, self._describe(list(changes)), timeout_ms)
        except LeadlineError as error:
            self._isr_changes = changes | self._isr_changes
            if not self._unheard:
                logger.warning("heartbeat not heard", controller=url, reason=error.message)
            self._unheard = True
        else:
            self._unheard = False
            self._heard(answer)
