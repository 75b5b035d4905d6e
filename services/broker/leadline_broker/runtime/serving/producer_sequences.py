"""The order of idempotent batches on their way to a log: duplicates, gaps, and waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from leadline_broker.domain.held_batches import hold_ms, may_hold
from leadline_broker.domain.producers import Duplicate
from leadline_broker.domain.publishes import FIRST_PUBLISHER_ID
from leadline_broker.runtime.replication.partition import Partition
from leadline_broker.runtime.replication.remembered_producers import RememberedProducers
from leadline_client.batch_header import BatchHeader
from leadline_client.batches import NO_PRODUCER_ID
from leadline_client.errors import InvalidRequest, LeadlineError

_Key = tuple[Partition, int]


@dataclass(eq=False, kw_only=True)
class ProducerSequences:
    """Checks batches against the sequences of their producers (rule R15). Owned by the event loop.

    `on_held` is called for each batch that waits.
    """

    producers: RememberedProducers
    on_held: Callable[[], None]
    held_bytes: int = field(default=0, init=False)
    _held: dict[_Key, list[asyncio.Future[None]]] = field(default_factory=dict, init=False)

    async def wait_for_turn(
        self, partition: Partition, header: BatchHeader, size: int, timeout_ms: int
    ) -> None:
        """Wait for a batch's predecessor if that is on its way, within the limits of the domain.

        Returns early if the role of the replica changes: the caller checks everything anyway.
        """
        if not _is_ahead(partition, header):
            return
        key = (partition, header.producer_id)
        if not may_hold(len(self._held.get(key, ())), self.held_bytes, size):
            return
        self.on_held()
        epoch = partition.applied_epoch
        self.held_bytes += size
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(hold_ms(timeout_ms) / 1000):
                    while partition.applied_epoch == epoch and _is_ahead(partition, header):
                        await self._next_append(key)
        finally:
            self.held_bytes -= size

    def appended(self, partition: Partition, producer_id: int) -> None:
        """Wake the batches that wait for one of this producer."""
        for waiting in self._held.get((partition, producer_id), ()):
            if not waiting.done():
                waiting.set_result(None)

    def find_duplicate(self, partition: Partition, headers: list[BatchHeader]) -> Duplicate | None:
        """Check the sequence of an idempotent batch; return its offsets if it is a duplicate.

        Raises:
            OutOfOrderSequence, ProducerFenced: see rule R15.
            TooManyProducers: the producer is new, and no more of them are remembered.
            InvalidRequest: the request has other batches too, or the producer id is reserved
                for publishes.

        """
        header = headers[0]
        if all(each.producer_id == NO_PRODUCER_ID for each in headers):
            return None
        if len(headers) > 1:
            raise InvalidRequest("an idempotent producer sends one batch in a request")
        if header.producer_id >= FIRST_PUBLISHER_ID:
            raise InvalidRequest("producer ids from 2^62 on are reserved for publishes")
        log = partition.log
        verdict = log.producers.check(
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.record_count,
            log_start_offset=log.log_start_offset,
        )
        if isinstance(verdict, LeadlineError):
            raise verdict
        if log.producers.get(header.producer_id) is None:
            self.producers.admit_producer()
        return verdict if isinstance(verdict, Duplicate) else None

    async def _next_append(self, key: _Key) -> None:
        """Wait until a batch of the producer is appended, or the partition changes."""
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        partition = key[0]
        held = self._held.setdefault(key, [])
        held.append(waiting)
        partition.watch(waiting)
        try:
            await waiting
        finally:
            partition.unwatch(waiting)
            held.remove(waiting)
            if not held:
                self._held.pop(key, None)


def _is_ahead(partition: Partition, header: BatchHeader) -> bool:
    return partition.log.producers.is_ahead(
        header.producer_id, header.producer_epoch, header.base_sequence
    )
