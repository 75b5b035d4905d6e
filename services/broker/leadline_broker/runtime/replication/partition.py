"""One replica with all that belongs to it: log, protocol state, settings, who waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Container
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from leadline_broker.domain.replica import Replica
from leadline_broker.domain.state import ReplicaConfig
from leadline_broker.runtime.ports import Log, ReplicaKey
from leadline_broker.runtime.serving.views import ReplicaInfo
from leadline_common.rpc import MovingRow

NOT_APPLIED = -1


@dataclass(frozen=True, slots=True)
class PartitionSettings:
    """The settings in force for the partitions of one topic. Bytes and milliseconds.

    `configs` are the topic's own, which came over the broker's.
    """

    configs: frozenset[tuple[str, str]]
    replica: ReplicaConfig
    max_message_bytes: int
    segment_bytes: int
    retention_ms: int
    retention_bytes: int


class Traffic(NamedTuple):
    """What a replica took in and gave to readers, ever since this broker has it."""

    bytes_in: int = 0
    records_in: int = 0
    bytes_out: int = 0


class Subscriber(Protocol):
    """A fetch session of a follower that wants news of a partition."""

    @property
    def broker_id(self) -> int:
        """The follower."""

    def on_appended(self, partition: Partition, size: int) -> None:
        """Hear of `size` new bytes."""

    def on_high_watermark(self, partition: Partition) -> None:
        """Hear that the high watermark moved."""

    def on_role_change(self, partition: Partition) -> None:
        """Hear that what was counted of this follower no longer holds."""

    def forget(self, partition: Partition) -> None:
        """Take no more interest in the partition."""


class Partition:
    """One local replica. Owned by the event loop.

    `applied_epoch` is the leader epoch of the grant that it obeys, `NOT_APPLIED`
    while it waits, fenced; it is what heartbeats report.
    """

    __slots__ = (
        "_waiting",
        "applied_epoch",
        "log",
        "partition",
        "replica",
        "settings",
        "subscribers",
        "topic",
        "topic_id",
        "traffic",
    )

    def __init__(
        self,
        topic: str,
        topic_id: str,
        partition: int,
        log: Log,
        replica: Replica,
        settings: PartitionSettings,
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.partition = partition
        self.log = log
        self.replica = replica
        self.settings = settings
        log.roll_at(settings.segment_bytes)
        self.applied_epoch = NOT_APPLIED
        self.traffic = Traffic()
        self.subscribers: dict[Subscriber, None] | None = None
        self._waiting: list[asyncio.Future[None]] | None = None

    @property
    def key(self) -> ReplicaKey:
        """Topic id and partition."""
        return self.topic_id, self.partition

    @property
    def name(self) -> tuple[str, int]:
        """Topic name and partition."""
        return self.topic, self.partition

    def configure(self, settings: PartitionSettings) -> None:
        """Take changed settings."""
        self.settings = settings
        self.replica.state.config = settings.replica
        self.log.roll_at(settings.segment_bytes)

    def subscribe(self, subscriber: Subscriber) -> None:
        """Tell `subscriber` of news from now on."""
        if self.subscribers is None:
            self.subscribers = {}
        self.subscribers[subscriber] = None

    def unsubscribe(self, subscriber: Subscriber) -> None:
        """Tell `subscriber` nothing more."""
        if self.subscribers is not None:
            self.subscribers.pop(subscriber, None)
            self.subscribers = self.subscribers or None

    def keep_subscribers(self, brokers: Container[int]) -> None:
        """Drop the sessions of followers that are assigned no more."""
        for subscriber in list(self.subscribers or ()):
            if subscriber.broker_id not in brokers:
                subscriber.forget(self)

    def took(self, size: int, records: int) -> None:
        """Count what was appended, as leader or as follower."""
        known = self.traffic
        self.traffic = Traffic(known.bytes_in + size, known.records_in + records, known.bytes_out)

    def gave(self, size: int) -> None:
        """Count what was read."""
        self.traffic = self.traffic._replace(bytes_out=self.traffic.bytes_out + size)

    def appended(self, size: int) -> None:
        """Tell followers of `size` new bytes."""
        for subscriber in self.subscribers or ():
            subscriber.on_appended(self, size)

    def high_watermark_moved(self) -> None:
        """Wake readers, and let followers hear of it with their next answer."""
        self._wake()
        for subscriber in self.subscribers or ():
            subscriber.on_high_watermark(self)

    def role_changed(self) -> None:
        """Wake everybody who waits: what they wait for may never come."""
        self._wake()
        for subscriber in list(self.subscribers or ()):
            subscriber.on_role_change(self)

    def ask_again(self, broker_id: int) -> None:
        """Have one follower state its position anew."""
        for subscriber in list(self.subscribers or ()):
            if subscriber.broker_id == broker_id:
                subscriber.on_role_change(self)

    async def changed(self) -> None:
        """Wait until the high watermark or the role changes."""
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.watch(waiting)
        try:
            await waiting
        finally:
            self.unwatch(waiting)

    def watch(self, waiting: asyncio.Future[None]) -> None:
        """Resolve `waiting` at the next change; it may wait for several partitions."""
        if self._waiting is None:
            self._waiting = []
        self._waiting.append(waiting)

    def unwatch(self, waiting: asyncio.Future[None]) -> None:
        """Let go of somebody who waits no more."""
        if self._waiting and waiting in self._waiting:
            self._waiting.remove(waiting)

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, None
        for future in waiting or ():
            if not future.done():
                future.set_result(None)

    def moving(self) -> list[MovingRow]:
        """Return how far each replica has come that is being added; none unless led here."""
        leadership = self.replica.leadership
        if leadership is None:
            return []
        size, log = self.log.size_bytes, self.log
        return [
            MovingRow(
                self.topic, self.partition, replica, min(size, log.size_from(known.end)), size
            )
            for replica in self.replica.state.adding
            if (known := leadership.progress.get(replica)) is not None
        ]

    def describe(self) -> ReplicaInfo:
        """Return the replica as `GET replicas` shows it."""
        state, log = self.replica.state, self.log
        return ReplicaInfo(
            topic=self.topic,
            topic_id=self.topic_id,
            partition=self.partition,
            role=self.replica.role.value,
            leader_epoch=state.leader_epoch,
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            durable_end_offset=log.durable_end_offset,
            high_watermark=state.high_watermark,
            isr=state.isr if self.replica.leadership is not None else None,
            log_dir=str(log.directory),
        )
