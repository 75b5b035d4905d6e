"""The batches of one partition on their way, and what waits for their acknowledgement."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import Future as ThreadFuture
from dataclasses import dataclass, field
from typing import TypeAlias

from leadline_client.accumulator import ProducerBatch, RecordAccumulator
from leadline_client.sent_records import RecordMetadata, SentHalf, SentRun, metadata_of
from leadline_client.wire import TopicPartition

Acknowledgement: TypeAlias = (
    asyncio.Future[RecordMetadata] | ThreadFuture[RecordMetadata] | SentRun | SentHalf
)
"""The future of a record, of this event loop or of another thread, or records sent together."""

Accumulator = RecordAccumulator[Acknowledgement]
Batch = ProducerBatch[Acknowledgement]


@dataclass(slots=True, eq=False)
class PartitionQueue:
    """The batches of one partition, and the task that sends them, if there is one."""

    topic_partition: TopicPartition
    accumulator: Accumulator
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    sender: asyncio.Task[None] | None = None

    def sender_ended(self, ended: asyncio.Task[None]) -> None:
        """Forget a task that ended, unless another one has taken its place."""
        if self.sender is ended:
            self.sender = None

    async def linger(self) -> None:
        """Wait until the first batch is ready to send."""
        while (wait_s := self.accumulator.due_in(time.monotonic())) > 0:
            self.wake.clear()
            try:
                await asyncio.wait_for(self.wake.wait(), wait_s)
            except TimeoutError:
                return


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
    return token.halves() if isinstance(token, SentRun) else SentHalf.both_of(token)


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
