"""Carrying out what the protocol decides: effects, in their order, on logs and queues.

The protocol itself is `leadline_broker.domain`; here nothing is decided.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from leadline_broker.domain.effects import (
    Acknowledge,
    AppendFetched,
    Effect,
    FailAck,
    Flush,
    HighWatermarkAdvanced,
    IsrProposal,
    ReadState,
    ResetLog,
    StartFetching,
    StopFetching,
    Truncate,
    WriteIsr,
)
from leadline_broker.runtime.replication.partition import Partition
from leadline_broker.runtime.serving.acks import PendingAcks
from leadline_client.batches import parse_headers
from leadline_client.errors import StorageFailed, UnknownLeaderEpoch


class Flusher(Protocol):
    """Fsyncs logs in groups."""

    def mark(self, partition: Partition) -> None:
        """Have the log fsynced."""


class Fetchers(Protocol):
    """Fetches from leaders."""

    def start(self, partition: Partition, leader: int) -> None:
        """Fetch the partition from `leader`."""

    def stop(self, partition: Partition) -> None:
        """Stop fetching it."""


class IsrQueue(Protocol):
    """Writes and reads state nodes."""

    def write(self, partition: Partition, proposal: IsrProposal) -> None:
        """Publish an ISR."""

    def read(self, partition: Partition) -> None:
        """Read the state node."""


class EffectExecutor:
    """Executes effects. Owned by the event loop; `connect` before use.

    `on_failed(error)` is told when a log is failed for good, which ends the broker.
    """

    def __init__(self, acks: PendingAcks, on_failed: Callable[[StorageFailed], None]) -> None:
        self._acks = acks
        self._on_failed = on_failed
        self._flusher: Flusher
        self._moving_flusher: Flusher
        self._fetchers: Fetchers
        self._isr: IsrQueue
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
        self, *, flusher: Flusher, moving_flusher: Flusher, fetchers: Fetchers, isr: IsrQueue
    ) -> None:
        """Name those who do the work; `moving_flusher` is for replicas that are catching up."""
        self._flusher, self._moving_flusher = flusher, moving_flusher
        self._fetchers, self._isr = fetchers, isr

    def execute(self, partition: Partition, effects: Sequence[Effect]) -> None:
        """Execute effects in order; what they bring about is executed at once.

        Raises:
            CorruptBatch, Refused: fetched batches do not fit; the rest of the
                effects is dropped.
            StorageFailed: the disk refuses.

        """
        try:
            for effect in effects:
                self._handlers[type(effect)](partition, effect)
        except StorageFailed as error:
            if partition.log.failed:
                self._on_failed(error)
            raise

    def append(self, partition: Partition, data: bytearray) -> None:
        """Append a leader's own stamped batches, whose CRC was checked on arrival.

        Raises:
            StorageFailed: nothing was appended.

        """
        try:
            partition.log.append(data, crc_checked=True)
        except StorageFailed as error:
            if partition.log.failed:
                self._on_failed(error)
            raise

    def on_durable(self, partition: Partition) -> None:
        """Tell a replica that its log was fsynced."""
        self.execute(partition, partition.replica.on_durable())

    def _flush(self, partition: Partition, _: Flush) -> None:
        if partition.log.durable_end_offset < partition.log.log_end_offset:
            moving = partition.replica.catching_up
            (self._moving_flusher if moving else self._flusher).mark(partition)
        elif partition.replica.leadership is not None:
            self.on_durable(partition)

    def _truncate(self, partition: Partition, effect: Truncate) -> None:
        partition.log.truncate_to(effect.end_offset)

    def _reset(self, partition: Partition, effect: ResetLog) -> None:
        partition.log.reset_to(effect.start_offset)

    def _append(self, partition: Partition, effect: AppendFetched) -> None:
        """Append a leader's batches if they are whole, contiguous and of its epoch or older."""
        epoch, count = partition.replica.state.leader_epoch, 0
        for header in parse_headers(effect.records):
            if header.leader_epoch > epoch:
                raise UnknownLeaderEpoch(f"a batch of epoch {header.leader_epoch} in epoch {epoch}")
            count += header.record_count
        partition.log.append(effect.records)
        partition.took(len(effect.records), count)
        self.execute(partition, partition.replica.on_fetched(effect.leader_high_watermark))

    def _start_fetching(self, partition: Partition, effect: StartFetching) -> None:
        self._fetchers.start(partition, effect.leader)

    def _stop_fetching(self, partition: Partition, _: StopFetching) -> None:
        self._fetchers.stop(partition)

    def _write_isr(self, partition: Partition, effect: WriteIsr) -> None:
        self._isr.write(partition, effect.proposal)

    def _read_state(self, partition: Partition, _: ReadState) -> None:
        self._isr.read(partition)

    def _high_watermark(self, partition: Partition, _: HighWatermarkAdvanced) -> None:
        partition.high_watermark_moved()

    def _acknowledge(self, _: Partition, effect: Acknowledge) -> None:
        self._acks.acknowledge(effect.token)

    def _fail_ack(self, _: Partition, effect: FailAck) -> None:
        self._acks.fail(effect.token, effect.error)
