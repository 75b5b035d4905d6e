"""A local replica of a partition: log, protocol state, settings, and who waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from leadline_broker.domain.effects import Effect
from leadline_broker.domain.replica import Replica
from leadline_broker.domain.state import Order, ReplicaConfig, ReplicaKey
from leadline_broker.runtime.ports import Log
from leadline_client.errors import StorageFailed
from leadline_client.wire import TopicPartition
from leadline_common.rpc import MovingRow, PartitionRow
from leadline_common.tracing.spans import Span

NOT_APPLIED = -1


@dataclass(frozen=True, slots=True)
class PartitionSettings:
    """The settings in force for the partitions of one topic. Bytes and milliseconds.

    `configs` are the topic's own settings, which override the broker's; None before they are
    known. A negative `timestamp_after_max_ms` or retention is no limit.
    """

    configs: frozenset[tuple[str, str]] | None
    replica: ReplicaConfig
    max_message_bytes: int
    timestamp_after_max_ms: int
    segment_bytes: int
    retention_ms: int
    retention_bytes: int


class Traffic(NamedTuple):
    """What a replica has appended and served to readers since this process opened it."""

    bytes_in: int = 0
    records_in: int = 0
    bytes_out: int = 0


@dataclass(frozen=True, slots=True)
class FollowerInfo:
    """A follower as its leader knows it; -1 for an end that it has not stated in this epoch.

    Times are in ms by the monotonic clock of the leader's broker; 0 for never.
    """

    broker: int
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int


@dataclass(frozen=True, slots=True)
class ReplicaInfo:
    """One local replica as `GET /v1/replicas` returns it; `isr` and `followers` only on the leader.

    `role_epoch` is the leader epoch at which it took its role, None without one.
    `durable_end_offset` is the end up to which the log is fsynced (rule R4).
    """

    topic: str
    topic_id: str
    partition: int
    role: str
    role_epoch: int | None
    leader_epoch: int
    log_start_offset: int
    log_end_offset: int
    durable_end_offset: int
    high_watermark: int
    isr: tuple[int, ...] | None
    log_dir: str
    size_bytes: int
    followers: tuple[FollowerInfo, ...] | None = None


class Subscriber(Protocol):
    """A follower's fetch session that is notified of changes of a partition."""

    @property
    def broker_id(self) -> int:
        """The follower's broker id."""

    def on_appended(self, partition: Partition, size: int) -> None:
        """Handle an append of `size` bytes."""

    def on_high_watermark(self, partition: Partition) -> None:
        """Handle a risen high watermark."""

    def on_reset(self, partition: Partition) -> None:
        """Handle that the leader has reset this follower's progress."""

    def forget(self, partition: Partition) -> None:
        """Remove the partition from the session."""


