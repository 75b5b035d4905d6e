"""Copies of a leader's staged uploads on the other replicas, so that the next leader has them.

Only the leader creates and deletes copies; see `domain.staged_copies`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

import structlog

from leadline_broker.domain.staged_copies import must_hold, to_ask
from leadline_broker.runtime.cluster.broker_state import BrokerState
from leadline_broker.runtime.metrics import BrokerMetrics
from leadline_broker.runtime.ports import Peers
from leadline_broker.runtime.replication.partition import Partition
from leadline_broker.runtime.serving.serving import Serving
from leadline_client.backoff import Backoff
from leadline_client.batch_header import Buffer
from leadline_client.batches import validate
from leadline_client.errors import (
    ConnectionLost,
    LeaderNotAvailable,
    LeadlineError,
    NotEnoughReplicas,
    StagingFull,
)
from leadline_common.identity import InternalAddress
from leadline_common.staged_copies import (
    DropStagedRequest,
    KeepStagedRequest,
    ReadStagedRequest,
)

logger = structlog.get_logger(__name__)

_REPLICATE_TIMEOUT_MS: Final = 15_000
"""How long staging waits for the in-sync replicas; a failed one has left the ISR by then."""
_REQUEST_TIMEOUT_MS: Final = 5_000


@dataclass(eq=False, kw_only=True)
class StagedCopies:
    """The copies of this broker's staged uploads on other brokers. Owned by the event loop.

    `_unwanted` are the copies to delete; their ids are in `_discarded` until the deletion has
    been sent to all brokers.
    """

    broker_state: BrokerState
    serving: Serving
    peers: Peers
    metrics: BrokerMetrics
    random: Random
    _unwanted: dict[tuple[int, Partition], list[str]] = field(default_factory=dict, init=False)
    _discarded: set[str] = field(default_factory=set, init=False)
    _wake: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    async def run(self) -> None:
        """Send deletions to the other brokers; never returns."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            unwanted, self._unwanted = self._unwanted, {}
            await asyncio.gather(*(self._drop(*target, ids) for target, ids in unwanted.items()))
            for staged_ids in unwanted.values():
                self._discarded.difference_update(staged_ids)

    async def replicate(self, partition: Partition, staged_id: str, data: Buffer) -> None:
        """Copy an upload to every in-sync replica, while this broker leads.

        Raises:
            StagingFull: one of them has no space.
            NotEnoughReplicas: they are too few, or one does not store the copy in time.
            LeaderNotAvailable: the replica was removed meanwhile; for other errors see
                `Serving.led`.

        """
        held: set[int] = set()
        missing: Sequence[int] = ()
        failures: dict[int, LeadlineError] = {}
        pauses = Backoff(self.random.random, first_ms=50, longest_ms=500)
        try:
            async with asyncio.timeout(_REPLICATE_TIMEOUT_MS / 1000):
                while missing := self._missing(partition, held):
                    failures = await self._send_copies(missing, partition, staged_id, data)
                    held.update(broker for broker in missing if broker not in failures)
                    if failures:
                        await asyncio.sleep(pauses.next_ms() / 1000)
        except TimeoutError:
            reasons = "; ".join(
                f"broker {broker}: {failures.get(broker, 'no response')}" for broker in missing
            )
            raise NotEnoughReplicas(
                f"an in-sync replica did not store the upload: {reasons}",
                isr=list(partition.replica.state.isr),
            ) from None

    def _missing(self, partition: Partition, held: set[int]) -> list[int]:
        """Return the in-sync replicas that are not in `held`."""
        if self.serving.led(partition.topic, partition.partition) is not partition:
            raise LeaderNotAvailable("the replica was removed meanwhile")
        partition.replica.leading().check_append(all_replicas=True)
        return [broker for broker in must_hold(partition.replica) if broker not in held]

    async def _send_copies(
        self, brokers: Sequence[int], partition: Partition, staged_id: str, data: Buffer
    ) -> dict[int, LeadlineError]:
        """Send an upload to brokers; return the errors by broker."""

        async def keep(broker: int) -> LeadlineError | None:
            try:
                to, identity = self._addressed(broker, partition)
                request = KeepStagedRequest(**identity, staged_id=staged_id, records=bytes(data))
                await self.peers.keep_staged(to, request, _REQUEST_TIMEOUT_MS)
            except LeadlineError as error:
                return error
            return None

        answers = await asyncio.gather(*(keep(broker) for broker in brokers))
        failures = {broker: error for broker, error in zip(brokers, answers, strict=True) if error}
        for broker, error in failures.items():
            if isinstance(error, StagingFull):
                raise StagingFull(f"broker {broker}: {error.message}")
        return failures

    def discard(self, partition: Partition, staged_ids: Iterable[str]) -> None:
        """Delete copies on the other replicas soon; unreachable replicas let them expire."""
        ids = list(staged_ids)
        for broker in to_ask(partition.replica.state):
            self._unwanted.setdefault((broker, partition), []).extend(ids)
            self._discarded.update(ids)
        self._wake.set()

    async def _drop(self, broker: int, partition: Partition, staged_ids: list[str]) -> None:
        try:
            to, identity = self._addressed(broker, partition)
            request = DropStagedRequest(**identity, staged_ids=staged_ids)
            await self.peers.drop_staged(to, request, _REQUEST_TIMEOUT_MS)
        except LeadlineError as error:
            logger.info(
                "staged copies not deleted before they expire", broker=broker, reason=error.message
            )

    async def fetch(
        self, partition: Partition, staged_ids: Iterable[str]
    ) -> AsyncIterator[tuple[str, bytes | None]]:
        """Yield each upload from another replica, None if no reachable replica has it.

        Uploads that are being deleted are None too.
        """
        unreachable: set[int] = set()
        for staged_id in staged_ids:
            if staged_id in self._discarded:
                yield staged_id, None
            else:
                yield staged_id, await self._fetch(partition, staged_id, unreachable)

    async def _fetch(
        self, partition: Partition, staged_id: str, unreachable: set[int]
    ) -> bytes | None:
        for broker in to_ask(partition.replica.state):
            if broker in unreachable:
                continue
            try:
                to, identity = self._addressed(broker, partition)
                request = ReadStagedRequest(**identity, staged_id=staged_id)
                records = (await self.peers.read_staged(to, request, _REQUEST_TIMEOUT_MS)).records
                await asyncio.to_thread(validate, records)
            except ConnectionLost:
                unreachable.add(broker)
            except LeadlineError as error:
                logger.info("no staged copy", broker=broker, staged=staged_id, reason=error.message)
            else:
                self.metrics.recovered.inc()
                return records
        return None

    def _addressed(
        self, broker: int, partition: Partition
    ) -> tuple[InternalAddress, dict[str, Any]]:
        """Return a broker's address, and the identity fields of a request to it (rule R1).

        Raises:
            ConnectionLost: its address is unknown.

        """
        address = self.broker_state.internal_address_of(broker)
        if address is None:
            raise ConnectionLost(f"the address of broker {broker} is unknown")
        to, incarnation = address
        topic_id, number = partition.key
        return to, {
            "broker_id": broker,
            "incarnation": incarnation,
            "leader": self.broker_state.broker_id,
            "leader_epoch": partition.replica.state.leader_epoch,
            "topic_id": topic_id,
            "partition": number,
        }
