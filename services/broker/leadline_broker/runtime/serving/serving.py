"""Serving producers and consumers: produce, fetch, and offsets of the partitions led here."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from leadline_broker.domain.replica import Role
from leadline_broker.runtime.cluster.broker_state import BrokerState
from leadline_broker.runtime.cluster.metadata import ClusterMetadataCache
from leadline_broker.runtime.metrics import BrokerMetrics
from leadline_broker.runtime.replication.effect_executor import EffectExecutor, PendingAcks
from leadline_broker.runtime.replication.partition import Partition, PartitionSettings
from leadline_broker.runtime.replication.repairs import Repairs
from leadline_broker.runtime.replication.replica_manager import ReplicaManager
from leadline_broker.runtime.serving.batch_checks import BatchChecks, check_times
from leadline_broker.runtime.serving.fetched_data import FetchedData
from leadline_broker.runtime.serving.producer_ids import ProducerIds
from leadline_broker.runtime.serving.producer_sequences import ProducerSequences
from leadline_broker.runtime.serving.reader_positions import (
    check_position,
    epoch_before,
    epoch_to_state,
)
from leadline_broker.runtime.serving.time_lookup import offset_for_timestamp
from leadline_broker.runtime.serving.tracing import describe_produce, replication_span
from leadline_client.batch_header import BatchHeader, Buffer, parse_headers
from leadline_client.batches import stamp
from leadline_client.errors import (
    FencedLeaderEpoch,
    LeaderNotAvailable,
    LeadershipLost,
    LeadlineError,
    NotEnoughReplicasAfterAppend,
    NotLeader,
    OffsetNotAvailable,
    OffsetOutOfRange,
    RequestTimedOut,
    TopicIdMismatch,
    UnknownLeaderEpoch,
    UnknownPartition,
)
from leadline_client.wire import NO_LEADER, Acks, EpochEnd, ProduceResult
from leadline_common.bulk_offsets import PartitionEnds
from leadline_common.clock import Clock
from leadline_common.cluster_time import ClusterTime
from leadline_common.tracing import spans
from leadline_common.waiting import CountedWait


@dataclass(eq=False, kw_only=True)
class Serving:
    """Serves clients from the partitions of this broker. Owned by the event loop."""

    broker_state: BrokerState
    replicas: ReplicaManager
    metadata: ClusterMetadataCache
    acks: PendingAcks
    metrics: BrokerMetrics
    executor: EffectExecutor
    checks: BatchChecks
    sequences: ProducerSequences
    producer_ids: ProducerIds
    repairs: Repairs
    clock: Clock
    time: ClusterTime

    def led(
        self,
        topic: str,
        number: int,
        leader_epoch: int | None = None,
        *,
        topic_id: str | None = None,
    ) -> Partition:
        """Return a partition that this broker leads and may serve now.

        Raises:
            UnknownTopic, UnknownPartition, NotLeader, LeaderNotAvailable,
            FencedLeaderEpoch, UnknownLeaderEpoch, TopicIdMismatch, BrokerFenced.

        """
        partition = self.replicas.named(topic, number)
        self.broker_state.require_grant()
        if partition is None or partition.replica.role is not Role.LEADER:
            raise self._not_led(topic, number, partition)
        if topic_id not in (None, partition.topic_id):
            raise TopicIdMismatch(f"topic {topic} was deleted and recreated")
        self._require_epoch(leader_epoch, partition)
        return partition

    def _readable(
        self,
        topic: str,
        number: int,
        leader_epoch: int | None,
        topic_id: str | None,
        *,
        any_replica: bool,
    ) -> Partition:
        """Return a partition led here or, with `any_replica`, followed in sync; see `led`."""
        partition = self.replicas.named(topic, number)
        if not any_replica or partition is None or partition.replica.role is not Role.FOLLOWER:
            return self.led(topic, number, leader_epoch, topic_id=topic_id)
        current = partition.replica.state.leader_epoch
        row = self.metadata.partition(topic, number)
        if row is None or row.leader_epoch != current or self.broker_state.broker_id not in row.isr:
            return self.led(topic, number, leader_epoch, topic_id=topic_id)
        self.broker_state.require_grant()
        self._require_epoch(leader_epoch, partition)
        return partition

    def _require_epoch(self, stated: int | None, partition: Partition) -> None:
        state = partition.replica.state
        current = state.leader_epoch
        if stated is not None and stated != current:
            error = FencedLeaderEpoch if stated < current else UnknownLeaderEpoch
            hint = self.broker_state.leader_hint(state.leader, current, partition.topic_id)
            raise error(f"the leader epoch is {current}, not {stated}", leader=hint)

    def _not_led(self, topic: str, number: int, partition: Partition | None) -> LeadlineError:
        """Return the error that names the leader, from the source with the newer leader epoch."""
        row = self.metadata.partition(topic, number)
        leader, epoch = (row.leader, row.leader_epoch) if row else (NO_LEADER, -1)
        topic_id = self.metadata.topic_id(topic)
        if partition is not None and partition.replica.state.leader_epoch > epoch:
            leader = partition.replica.state.leader
            epoch, topic_id = partition.replica.state.leader_epoch, partition.topic_id
        if row is None and partition is None:
            if topic_id is None:
                return self.metadata.why_unknown(topic)
            return UnknownPartition(f"topic {topic} has no partition {number}")
        hint = self.broker_state.leader_hint(leader, epoch, topic_id or "")
        if leader in {NO_LEADER, self.broker_state.broker_id}:
            # Metadata names this broker, whose grant has not arrived yet.
            return LeaderNotAvailable(f"{topic}-{number} has no leader", leader=hint)
        return NotLeader(f"broker {leader} leads {topic}-{number}", leader=hint)

    async def produce(
        self,
        topic: str,
        number: int,
        data: bytearray,
        *,
        acks: Acks,
        timeout_ms: int,
        leader_epoch: int | None = None,
        topic_id: str | None = None,
    ) -> ProduceResult:
        """Append v2 batches, which are stamped in place, and wait as `acks` requires.

        Raises:
            UnknownTopic, UnknownPartition, NotLeader, LeaderNotAvailable,
            FencedLeaderEpoch, UnknownLeaderEpoch, TopicIdMismatch, BrokerFenced, CorruptBatch,
            BodyTooLarge, InvalidRequest, InvalidTimestamp, NotEnoughReplicas, OutOfOrderSequence,
            ProducerFenced, ForeignProducerId, TooManyProducers, StorageFailed: nothing
            was appended.
            RequestTimedOut, NotEnoughReplicasAfterAppend, LeadershipLost: the
            outcome is unknown.

        """
        partition = self.led(topic, number, leader_epoch, topic_id=topic_id)
        with self.metrics.check_seconds.time(), spans.span("check batches"):
            headers = await self.checked(partition.settings, data)
        await self.producer_ids.require_own(headers[0].producer_id)
        await self.repairs.know_producers(partition, headers[0].producer_id)
        await self.sequences.wait_for_turn(partition, headers[0], len(data), timeout_ms)
        # The checks may have waited: only what follows is one step.
        partition = self.led(topic, number, leader_epoch, topic_id=topic_id)
        partition.replica.leading().check_append(all_replicas=acks == "all")
        epoch = partition.replica.state.leader_epoch
        count = sum(header.record_count for header in headers)
        duplicate = self.sequences.find_duplicate(partition, headers)
        if duplicate is not None:
            base, end = duplicate.base_offset, duplicate.last_offset + 1
        else:
            with self.metrics.append_seconds.time(), spans.span("append"):
                base, end = self.append(partition, data, headers, epoch)
            self.sequences.appended(partition, headers[0].producer_id)
            self.metrics.produced(topic, count, len(data))
        if spans.is_on():
            describe_produce(partition, base, count, acks)
        if acks == "all":
            with self.metrics.replicate_seconds.time():
                await self.committed(partition, end, timeout_ms)
        return ProduceResult(base, epoch, count, duplicate=duplicate is not None)

    async def checked(self, settings: PartitionSettings, data: Buffer) -> list[BatchHeader]:
        """Return the headers of a producer's batches once these are checked.

        Raises:
            CorruptBatch, BodyTooLarge, InvalidRequest, InvalidTimestamp: see `check_batches`, and
                `check_times`.

        """
        headers = await self.checks.check(data, settings.max_message_bytes)
        if settings.timestamp_after_max_ms >= 0:
            check_times(headers, self.time.latest_ms() + settings.timestamp_after_max_ms)
        return headers

    def append(
        self, partition: Partition, data: bytearray, headers: list[BatchHeader], epoch: int
    ) -> tuple[int, int]:
        """Stamp and append; return the first offset and the new log end."""
        base = offset = partition.log.log_end_offset
        for header in headers:
            stamp(data, header, offset, epoch)
            offset += header.record_count
        self.executor.append(partition, data)
        effects = partition.replica.leading().on_appended(base, self.clock.monotonic_ms())
        self.replicas.unsettled[partition] = None
        self.executor.execute(partition, effects)
        partition.appended(len(data))
        partition.count_in(len(data), offset - base)
        return base, offset

    async def committed(self, partition: Partition, end: int, timeout_ms: int) -> None:
        """Wait until everything below `end` is committed.

        Raises:
            RequestTimedOut, NotEnoughReplicasAfterAppend, LeadershipLost: the outcome is
                unknown.

        """
        token, acknowledged = self.acks.open()
        replica = partition.replica
        try:
            self.executor.execute(partition, replica.leading().park(end, token))
            with replication_span(partition, end):
                async with asyncio.timeout(timeout_ms / 1000):
                    await acknowledged
        except TimeoutError:
            raise _commit_timeout(partition, timeout_ms) from None
        finally:
            if not acknowledged.done() or acknowledged.cancelled():
                replica.unpark(token)
                self.acks.close(token)
        if not self.broker_state.lease_valid():
            raise LeadershipLost(
                "the broker lost its connection to ZooKeeper before the records were committed"
            )

    async def fetch(
        self,
        topic: str,
        number: int,
        offset: int,
        *,
        max_bytes: int,
        min_bytes: int,
        wait_ms: int,
        leader_epoch: int | None = None,
        last_epoch: int | None = None,
        topic_id: str | None = None,
        any_replica: bool = False,
    ) -> FetchedData:
        """Return committed batches from the one that holds `offset`.

        `last_epoch` is the leader epoch of the record before `offset`, and `topic_id` the topic
        that the offset is of, if the reader knows them.

        Waits up to `wait_ms` for `min_bytes`. Returns at least one batch if there is one, even
        if it is larger than `max_bytes`. With `any_replica` an in-sync follower serves too, up
        to its own high watermark (Leader election in ZooKeeper, Leader of a replicated log).

        Raises:
            OffsetOutOfRange: the offset is before the log start or beyond the log end.
            LogTruncated: the log has no record of `last_epoch` before `offset` (KIP-320).
            OffsetNotAvailable: this follower does not have the offset, but the leader may.
            UnknownTopic, UnknownPartition, NotLeader, LeaderNotAvailable,
            FencedLeaderEpoch, UnknownLeaderEpoch, TopicIdMismatch, BrokerFenced, StorageFailed.

        """
        known = (leader_epoch, topic_id)
        readable = partial(self._readable, topic, number, *known, any_replica=any_replica)
        partition = readable()
        records = self._read(partition, offset, last_epoch, max_bytes)
        if len(records) < min_bytes and wait_ms > 0:
            with suppress(TimeoutError), CountedWait(), self.metrics.wait_seconds.time():
                async with asyncio.timeout(wait_ms / 1000):
                    while len(records) < min_bytes:
                        await partition.changed()
                        partition = readable()
                        records = self._read(partition, offset, last_epoch, max_bytes)
            if (current := readable()) is not partition:  # The topic was recreated just now.
                partition, records = current, self._read(current, offset, last_epoch, max_bytes)
        partition.count_out(len(records))
        state = partition.replica.state
        headers = list(parse_headers(records))
        next_offset = headers[-1].next_offset if headers else offset
        count = sum(header.record_count for header in headers)
        self.metrics.fetched(topic, count, len(records))
        return FetchedData(
            records,
            state.high_watermark,
            partition.log.log_start_offset,
            state.leader_epoch,
            next_offset,
            partition.topic_id,
            epoch_to_state(partition, next_offset, None if records else last_epoch),
            self.checks.limit(partition.settings.max_message_bytes),
        )

    def _read(
        self, partition: Partition, offset: int, last_epoch: int | None, max_bytes: int
    ) -> bytes:
        """Return committed batches; empty between high watermark and log end (rule R15)."""
        log, high_watermark = partition.log, partition.replica.state.high_watermark
        if last_epoch is not None:
            if last_epoch > partition.replica.state.leader_epoch:
                self._require_epoch(last_epoch, partition)  # The reader is ahead of this broker.
            check_position(partition, offset, last_epoch)
        in_range = log.log_start_offset <= offset <= log.log_end_offset
        if partition.replica.role is Role.FOLLOWER and not in_range:
            raise OffsetNotAvailable("this follower does not have the offset; ask the leader")
        if not in_range:
            raise OffsetOutOfRange(
                f"offset {offset} is outside {log.log_start_offset} to {high_watermark}",
                log_start_offset=log.log_start_offset,
                high_watermark=high_watermark,
            )
        with self.metrics.read_seconds.time():
            return self.repairs.read(partition, offset, max_bytes, high_watermark)

    async def offsets(
        self,
        topic: str,
        number: int,
        timestamp_ms: int | None = None,
        leader_epoch: int | None = None,
    ) -> PartitionEnds:
        """Return log start, high watermark and log end of a partition that this broker leads.

        With a time, also (offset, timestamp) of the first committed record at or after it, None
        if there is none. `EARLIEST` and `LATEST` give the log start and the high watermark as
        the offset, without a timestamp.

        Raises:
            OffsetNotAvailable: the new leader does not know yet what its predecessor has
                committed (KIP-207), or another one was elected or the topic recreated meanwhile;
                for other errors see `led`.

        """
        partition = self._with_known_end(topic, number, leader_epoch)
        state = partition.replica.state
        epoch, high_watermark = state.leader_epoch, state.high_watermark
        with self.repairs.reading(partition):
            offset, timestamp = await offset_for_timestamp(
                partition.log, high_watermark, timestamp_ms, self.checks
            )
        current = self._with_known_end(topic, number)
        state, log = current.replica.state, current.log
        if current is not partition or state.leader_epoch != epoch:
            raise OffsetNotAvailable("the leader or the topic has changed during the lookup")
        begin = state.high_watermark if offset is None else offset
        return PartitionEnds(
            log.log_start_offset,
            state.high_watermark,
            log.log_end_offset,
            state.leader_epoch,
            offset,
            timestamp,
            epoch_before(log, begin),
        )

    def _with_known_end(
        self, topic: str, number: int, leader_epoch: int | None = None
    ) -> Partition:
        """Return a partition that this broker leads, and whose high watermark it knows."""
        partition = self.led(topic, number, leader_epoch)
        if partition.replica.state.high_watermark < partition.replica.leading().epoch_start:
            raise OffsetNotAvailable("the new leader does not know the high watermark yet")
        return partition

    def epoch_end(
        self, topic: str, number: int, epoch: int, leader_epoch: int | None = None
    ) -> EpochEnd:
        """Return the end of a leader epoch, for a reader that read in that epoch (KIP-320).

        Raises:
            UnknownLeaderEpoch: the epoch is in the future; for other errors see `led`.

        """
        partition = self.led(topic, number, leader_epoch)
        current, log = partition.replica.state.leader_epoch, partition.log
        if epoch > current:
            self._require_epoch(epoch, partition)
        found, end = log.epochs.end_of(epoch, log.log_end_offset)
        return EpochEnd(found, end, current)


def _commit_timeout(partition: Partition, timeout_ms: int) -> LeadlineError:
    state = partition.replica.state
    if len(state.isr) < state.isr_floor:
        return NotEnoughReplicasAfterAppend(
            "appended, but there are too few in-sync replicas now", isr=list(state.isr)
        )
    return RequestTimedOut(f"appended, but not replicated within {timeout_ms} ms")
