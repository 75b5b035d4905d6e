"""What is staged with a leader, at the other replicas: whoever leads next can publish it.

The leader alone has them keep it, and let go of it; see `domain.staged_copies`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from random import Random
from typing import Any, Final

import structlog

from leadline_broker.domain.staged_copies import must_hold, to_ask
from leadline_broker.runtime.backoff import Backoff
from leadline_broker.runtime.cluster.broker_state import BrokerState
from leadline_broker.runtime.metrics import BrokerMetrics
from leadline_broker.runtime.ports import Peers
from leadline_broker.runtime.replication.partition import Partition
from leadline_broker.runtime.serving.serving import Serving
from leadline_client.batches import Buffer, validate
from leadline_client.errors import (
    ConnectionLost,
    LeaderNotAvailable,
    LeadlineError,
    NotEnoughReplicas,
    StagingFull,
)
from leadline_common.staged_copies import (
    DropStagedRequest,
    KeepStagedRequest,
    ReadStagedRequest,
)

logger = structlog.get_logger(__name__)

_SPREAD_MS: Final = 15_000
"""How long staging waits for the in-sync replicas: one that is gone has left the ISR by then."""
_PEER_MS: Final = 5_000


class StagedCopies:
    """Copies at other brokers of what is staged with this one. Owned by the event loop.

    Those that others are to let go of wait in `_unwanted`; their ids are in `_going` until
    everybody was told.
    """

    def __init__(
        self,
        *,
        broker_state: BrokerState,
        serving: Serving,
        peers: Peers,
        metrics: BrokerMetrics,
        random: Random,
    ) -> None:
        self._broker_state = broker_state
        self._serving = serving
        self._peers = peers
        self._metrics = metrics
        self._random = random
        self._unwanted: dict[tuple[int, Partition], list[str]] = {}
        self._going: set[str] = set()
        self._news = asyncio.Event()

    async def run(self) -> None:
        """Tell the others what they may let go of, for ever."""
        while True:
            await self._news.wait()
            self._news.clear()
            unwanted, self._unwanted = self._unwanted, {}
            await asyncio.gather(*(self._drop(*where, ids) for where, ids in unwanted.items()))
            for staged_ids in unwanted.values():
                self._going.difference_update(staged_ids)

    async def spread(self, partition: Partition, staged_id: str, data: Buffer) -> None:
        """Return once every in-sync replica holds an upload, and this broker still leads.

        Raises:
            StagingFull: one of them has no room.
            NotEnoughReplicas: they are too few, or one of them does not take it in time.
            LeaderNotAvailable: the replica was removed meanwhile; besides, see `Serving.led`.

        """
        held: set[int] = set()
        lacking: Sequence[int] = ()
        failures: dict[int, LeadlineError] = {}
        pauses = Backoff(self._random, first_ms=50, longest_ms=500)
        try:
            async with asyncio.timeout(_SPREAD_MS / 1000):
                while lacking := self._lacking(partition, held):
                    failures = await self._keep_at(lacking, partition, staged_id, data)
                    held.update(broker for broker in lacking if broker not in failures)
                    if failures:
                        await asyncio.sleep(pauses.next_ms() / 1000)
        except TimeoutError:
            told = "; ".join(f"broker {one}: {failures.get(one, 'no answer')}" for one in lacking)
            raise NotEnoughReplicas(
                f"an in-sync replica does not keep what is staged: {told}",
                isr=list(partition.replica.state.isr),
            ) from None

    def _lacking(self, partition: Partition, held: set[int]) -> list[int]:
        """Return the in-sync replicas that lack an upload which `held` have."""
        if self._serving.led(partition.topic, partition.partition) is not partition:
            raise LeaderNotAvailable("the replica was removed meanwhile")
        partition.replica.check_append(all_replicas=True)
        return [broker for broker in must_hold(partition.replica) if broker not in held]

    async def _keep_at(
        self, brokers: Sequence[int], partition: Partition, staged_id: str, data: Buffer
    ) -> dict[int, LeadlineError]:
        """Have brokers keep an upload; return why some do not."""

        async def keep(broker: int) -> LeadlineError | None:
            try:
                url, whom = self._addressed(broker, partition)
                request = KeepStagedRequest(**whom, staged_id=staged_id, records=bytes(data))
                await self._peers.keep_staged(url, request, _PEER_MS)
            except LeadlineError as error:
                return error
            return None

        answers = await asyncio.gather(*(keep(broker) for broker in brokers))
        failures = {broker: error for broker, error in zip(brokers, answers, strict=True) if error}
        for broker, error in failures.items():
            if isinstance(error, StagingFull):
                raise StagingFull(f"broker {broker}: {error.message}")
        return failures

    def withdraw(self, partition: Partition, staged_ids: Iterable[str]) -> None:
        """Have the other replicas let go of uploads, soon; those that do not hear it, in time."""
        ids = list(staged_ids)
        for broker in to_ask(partition.replica.state):
            self._unwanted.setdefault((broker, partition), []).extend(ids)
            self._going.update(ids)
        self._news.set()

    async def _drop(self, broker: int, partition: Partition, staged_ids: list[str]) -> None:
        try:
            url, whom = self._addressed(broker, partition)
            request = DropStagedRequest(**whom, staged_ids=staged_ids)
            await self._peers.drop_staged(url, request, _PEER_MS)
        except LeadlineError as error:
            logger.info("staged copies stay until they expire", broker=broker, reason=error.message)

    async def fetch(
        self, partition: Partition, staged_ids: Iterable[str]
    ) -> AsyncIterator[tuple[str, bytes | None]]:
        """Yield each upload as another replica holds it, None where none does that answers.

        What they are just told to let go of is gone.
        """
        silent: set[int] = set()
        for staged_id in staged_ids:
            going = staged_id in self._going
            yield staged_id, None if going else await self._fetch(partition, staged_id, silent)

    async def _fetch(self, partition: Partition, staged_id: str, silent: set[int]) -> bytes | None:
        for broker in to_ask(partition.replica.state):
            if broker in silent:
                continue
            try:
                url, whom = self._addressed(broker, partition)
                request = ReadStagedRequest(**whom, staged_id=staged_id)
                records = (await self._peers.read_staged(url, request, _PEER_MS)).records
                await asyncio.to_thread(validate, records)
            except ConnectionLost:
                silent.add(broker)
            except LeadlineError as error:
                logger.info("no staged copy", broker=broker, staged=staged_id, reason=error.message)
            else:
                self._metrics.recovered()
                return records
        return None

    def _addressed(self, broker: int, partition: Partition) -> tuple[str, dict[str, Any]]:
        """Return where a broker is, and what a request says of who asks it about what.

        Raises:
            ConnectionLost: nobody knows where it is.

        """
        address = self._broker_state.address_of(broker)
        if address is None:
            raise ConnectionLost(f"the address of broker {broker} is not known")
        url, incarnation = address
        topic_id, number = partition.key
        return url, {
            "broker_id": broker,
            "incarnation": incarnation,
            "leader": self._broker_state.broker_id,
            "leader_epoch": partition.replica.state.leader_epoch,
            "topic_id": topic_id,
            "partition": number,
        }
