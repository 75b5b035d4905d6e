"""Executing the effects of the replicas' state machines, in order, on logs and queues.

All decisions are in `leadline_broker.domain`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any

import structlog

from leadline_broker.domain.effects import (
    Acknowledge,
    AppendFetched,
    Effect,
    FailAck,
    Flush,
    HighWatermarkAdvanced,
    ReadState,
    ResetLog,
    StartFetching,
    StopFetching,
    Truncate,
    WriteIsr,
)
from leadline_broker.domain.producers import ProducerStates
from leadline_broker.runtime.replication.fetcher_manager import ReplicaFetcherManager
from leadline_broker.runtime.replication.flusher import GroupFlusher
from leadline_broker.runtime.replication.isr_writer import IsrWriter
from leadline_broker.runtime.replication.partition import Partition
from leadline_client.batch_header import parse_headers
from leadline_client.errors import LeadlineError, StorageFailed, UnknownLeaderEpoch

logger = structlog.get_logger(__name__)


class PendingAcks:
    """The produces that wait until their records are committed. Owned by the event loop."""

    def __init__(self) -> None:
        self._tokens = count(1)
        self._waiting: dict[int, asyncio.Future[None]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def open(self) -> tuple[int, asyncio.Future[None]]:
        """Return a new token, and the future that its acknowledgement resolves."""
        token = next(self._tokens)
        future = self._waiting[token] = asyncio.get_running_loop().create_future()
        return token, future

    def acknowledge(self, token: int) -> None:
        """Resolve the token; a closed token is ignored."""
        future = self._waiting.pop(token, None)
        if future is not None and not future.done():
            future.set_result(None)

    def fail(self, token: int, error: LeadlineError) -> None:
        """Fail the waiting produce; a closed token is ignored."""
        future = self._waiting.pop(token, None)
        if future is not None and not future.done():
            future.set_exception(error)

    def close(self, token: int) -> None:
        """Remove a token for which nobody waits any more."""
        self._waiting.pop(token, None)


class EffectExecutor:
    """Executes effects. Owned by the event loop; call `connect` before use.

    `on_failed(error)` is called when a log has failed permanently, which stops the broker.
    `in_background(work)` runs the removal of files in a thread. `on_truncated(records,
    committed)` is called with how many records a follower has removed, and how many of them were
    committed.
    """

    def __init__(
        self,
        acks: PendingAcks,
        on_failed: Callable[[StorageFailed], None],
        in_background: Callable[[Callable[[], None]], object],
        on_truncated: Callable[[int, int], None],
    ) -> None:
        self._acks = acks
        self._on_failed = on_failed
        self._in_background = in_background
        self._on_truncated = on_truncated
        self._flusher: GroupFlusher
        self._moving_flusher: GroupFlusher
        self._fetchers: ReplicaFetcherManager
        self._isr_writer: IsrWriter
        self._handlers: dict[type[Any], Callable[[Partition, Any], None]] = {
            Flush: self._flush,
            Truncate: self._truncate,
            ResetLog: self._reset,
            AppendFetched: self._append,
            StartFetching: self._start_fetching,
            StopFetching: self._stop_fetching,
            WriteIsr: self._write_isr,
            ReadState: self._read_state,
            HighWatermarkAdvanced: self._high_watermark,
            Acknowledge: self._acknowledge,
            FailAck: self._fail_ack,
        }

    def connect(
        self,
        *,
        flusher: GroupFlusher,
        moving_flusher: GroupFlusher,
        fetchers: ReplicaFetcherManager,
        isr_writer: IsrWriter,
    ) -> None:
        """Set the collaborators; `moving_flusher` is for replicas that are catching up."""
        self._flusher, self._moving_flusher = flusher, moving_flusher
        self._fetchers, self._isr_writer = fetchers, isr_writer

    def execute(self, partition: Partition, effects: Sequence[Effect]) -> None:
        """Execute effects in order, including the effects that they cause.

        Raises:
            CorruptBatch, Refused: fetched batches are invalid; the remaining effects are
                dropped, except for a flush of what was done.
            StorageFailed: a log operation failed; likewise.

        """
        try:
            for effect in effects:
                self._handlers[type(effect)](partition, effect)
        except Exception as error:
            self._report_if_failed(partition, error)
            log = partition.log
            if not log.failed and log.durable_end_offset < log.log_end_offset:
                self._flush(partition, Flush())  # Or a follower would never fetch again.
            raise

    def append(self, partition: Partition, data: bytearray) -> None:
        """Append a leader's own stamped batches, whose CRC was checked on arrival.

        Raises:
            StorageFailed: nothing was appended.

        """
        try:
            partition.log.append(data, crc_checked=True)
        except Exception as error:
            self._report_if_failed(partition, error)
            raise

    def _report_if_failed(self, partition: Partition, error: Exception) -> None:
        if partition.log.failed:
            if not isinstance(error, StorageFailed):
                error = StorageFailed(f"a log operation broke off ({error!r})")
            self._on_failed(error)

    def on_durable(self, partition: Partition) -> None:
        """Notify a replica that its log was fsynced."""
        if partition.traced_waits is not None:
            end = partition.log.durable_end_offset
            partition.note_durable(partition.replica.state.broker_id, end)
        self.execute(partition, partition.replica.on_durable())

    def _flush(self, partition: Partition, _: Flush) -> None:
        if partition.log.durable_end_offset < partition.log.log_end_offset:
            moving = partition.replica.catching_up
            (self._moving_flusher if moving else self._flusher).mark(partition)
        elif partition.replica.leadership is not None:
            self.on_durable(partition)

    def _truncate(self, partition: Partition, effect: Truncate) -> None:
        end_before = partition.log.log_end_offset
        with self._removing_files(partition):
            end = partition.log.truncate_to(effect.end_offset)
        self._count_truncated(partition, end, end_before, effect.committed)

    def _reset(self, partition: Partition, effect: ResetLog) -> None:
        """Begin again; what was before the leader's log start is not missing there."""
        producers = effect.known
        if producers is None:
            producers = ProducerStates(as_of=effect.start_offset)
        end_before = partition.log.log_end_offset
        end = max(effect.start_offset, partition.log.log_start_offset)
        try:
            with self._removing_files(partition):
                partition.log.reset_to(effect.start_offset, producers)
        finally:
            if partition.log.log_end_offset != end_before:  # Perhaps there is no space to begin.
                self._count_truncated(partition, end, end_before, effect.committed)

    def _count_truncated(
        self, partition: Partition, end: int, end_before: int, committed: int
    ) -> None:
        if end < end_before:
            self._on_truncated(end_before - end, committed)
            _log_truncation(partition, end, end_before, committed)

    @contextmanager
    def _removing_files(self, partition: Partition) -> Iterator[None]:
        """Remove the files that leave the log; also if it cannot be flushed: the disk may be full.

        Nobody else would remove them before a restart, or before retention deletes others.
        """
        try:
            yield
        finally:
            removal = partition.log.removal()
            if removal is not None:
                self._in_background(removal)

    def _append(self, partition: Partition, effect: AppendFetched) -> None:
        """Append a leader's batches if they are complete and not newer than its epoch."""
        epoch, records = partition.replica.state.leader_epoch, 0
        for header in parse_headers(effect.records):
            if header.leader_epoch > epoch:
                raise UnknownLeaderEpoch(
                    f"a batch has epoch {header.leader_epoch}, but the leader epoch is {epoch}"
                )
            records += header.record_count
        partition.log.append(effect.records)
        partition.count_in(len(effect.records), records)
        self.execute(partition, partition.replica.on_fetched(effect.leader_high_watermark))

    def _start_fetching(self, partition: Partition, effect: StartFetching) -> None:
        self._fetchers.start(partition, effect.leader)

    def _stop_fetching(self, partition: Partition, _: StopFetching) -> None:
        self._fetchers.stop(partition)

    def _write_isr(self, partition: Partition, effect: WriteIsr) -> None:
        self._isr_writer.write(partition, effect.proposal)

    def _read_state(self, partition: Partition, _: ReadState) -> None:
        self._isr_writer.read(partition)

    def _high_watermark(self, partition: Partition, _: HighWatermarkAdvanced) -> None:
        partition.high_watermark_moved()

    def _acknowledge(self, _: Partition, effect: Acknowledge) -> None:
        self._acks.acknowledge(effect.token)

    def _fail_ack(self, _: Partition, effect: FailAck) -> None:
        self._acks.fail(effect.token, effect.error)


def _log_truncation(partition: Partition, end: int, end_before: int, committed: int) -> None:
    state = partition.replica.state
    about = {
        "topic": partition.topic,
        "partition": partition.partition,
        "leader": state.leader,
        "leader_epoch": state.leader_epoch,
        "end": end,
        "end_before": end_before,
    }
    if committed:
        event = "committed records were truncated: the leader lacks them"
        logger.error(event, committed=committed, **about)
    else:
        logger.info("records that were not committed were truncated", **about)