@dataclass(eq=False, slots=True)
class Partition:
    """One local replica. Owned by the event loop.

    `applied_epoch` is the leader epoch of its current role, or `NOT_APPLIED` while it is
    fenced; heartbeats report it. `fingerprint` is its part of the broker's digest (rule R8), 0
    while it is fenced.
    """

    topic: str
    topic_id: str
    partition: int
    log: Log
    replica: Replica
    settings: PartitionSettings
    applied_epoch: int = field(default=NOT_APPLIED, init=False)
    fingerprint: int = field(default=0, init=False)
    traffic: Traffic = field(default=Traffic(), init=False)
    flushed_traffic: Traffic = field(default=Traffic(), init=False)
    subscribers: dict[Subscriber, None] | None = field(default=None, init=False)
    traced_waits: list[TracedWait] | None = field(default=None, init=False)
    _waiting: list[asyncio.Future[None]] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.log.roll_at(self.settings.segment_bytes)

    @property
    def key(self) -> ReplicaKey:
        """Topic id and partition."""
        return self.topic_id, self.partition

    @property
    def topic_partition(self) -> TopicPartition:
        """Topic name and partition."""
        return TopicPartition(self.topic, self.partition)

    def configure(self, settings: PartitionSettings) -> None:
        """Apply changed settings."""
        self.settings = settings
        self.replica.state.config = settings.replica
        self.log.roll_at(settings.segment_bytes)

    def repeats(
        self, row: PartitionRow, settings: PartitionSettings, directory_epoch: int, order: Order
    ) -> bool:
        """Return whether a granted row changes nothing here, as most rows of a new controller."""
        return (
            self.settings is settings
            and self.applied_epoch == row.leader_epoch
            and self.replica.state.directory_epoch == directory_epoch
            and self.replica.repeats(row, order)
        )

    def subscribe(self, subscriber: Subscriber) -> None:
        """Notify `subscriber` of changes from now on."""
        if self.subscribers is None:
            self.subscribers = {}
        self.subscribers[subscriber] = None

    def unsubscribe(self, subscriber: Subscriber) -> None:
        """Stop notifying `subscriber`."""
        if self.subscribers is not None:
            self.subscribers.pop(subscriber, None)
            self.subscribers = self.subscribers or None

    def keep_subscribers(self, brokers: Container[int]) -> None:
        """Drop the sessions of followers that are no longer assigned."""
        for subscriber in list(self.subscribers or ()):
            if subscriber.broker_id not in brokers:
                subscriber.forget(self)

    def count_in(self, size: int, records: int) -> None:
        """Count an append, as leader or as follower."""
        total = self.traffic
        self.traffic = Traffic(total.bytes_in + size, total.records_in + records, total.bytes_out)

    def take_unflushed(self) -> Traffic:
        """Return what was appended since the last call, because a flush begins now."""
        total, before = self.traffic, self.flushed_traffic
        self.flushed_traffic = total
        return Traffic(total.bytes_in - before.bytes_in, total.records_in - before.records_in)

    def count_out(self, size: int) -> None:
        """Count a read."""
        self.traffic = self.traffic._replace(bytes_out=self.traffic.bytes_out + size)

    def appended(self, size: int) -> None:
        """Notify followers of `size` new bytes."""
        for subscriber in self.subscribers or ():
            subscriber.on_appended(self, size)

    def high_watermark_moved(self) -> None:
        """Wake readers, and let followers learn of it with their next response."""
        self._wake()
        for subscriber in self.subscribers or ():
            subscriber.on_high_watermark(self)

    def role_changed(self) -> None:
        """Wake readers, which may wait for a change that cannot come; forget followers' positions.

        Followers fetch in the new leader epoch once they have their own roles in it. Until then
        every answer would be a refusal.
        """
        self._wake()
        for subscriber in list(self.subscribers or ()):
            subscriber.forget(self)

    def reset_follower(self, broker_id: int) -> None:
        """Make one follower state its position again."""
        for subscriber in list(self.subscribers or ()):
            if subscriber.broker_id == broker_id:
                subscriber.on_reset(self)

    async def changed(self) -> None:
        """Wait until the high watermark or the role changes."""
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.watch(waiting)
        try:
            await waiting
        finally:
            self.unwatch(waiting)

    def watch(self, waiting: asyncio.Future[None]) -> None:
        """Resolve `waiting` at the next change; the same future may watch several partitions."""
        if self._waiting is None:
            self._waiting = []
        self._waiting.append(waiting)

    def unwatch(self, waiting: asyncio.Future[None]) -> None:
        """Remove a future that no longer waits."""
        if self._waiting and waiting in self._waiting:
            self._waiting.remove(waiting)

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, None
        for future in waiting or ():
            if not future.done():
                future.set_result(None)

    def trace_wait(self, end: int, span: Span) -> TracedWait:
        """Add to a span when each replica has everything below `end` on disk."""
        wait = TracedWait(end, span, set())
        self.traced_waits = [*(self.traced_waits or ()), wait]
        return wait

    def end_traced_wait(self, wait: TracedWait) -> None:
        """Add no more to the span of a wait."""
        left = [other for other in self.traced_waits or () if other is not wait]
        self.traced_waits = left or None

    def note_durable(self, broker_id: int, end: int) -> None:
        """Tell the spans of waits up to where a replica has the log on disk."""
        for wait in self.traced_waits or ():
            if end >= wait.end and broker_id not in wait.seen:
                wait.seen.add(broker_id)
                wait.span.event("on disk", {"leadline.broker": broker_id})

    def moving(self) -> list[MovingRow]:
        """Return the progress of each replica that is being added; empty unless this one leads."""
        leadership = self.replica.leadership
        if leadership is None:
            return []
        size = self.log.size_bytes
        return [
            MovingRow(self.topic, self.partition, replica, self._size_from(known.end), size)
            for replica in self.replica.state.adding
            if (known := leadership.progress.get(replica)) is not None
        ]

    def _size_from(self, offset: int) -> int:
        """Return the bytes from `offset` on; all of them, if the disk does not tell."""
        size = self.log.size_bytes
        try:
            return min(size, self.log.size_from(offset))
        except StorageFailed:
            return size

    def describe(self) -> ReplicaInfo:
        """Return the replica as `GET /v1/replicas` returns it."""
        state, log = self.replica.state, self.log
        return ReplicaInfo(
            topic=self.topic,
            topic_id=self.topic_id,
            partition=self.partition,
            role=self.replica.role.value,
            role_epoch=None if self.applied_epoch == NOT_APPLIED else self.applied_epoch,
            leader_epoch=state.leader_epoch,
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            durable_end_offset=log.durable_end_offset,
            high_watermark=state.high_watermark,
            isr=state.isr if self.replica.leadership is not None else None,
            log_dir=str(log.directory),
            size_bytes=log.size_bytes,
            followers=self._followers(),
        )

    def _followers(self) -> tuple[FollowerInfo, ...] | None:
        """Return what the leader knows of its followers, None on any other replica."""
        leadership = self.replica.leadership
        if leadership is None:
            return None
        return tuple(
            FollowerInfo(broker, known.end, known.last_fetch_ms, known.last_caught_up_ms)
            for broker, known in sorted(leadership.progress.items())
        )


@dataclass(eq=False, slots=True)
class TracedWait:
    """A produce that waits until everything below `end` is committed, and its span.

    `seen` are the brokers that are known to have it on disk.
    """

    end: int
    span: Span
    seen: set[int]


Execute = Callable[[Partition, Sequence[Effect]], None]
"""Executes the effects of a partition's replica in order."""
