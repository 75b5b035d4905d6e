"""All replicas of this broker: found by id or name, created, fenced, stopped, counted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from leadline_broker.domain.effects import Effect
from leadline_broker.domain.replica import Replica, Role
from leadline_broker.runtime.ports import Log, LogStore, ReplicaKey, StoredReplica
from leadline_broker.runtime.replication.partition import NOT_APPLIED, Partition, PartitionSettings
from leadline_common.rpc import replica_fingerprint


class Fetchers(Protocol):
    """Fetches from leaders."""

    def stop(self, partition: Partition) -> None:
        """Stop fetching the partition."""


class ReplicaManager:
    """The replicas by (topic id, partition). Owned by the event loop.

    Invariants: one replica per topic name and partition; `digest` and
    `applied_count` sum up the applied roles (rule R8); every led partition that
    may need an ISR change is in `unsettled`, and every one that a reassignment
    adds replicas to in `growing`. `on_dropped(key)` hears of replicas that go.
    """

    def __init__(
        self,
        broker_id: int,
        logs: LogStore,
        fetchers: Fetchers,
        execute: Callable[[Partition, Sequence[Effect]], None],
    ) -> None:
        self._broker_id = broker_id
        self._logs = logs
        self._fetchers = fetchers
        self._execute = execute
        self._partitions: dict[ReplicaKey, Partition] = {}
        self._names: dict[tuple[str, int], Partition] = {}
        self.unsettled: dict[Partition, None] = {}
        self.growing: dict[Partition, None] = {}
        self.on_dropped: Callable[[ReplicaKey], None] = lambda _: None
        self.digest = 0
        self.applied_count = 0

    def __len__(self) -> int:
        return len(self._partitions)

    def all(self) -> list[Partition]:
        """Return every replica."""
        return list(self._partitions.values())

    def led(self) -> list[Partition]:
        """Return the replicas that lead their partition."""
        return [p for p in self._partitions.values() if p.replica.leadership is not None]

    def find(self, key: ReplicaKey) -> Partition | None:
        """Return the replica of (topic id, partition)."""
        return self._partitions.get(key)

    def named(self, topic: str, partition: int) -> Partition | None:
        """Return the replica of (topic name, partition)."""
        return self._names.get((topic, partition))

    def load(self, stored: Iterable[StoredReplica], settings: PartitionSettings) -> None:
        """Take over what was found on disk; all of it fenced."""
        for topic, topic_id, partition, log, high_watermark in stored:
            self._add(topic, topic_id, partition, log, settings, high_watermark)

    def create(
        self, topic: str, topic_id: str, partition: int, settings: PartitionSettings
    ) -> Partition:
        """Start a replica that is not here yet (seed 1: start_replica).

        One of the same name and another topic id is moved to stray: its topic
        was deleted and created again meanwhile.

        Raises:
            StorageFailed: its log could not be opened.

        """
        other = self.named(topic, partition)
        if other is not None:
            self.set_aside(other)
        log = self._logs.open(topic, topic_id, partition)
        return self._add(topic, topic_id, partition, log, settings, 0)

    def _add(
        self,
        topic: str,
        topic_id: str,
        partition: int,
        log: Log,
        settings: PartitionSettings,
        high_watermark: int,
    ) -> Partition:
        replica = self._fresh(topic_id, partition, log, settings, high_watermark)
        added = Partition(topic, topic_id, partition, log, replica, settings)
        self._partitions[topic_id, partition] = self._names[topic, partition] = added
        return added

    def _fresh(
        self,
        topic_id: str,
        partition: int,
        log: Log,
        settings: PartitionSettings,
        high_watermark: int,
    ) -> Replica:
        return Replica(
            broker_id=self._broker_id,
            topic_id=topic_id,
            partition=partition,
            log=log,
            high_watermark=high_watermark,
            config=settings.replica,
        )

    def applied(self, partition: Partition) -> None:
        """Count the role that a replica has taken, or left."""
        state = partition.replica.state
        fenced = partition.replica.role is Role.FENCED
        epoch = NOT_APPLIED if fenced else state.leader_epoch
        if epoch != partition.applied_epoch:
            self._count(partition, epoch)
            partition.role_changed()
        leadership = partition.replica.leadership
        if leadership is not None:
            partition.keep_subscribers(leadership.progress)
        whole = len(state.isr) == len(state.assigned)
        settled = whole and state.high_watermark == partition.log.log_end_offset
        _keep(self.unsettled, partition, leadership is not None and not settled)
        _keep(self.growing, partition, leadership is not None and bool(state.adding))

    def _count(self, partition: Partition, epoch: int) -> None:
        topic_id, number = partition.key
        if partition.applied_epoch != NOT_APPLIED:
            self.digest ^= replica_fingerprint(topic_id, number, partition.applied_epoch)
            self.applied_count -= 1
        if epoch != NOT_APPLIED:
            self.digest ^= replica_fingerprint(topic_id, number, epoch)
            self.applied_count += 1
        partition.applied_epoch = epoch

    def fence_all(self) -> None:
        """Leave every role at once: this incarnation is over (rule R9).

        The replicas start anew over their open logs, as after a restart.
        """
        for partition in self._partitions.values():
            self.fence(partition)
            replica = partition.replica
            partition.replica = self._fresh(
                *partition.key, partition.log, partition.settings, replica.state.high_watermark
            )

    def fence(self, partition: Partition) -> None:
        """Leave the role of one replica; what waits for it fails."""
        self._fetchers.stop(partition)
        self._execute(partition, partition.replica.step_down())
        self.applied(partition)

    def configure(self, partition: Partition, settings: PartitionSettings) -> None:
        """Let changed settings take effect at once: fewer in-sync replicas may be enough now."""
        if partition.settings is not settings:
            partition.configure(settings)
            self._execute(partition, partition.replica.on_durable())
            self.applied(partition)

    def set_aside(self, partition: Partition) -> None:
        """Move a replica that the controller does not know to stray (rule R12)."""
        self._drop(partition)
        self._logs.to_stray(partition.key)

    def delete(self, partition: Partition) -> Callable[[], None]:
        """Remove a replica for good; return the rest of the work, for any thread."""
        self._drop(partition)
        return self._logs.delete(partition.key)

    def _drop(self, partition: Partition) -> None:
        self.fence(partition)
        del self._partitions[partition.key]
        del self._names[partition.topic, partition.partition]
        self.on_dropped(partition.key)


def _keep(group: dict[Partition, None], partition: Partition, belongs: bool) -> None:
    if belongs:
        group[partition] = None
    else:
        group.pop(partition, None)
