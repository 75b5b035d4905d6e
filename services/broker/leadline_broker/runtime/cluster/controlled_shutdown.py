"""Controlled shutdown: what this broker leads moves away while it still serves.

The controller is asked until nothing is left to move, or nobody else is there who
could lead it. What it answers is a hint (rule R8); the roles come as always.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import structlog

from leadline_broker.runtime.backoff import Backoff
from leadline_broker.runtime.cluster.broker_state import BrokerState
from leadline_broker.runtime.cluster.metadata import ClusterMetadataCache
from leadline_broker.runtime.ports import Peers
from leadline_broker.runtime.replication.partition import Partition
from leadline_broker.runtime.replication.replica_manager import ReplicaManager
from leadline_client.errors import LeadlineError
from leadline_common.rpc import ControlledShutdownRequest

logger = structlog.get_logger(__name__)

_ANSWER_TIMEOUT_MS: Final = 5_000
_ANSWERS_TIMEOUT_S: Final = 1.0
_ROLES_TIMEOUT_S: Final = 2.0
"""How long roles may take after the controller has moved the leaders, before it is asked again."""


class ControlledShutdown:
    """Has the controller relieve this broker. Owned by the event loop."""

    def __init__(
        self,
        *,
        peers: Peers,
        broker_state: BrokerState,
        replicas: ReplicaManager,
        metadata: ClusterMetadataCache,
        controller_url: Callable[[], str],
        backoff: Backoff,
    ) -> None:
        self._peers = peers
        self._broker_state = broker_state
        self._replicas = replicas
        self._metadata = metadata
        self._controller_url = controller_url
        self._backoff = backoff

    async def run(self, timeout_ms: int) -> None:
        """Return once nothing is led here, nobody else can lead it, or the time is up."""
        self._broker_state.leaving = True
        logger.info("handing over", partitions=len(self._replicas.led()))
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_ms / 1000):
                while self._may_ask() and await self._moves_on():
                    await self._pause()
            async with asyncio.timeout(_ANSWERS_TIMEOUT_S):
                await self._until_answered()
        left = self._replicas.led()
        logger.info("relieved" if not left else "stopping as leader", partitions=len(left))

    async def _until_answered(self) -> None:
        """Let produces that came before the move have their answers: the new leader knows them."""
        while waiting := [p for p in self._replicas.all() if _owes_answers(p)]:
            await waiting[0].changed()

    async def _pause(self) -> None:
        await asyncio.sleep(self._backoff.next_ms() / 1000)

    def _may_ask(self) -> bool:
        return self._broker_state.granted and self._broker_state.lease_valid()

    async def _moves_on(self) -> bool:
        """Ask once; tell whether asking again may still bring something."""
        try:
            remaining = await self._ask()
        except LeadlineError as error:
            logger.warning("not relieved by the controller", reason=error.message)
            may_pass = error.retriable or error.outcome == "unknown"
            return may_pass and bool(self._replicas.led())
        with suppress(TimeoutError):
            async with asyncio.timeout(_ROLES_TIMEOUT_S):
                while moved := [p for p in self._replicas.led() if p.name not in remaining]:
                    await moved[0].changed()
        return any(self._another_may_lead(partition) for partition in self._replicas.led())

    async def _ask(self) -> set[tuple[str, int]]:
        """Return what the controller could not move.

        Raises:
            LeadlineError: it refuses, or nobody knows what it did.

        """
        me = self._broker_state
        cause = f"shutdown-{me.broker_id}-{me.incarnation}"
        request = ControlledShutdownRequest(me.broker_id, me.incarnation, cause)
        answer = await self._peers.controlled_shutdown(
            self._controller_url(), request, _ANSWER_TIMEOUT_MS
        )
        return set(answer.remaining)

    def _another_may_lead(self, partition: Partition) -> bool:
        """Tell whether a replica lives elsewhere: it may still catch up."""
        assigned = {*partition.replica.state.assigned} - {self._broker_state.broker_id}
        return not assigned.isdisjoint(self._metadata.brokers)


def _owes_answers(partition: Partition) -> bool:
    return partition.replica.leadership is None and partition.replica.has_parked
