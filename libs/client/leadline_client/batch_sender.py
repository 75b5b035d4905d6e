"""Sending the batches of a partition, several at a time, in their order (rule R15).

Each batch in flight has a task of its own, which sends it with the same sequence numbers until it
has an outcome. One task per partition decides what leaves when (`PartitionQueue.ready_in`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from leadline_client.accumulator import ProducerSequence, needs_new_producer_id
from leadline_client.batch_window import BatchOutcome, forgets_producer, refuses_numbers
from leadline_client.client import AsyncClient
from leadline_client.errors import (
    BodyTooLarge,
    ClusterChanged,
    LeadlineError,
    OutcomeUnknown,
    Unreachable,
)
from leadline_client.partition_queue import (
    Accumulator,
    InFlight,
    PartitionQueue,
    acknowledge,
    cancel,
    fail,
    halves_of,
)
from leadline_client.payloads import ProducerIdentity
from leadline_client.producer_settings import ProducerSettings
from leadline_client.wire import ProduceResult

_LEAST_S: Final = 2.0
"""How long a batch is tried that an earlier one has held up until its time was over."""


@dataclass(eq=False, kw_only=True)
class BatchSender:
    """Sends the batches of one producer. Owned by the event loop.

    `on_done` is called with the size of each batch whose futures are done.
    """

    client: AsyncClient
    settings: ProducerSettings
    on_done: Callable[[int], Awaitable[None]]
    _idempotent: bool = field(init=False)
    _producer_id: asyncio.Future[ProducerIdentity] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        """Check the settings; raises InvalidRequest."""
        self._idempotent = self.settings.numbers_batches

    def close(self) -> None:
        """Ask for no producer id any more, until another batch needs one."""
        asked, self._producer_id = self._producer_id, None
        if asked is not None:
            asked.cancel()

    async def send_all(self, queue: PartitionQueue) -> None:
        """Send batches until none waits and none is in flight."""
        try:
            while queue.accumulator or queue.window:
                await queue.ready()
                if queue.window.can_settle:
                    self._settle(queue)
                elif queue.accumulator or queue.window.has_again:
                    await self._send_next(queue)
        except asyncio.CancelledError:
            await self._cancel(queue)
            raise
        queue.window.rest()
        # No await comes between the last check of the queue and this, so a record that is added
        # later starts a new sender.
        queue.sender = None

    async def _send_next(self, queue: PartitionQueue) -> None:
        """Give the next batch its sequence numbers, and start the task that sends it."""
        accumulator, window = queue.accumulator, queue.window
        if window.has_again:
            batch = window.take_again()
        else:
            # No record joins it any more: only its senders can ask for its outcome from here on.
            batch, queue.shared = accumulator.take(), None
        one = window.add(batch)
        try:
            sequence = await self._sequence(accumulator)
            if sequence is not None:  # If the encoding fails, the next batch gets this number.
                one.base_sequence = sequence.next_sequence
            encoded = batch.encode(
                sequence, now_ms=time.time_ns() // 1_000_000, compression=self.settings.compression
            )
        except Exception as error:
            # Any error goes to these futures; what follows is sent all the same.
            await self._fail(queue, one, error)
            return
        if sequence is not None:
            sequence.advance(batch.count)
        if batch.deadline_s is None:
            batch.deadline_s = time.monotonic() + self.settings.delivery_timeout_s
        task = asyncio.create_task(self._deliver(queue, one, encoded))
        queue.tasks.add(task)
        task.add_done_callback(queue.tasks.discard)

    async def _deliver(self, queue: PartitionQueue, one: InFlight, encoded: bytes) -> None:
        """Append a batch and complete its futures, or leave it to be sent again."""
        try:
            result = await self._append(queue, one, encoded)
        except Exception as error:
            # Any error goes to these futures; what follows is sent all the same.
            await self._fail(queue, one, error)
            return
        if result is None:
            queue.window.resolve(one, BatchOutcome.AGAIN, [one.batch])
            queue.resolved()
            return
        acknowledge(one.batch, queue.topic_partition, result.base_offset)
        queue.window.resolve(one, BatchOutcome.ACKNOWLEDGED)
        queue.resolved()
        await self.on_done(one.batch.size)

    async def _append(
        self, queue: PartitionQueue, one: InFlight, encoded: bytes
    ) -> ProduceResult | None:
        """Send a batch until it is appended; None if it certainly is not, as one before it failed.

        A broker refuses a batch whose predecessor it does not have, or whose producer id it does
        not accept. That is final only if all batches before were acknowledged when this one was
        sent.
        """
        unknown: OutcomeUnknown | None = None
        while True:
            in_order = queue.window.acknowledged_before(one)
            try:
                return await self._produce(queue, one, encoded)
            except LeadlineError as error:
                unknown = error if isinstance(error, OutcomeUnknown) else unknown
                if not in_order and refuses_numbers(error):
                    if await queue.acknowledged_before(one):
                        continue
                    if unknown is None:
                        return None
                if unknown is None or unknown is error:
                    raise
                # A later refusal does not make the outcome of an earlier attempt definite.
                raise unknown from error

    async def _produce(self, queue: PartitionQueue, one: InFlight, encoded: bytes) -> ProduceResult:
        settings, deadline_s = self.settings, one.batch.deadline_s
        least_s = min(_LEAST_S, settings.delivery_timeout_s)
        left_s = least_s if deadline_s is None else deadline_s - time.monotonic()
        return await self.client.produce_batches(
            *queue.topic_partition,
            encoded,
            acks=settings.acks,
            idempotent=self._idempotent,
            timeout_s=max(left_s, least_s),
        )

    async def _fail(self, queue: PartitionQueue, one: InFlight, error: Exception) -> None:
        """Fail the futures of a batch, or have it sent again in another way.

        It is divided if it is too large for the topic. If the leader has forgotten the producer,
        the batch is certainly not in the log, and goes again with another producer id.
        """
        batch, window = one.batch, queue.window
        if isinstance(error, BodyTooLarge) and (halves := batch.halves(halves_of)):
            queue.accumulator.shrink(batch.size)
            window.resolve(one, BatchOutcome.AGAIN, halves)
            queue.resolved()
            await self.on_done(batch.size - sum(half.size for half in halves))
            return
        if forgets_producer(error) and one.base_sequence:
            window.resolve(one, BatchOutcome.IN_DOUBT, [batch])  # with another producer id
            queue.resolved()
            return
        lost = not isinstance(error, LeadlineError) or needs_new_producer_id(error)
        window.resolve(one, BatchOutcome.IN_DOUBT if lost else BatchOutcome.REFUSED)
        fail(batch, error)
        queue.resolved()
        await self.on_done(batch.size)

    @staticmethod
    def _settle(queue: PartitionQueue) -> None:
        """Go on after a batch has failed, with free sequence numbers or another producer id."""
        accumulator = queue.accumulator
        next_sequence = queue.window.settle()
        if next_sequence is None:
            accumulator.reset_producer_id()
        elif accumulator.sequence is not None:
            accumulator.sequence.next_sequence = next_sequence

    async def _cancel(self, queue: PartitionQueue) -> None:
        """Cancel all batches that were sent and have no outcome."""
        tasks = list(queue.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # Some of the records may be in the log: nobody knows which number comes next.
        queue.accumulator.reset_producer_id()
        unfinished = queue.window.unfinished()
        queue.window.clear()
        for batch in unfinished:
            cancel(batch)
            await self.on_done(batch.size)

    async def _sequence(self, accumulator: Accumulator) -> ProducerSequence | None:
        if self._idempotent and accumulator.sequence is None:
            try:
                own = accumulator.needs_own_producer_id
                allocated = self.client.new_producer_id() if own else self._shared_producer_id()
                accumulator.sequence = ProducerSequence(await allocated)
            except ClusterChanged:
                raise
            except LeadlineError as error:
                # Even if the outcome of that request is unknown, the batch was not sent.
                raise Unreachable(f"could not allocate a producer id: {error}") from error
        return accumulator.sequence

    async def _shared_producer_id(self) -> ProducerIdentity:
        """Return the producer id that all accumulators begin with; allocate it once."""
        if self._producer_id is None or (
            self._producer_id.done() and self._producer_id.exception()
        ):
            self._producer_id = asyncio.ensure_future(self.client.new_producer_id())
        return await asyncio.shield(self._producer_id)
