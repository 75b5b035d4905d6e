"""The batches of one partition on their way, and what waits for their acknowledgement."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import Future as ThreadFuture
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeAlias

from leadline_client.accumulator import ProducerBatch, RecordAccumulator
from leadline_client.batch_window import BatchWindow, InFlightBatch
from leadline_client.record_future import SharedOutcome
from leadline_client.sent_records import RecordMetadata, SentHalf, SentRun, metadata_of
from leadline_client.wire import TopicPartition

Acknowledgement: TypeAlias = SharedOutcome | ThreadFuture[RecordMetadata] | SentRun | SentHalf
"""What becomes of records added one by one or sent together, or of a record of another thread."""

Accumulator = RecordAccumulator[Acknowledgement]
Batch = ProducerBatch[Acknowledgement]
Window = BatchWindow[Acknowledgement]
InFlight = InFlightBatch[Acknowledgement]


@dataclass(slots=True, eq=False)
class PartitionQueue:
    """The batches of one partition, and the task that sends them, if there is one.

    `accumulator` has those that were never sent, `window` those that were. `shared`: the outcome of
    the last records that were added one by one.
    """

    topic_partition: TopicPartition
    accumulator: Accumulator
    window: Window
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    shared: SharedOutcome | None = None
    sender: asyncio.Task[None] | None = None
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _resolved: asyncio.Event = field(default_factory=asyncio.Event)

    def sender_ended(self, ended: asyncio.Task[None]) -> None:
        """Forget a task that ended, unless another one has taken its place."""
        if self.sender is ended:
            self.sender = None

    def has_completed(self, count: int) -> bool:
        """Whether the first `count` records were acknowledged or have failed."""
        waiting = [batch.first for batch in self.window.unfinished()]
        return min([*waiting, self.accumulator.first]) >= count

    def ready_in(self, now_s: float) -> float | None:
        """Return in how many seconds the sender can go on; None if something must happen before.

        While a batch is in flight, only one follows to which no record will be added any more:
        many small batches take longer than few large ones.
        """
        if not self.window:
            return self.accumulator.due_in(now_s) if self.accumulator else 0.0
        if self.window.has_failed:
            return 0.0 if self.window.can_settle else None
        if not self.window.has_room:
            return None
        if self.window.has_again or (self.accumulator and self.accumulator.is_complete):
            return 0.0
        return None

    async def ready(self) -> None:
        """Wait until the sender can go on."""
        while (wait_s := self.ready_in(time.monotonic())) != 0:
            self.wake.clear()
            with suppress(TimeoutError):
                # Unlike `wait_for` of Python 3.11, this never loses a cancellation.
                async with asyncio.timeout(wait_s):
                    await self.wake.wait()

    def resolved(self) -> None:
        """Wake whatever waits for the outcome of a batch in flight."""
        resolved, self._resolved = self._resolved, asyncio.Event()
        resolved.set()
        self.wake.set()

    async def acknowledged_before(self, one: InFlight) -> bool:
        """Wait for the batches before one in flight; return whether all are acknowledged."""
        while (acknowledged := self.window.acknowledged_before(one)) is None:
            await self._resolved.wait()
        return acknowledged


def acknowledge(batch: Batch, topic_partition: TopicPartition, offset: int) -> None:
    """Give each future the offset of its first record, -1 with acks=0."""
    topic, partition = topic_partition
    for future, count in zip(batch.tokens, batch.counts, strict=True):
        if not future.done():
            future.set_result(metadata_of((topic, partition, offset)))
        if offset >= 0:
            offset += count


def halves_of(token: Acknowledgement) -> Sequence[Acknowledgement]:
    """Return tokens for the halves of the records that a token stands for."""
    if isinstance(token, SentRun | SharedOutcome):
        return token.halves()
    return SentHalf.both_of(token)


def fail(batch: Batch, error: Exception) -> None:
    """Give each future the error of the batch."""
    for future in batch.tokens:
        if not future.done():
            future.set_exception(error)


def cancel(batch: Batch) -> None:
    """Cancel the futures of a batch whose outcome nobody will learn."""
    for future in batch.tokens:
        if not future.cancel() and not future.done():
            future.set_exception(asyncio.CancelledError())
