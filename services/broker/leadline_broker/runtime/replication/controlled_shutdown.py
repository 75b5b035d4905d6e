"""Controlled shutdown: move leaders to other brokers while this broker still serves.

The broker asks the controller until it leads nothing, or no other broker could lead what is
left. The response is only a hint (rule R8); roles change by LeaderAndISR as always.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import structlog

from leadline_broker.runtime.cluster.broker_state import BrokerState
from leadline_broker.runtime.cluster.metadata import ClusterMetadataCache
from leadline_broker.runtime.ports import Peers
from leadline_broker.runtime.replication.partition import Partition
from leadline_broker.runtime.replication.replica_manager import ReplicaManager
from leadline_client.backoff import Backoff
from leadline_client.errors import LeadlineError, NoController
from leadline_common.identity import InternalAddress
from leadline_common.rpc import ControlledShutdownRequest

logger = structlog.get_logger(__name__)

_ANSWER_TIMEOUT_MS: Final = 5_000
_ANSWERS_TIMEOUT_S: Final = 1.0
_ROLES_TIMEOUT_S: Final = 2.0
"""How long to wait for the new roles before asking again."""
REDIRECT_S: Final = 0.5
"""How long to name the new leaders to clients with older metadata before connections are closed.

A produce that is on its way when its connection closes has an unknown outcome.
"""


@dataclass(eq=False, kw_only=True)
class ControlledShutdown:
    """Asks the controller to move the leaders off this broker. Owned by the event loop."""

    peers: Peers
    broker_state: BrokerState
    replicas: ReplicaManager
    metadata: ClusterMetadataCache
    controller: Callable[[], InternalAddress | None]
    backoff: Backoff

    async def run(self, timeout_ms: int) -> None:
        """Return once this broker leads nothing, no other broker can lead it, or the time is up."""
        self.broker_state.leaving = True
        led = len(self.replicas.led())
        logger.info("controlled shutdown started", partitions=led)
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_ms / 1000):
                while self._may_ask() and await self._move_leaders():
                    await self._pause()
            async with asyncio.timeout(_ANSWERS_TIMEOUT_S):
                await self._until_answered()
        still_led = len(self.replicas.led())
        if still_led < led:
            await asyncio.sleep(REDIRECT_S)
        logger.info("controlled shutdown ended", still_led=still_led)

    async def _until_answered(self) -> None:
        """Wait until the produces that were accepted before the move are answered."""
        while waiting := [
            p for p in self.replicas.all() if p.replica.leadership is None and p.replica.has_parked
        ]:
            await waiting[0].changed()

    async def _pause(self) -> None:
        await asyncio.sleep(self.backoff.next_ms() / 1000)

    def _may_ask(self) -> bool:
        return self.broker_state.granted and self.broker_state.lease_valid()

    async def _move_leaders(self) -> bool:
        """Ask once; return whether asking again may move more leaders."""
        try:
            remaining = await self._ask()
        except LeadlineError as error:
            logger.warning("controlled shutdown refused", reason=error.message)
            may_pass = error.retriable or error.outcome == "unknown"
            return may_pass and bool(self.replicas.led())
        with suppress(TimeoutError):
            async with asyncio.timeout(_ROLES_TIMEOUT_S):
                while moved := [
                    p for p in self.replicas.led() if p.topic_partition not in remaining
                ]:
                    await moved[0].changed()
        return any(self._another_may_lead(partition) for partition in self.replicas.led())

    async def _ask(self) -> set[tuple[str, int]]:
        """Return the partitions whose leader the controller could not move.

        Raises:
            LeadlineError: the controller refused, or the outcome is unknown.

        """
        broker_id, incarnation = self.broker_state.broker_id, self.broker_state.incarnation
        cause = f"shutdown-{broker_id}-{incarnation}"
        request = ControlledShutdownRequest(broker_id, incarnation, cause)
        controller = self.controller()
        if controller is None:
            raise NoController("no controller is known")
        answer = await self.peers.controlled_shutdown(controller, request, _ANSWER_TIMEOUT_MS)
        return set(answer.remaining)

    def _another_may_lead(self, partition: Partition) -> bool:
        """Return whether another assigned broker is live: it may still catch up."""
        assigned = {*partition.replica.state.assigned} - {self.broker_state.broker_id}
        return not assigned.isdisjoint(self.metadata.brokers)
