"""All replicas of this broker: lookup, creation, fencing, deletion, and their digest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from leadline_broker.domain.replica import Replica, Role
from leadline_broker.domain.state import ReplicaKey
from leadline_broker.runtime.ports import Log, LogStore, StoredReplica
from leadline_broker.runtime.replication.fetcher_manager import ReplicaFetcherManager
from leadline_broker.runtime.replication.partition import (
    NOT_APPLIED,
    Execute,
    Partition,
    PartitionSettings,
    ReplicaInfo,
)
from leadline_common.long_lived import LongLived
from leadline_common.rpc import replica_fingerprint
from leadline_common.slices import in_order


@dataclass(eq=False)
class ReplicaManager:
    """The replicas by (topic id, partition). Owned by the event loop.

    Invariants: there is one replica per topic name and partition; `digest` and `applied_count`
    summarize the applied roles (rule R8); `unsettled` contains every led partition that may
    need an ISR change, `growing` every led partition to which a reassignment adds replicas.
    `long_lived` counts new roles.
    `on_dropped(key)` is called for each removed replica.
    """

    broker_id: int
    logs: LogStore
    fetchers: ReplicaFetcherManager
    execute: Execute
    _partitions: dict[ReplicaKey, Partition] = field(default_factory=dict, init=False)
    _by_name: dict[tuple[str, int], Partition] = field(default_factory=dict, init=False)
    unsettled: dict[Partition, None] = field(default_factory=dict, init=False)
    growing: dict[Partition, None] = field(default_factory=dict, init=False)
    digest: int = field(default=0, init=False)
    applied_count: int = field(default=0, init=False)
    long_lived: LongLived = field(default_factory=LongLived, init=False)

    def __post_init__(self) -> None:
        # Not a field's default, which as an attribute of the class would become a method.
        self.on_dropped: Callable[[ReplicaKey], None] = lambda _: None

    def __len__(self) -> int:
        return len(self._partitions)

    def __contains__(self, partition: Partition) -> bool:
        return self._partitions.get(partition.key) is partition

    def all(self) -> list[Partition]:
        """Return every replica."""
        return list(self._partitions.values())

    def led(self) -> list[Partition]:
        """Return the replicas that lead their partition."""
        return [p for p in self._partitions.values() if p.replica.leadership is not None]

    def ordered(self, topic: str | None = None) -> Iterator[Partition]:
        """Return the replicas, or those of a topic, by topic and partition."""
        asked = (one for one in self._partitions.values() if topic in (None, one.topic))
        return in_order(asked, lambda one: one.topic_partition)

    def describe(self) -> list[ReplicaInfo]:
        """Return a description of every replica, by topic and partition."""
        return [one.describe() for one in self.ordered()]

    def find(self, key: ReplicaKey) -> Partition | None:
        """Return the replica of (topic id, partition)."""
        return self._partitions.get(key)

    def named(self, topic: str, partition: int) -> Partition | None:
        """Return the replica of (topic name, partition)."""
        return self._by_name.get((topic, partition))

    def applied_epoch(self, key: ReplicaKey) -> int:
        """Return the leader epoch of the role that a replica has taken, or `NOT_APPLIED`."""
        found = self.find(key)
        return NOT_APPLIED if found is None else found.applied_epoch

    def load(self, stored: Iterable[StoredReplica], settings: PartitionSettings) -> None:
        """Add replicas found on disk, all of them fenced."""
        for topic, topic_id, partition, log, high_watermark in stored:
            self._add(topic, topic_id, partition, log, settings, high_watermark)

    def create(
        self, topic: str, topic_id: str, partition: int, settings: PartitionSettings
    ) -> Partition:
        """Create a replica (Replication V3, section C: startReplica).

        A replica of the same name with another topic id becomes a stray: its topic was
        deleted and recreated.

        Raises:
            StorageFailed: the log could not be opened.

        """
        other = self.named(topic, partition)
        if other is not None:
            self.make_stray(other)
        log = self.logs.open(topic, topic_id, partition)
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
        replica = self._new_replica(topic_id, partition, log, settings, high_watermark)
        added = Partition(topic, topic_id, partition, log, replica, settings)
        self._partitions[topic_id, partition] = self._by_name[topic, partition] = added
        return added

    def _new_replica(
        self,
        topic_id: str,
        partition: int,
        log: Log,
        settings: PartitionSettings,
        high_watermark: int,
    ) -> Replica:
        return Replica(
            broker_id=self.broker_id,
            topic_id=topic_id,
            partition=partition,
            log=log,
            high_watermark=high_watermark,
            config=settings.replica,
        )

    def applied(self, partition: Partition) -> None:
        """Update digest and sets after a replica has changed its role or its ISR."""
        state = partition.replica.state
        fenced = partition.replica.role is Role.FENCED
        epoch = NOT_APPLIED if fenced else state.leader_epoch
        if epoch != partition.applied_epoch:
            self.long_lived.add()
            self._count(partition, epoch)
            partition.role_changed()
        leadership = partition.replica.leadership
        if leadership is not None:
            partition.keep_subscribers(leadership.progress)
        unsettled = leadership is not None and not leadership.is_settled
        _set_membership(self.unsettled, partition, unsettled)
        _set_membership(self.growing, partition, leadership is not None and bool(state.adding))

    def _count(self, partition: Partition, epoch: int) -> None:
        is_applied = epoch != NOT_APPLIED
        fingerprint = replica_fingerprint(*partition.key, epoch) if is_applied else 0
        self.digest ^= partition.fingerprint ^ fingerprint
        self.applied_count += is_applied - (partition.applied_epoch != NOT_APPLIED)
        partition.applied_epoch, partition.fingerprint = epoch, fingerprint

    def fence_all(self) -> None:
        """Fence every replica, because this incarnation has ended (rule R9).

        The replicas start again on their open logs, as after a restart.
        """
        for partition in self._partitions.values():
            self.fence(partition)
            replica = partition.replica
            partition.replica = self._new_replica(
                *partition.key, partition.log, partition.settings, replica.state.high_watermark
            )

    def fence(self, partition: Partition) -> None:
        """Fence one replica; its waiting produces fail."""
        self.fetchers.stop(partition)
        self.execute(partition, partition.replica.step_down())
        self.applied(partition)

    def configure(self, partition: Partition, settings: PartitionSettings) -> None:
        """Apply changed settings at once."""
        if partition.settings is not settings:
            partition.configure(settings)
            # A lower min.insync.replicas may commit records.
            self.execute(partition, partition.replica.on_durable())
            self.applied(partition)

    def make_stray(self, partition: Partition) -> None:
        """Rename the log of a replica that the controller does not know to a stray (rule R12)."""
        self._drop(partition)
        self.logs.to_stray(partition.key)

    def delete(self, partition: Partition) -> Callable[[], None]:
        """Delete a replica; return the removal of its files, which may run in any thread."""
        self._drop(partition)
        return self.logs.delete(partition.key)

    def _drop(self, partition: Partition) -> None:
        self.fence(partition)
        del self._partitions[partition.key]
        del self._by_name[partition.topic, partition.partition]
        self.on_dropped(partition.key)


def _set_membership(group: dict[Partition, None], partition: Partition, belongs: bool) -> None:
    if belongs:
        group[partition] = None
    else:
        group.pop(partition, None)
