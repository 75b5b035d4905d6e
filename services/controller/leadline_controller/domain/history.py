"""What the audit tells: records in order, what can be asked of them, and the past rebuilt.

Every write of the cluster's state leaves an audit entry in the same transaction,
so the records, in order of their ids, are the whole history: replaying those up to
a transaction gives the cluster as ZooKeeper had it after that transaction.

An entry that changes which brokers hold a partition says so in `after` under
`ASSIGNMENT`: partition -> replicas, None where the partition is gone. Changes of
leader and ISR are its `changes`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from leadline_common.znodes import AuditEntry, StateChange

ASSIGNMENT = "assignment"
"""The member of an entry's `after` (and `before`) that maps partitions to replicas."""
BROKERS = "brokers"
"""The member of an entry's `after` that lists the live brokers."""
NOTICED_AT = "noticed_at"
"""The member of an entry's `after` that says when the news came that it answers, in Unix ms."""
TOPIC_DELETED = "topic_deleted"
TOPIC_DELETION_ORDERED = "topic_deletion_ordered"
"""From here on nobody is shown the topic, though its nodes are still there."""
CONTROLLER_ELECTED = "controller_elected"
HISTORY_GAP = "history_gap"
"""Stands in a history, under the id of the last of them, for entries that nobody has any more."""
REASSIGNMENT_STEP = "reassignment_step"
"""Its `after` maps partitions to rows with `replicas`, `adding` and `removing`."""


class AuditRecord(msgspec.Struct, frozen=True):
    """An audit entry with its place in history.

    `id` counts entries from 0 without gaps; `zxid` is the ZooKeeper transaction
    that wrote the entry, and with it the change.
    """

    id: int
    zxid: int
    entry: AuditEntry


class Resource(msgspec.Struct, frozen=True):
    """What an entry is about; None where it is about none, or about several."""

    topic: str | None = None
    partition: int | None = None
    broker: int | None = None
    group: str | None = None
    config: str | None = None


class AuditQuery(msgspec.Struct, frozen=True):
    """Which records are wanted: all members that are not None must match.

    `since_ms` (inclusive) and `until_ms` (exclusive) are Unix times; `topic` and
    `partition` also match entries that changed it among others.
    """

    actor: str | None = None
    kind: str | None = None
    cause: str | None = None
    outcome: str | None = None
    topic: str | None = None
    partition: int | None = None
    broker: int | None = None
    group: str | None = None
    config: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None


class PartitionChange(msgspec.Struct, frozen=True):
    """One change of a partition's leader or ISR, and the entry that tells of it."""

    audit_id: int
    zxid: int
    time: int
    cause: str
    actor: str
    kind: str
    entry_reason: str
    change: StateChange


FailureOutcome: TypeAlias = Literal["failed", "cancelled", "healing", "healed", "partly_healed"]


class FailureRecord(msgspec.Struct, frozen=True):
    """One failure of a broker (KIP-46), from the first news to the end; times in Unix ms.

    `queued_at` is None until it counted as dead and all it had was queued in `chunks`;
    `over_at` until all of them are. `detected_by` is the controller that noticed, in
    its `controller_epoch`.
    """

    broker: int
    failed_at: int
    incarnation: int
    detected_by: str
    controller_epoch: int
    returned_at: int | None
    queued_at: int | None
    chunks: int
    chunks_over: int
    chunks_cancelled: int
    partitions: int
    partitions_moved: int
    bytes_moved: int
    over_at: int | None

    @property
    def outcome(self) -> FailureOutcome:
        """What has become of it.

        `failed`: it is down. `cancelled`: it came back before anything was moved.
        `healing`: its replicas are being made anew. `healed`: all of them were.
        `partly_healed`: it came back, or somebody intervened, before all were.
        """
        if self.over_at is not None:
            if self.partitions_moved == 0 and self.returned_at is not None:
                return "cancelled"
            is_whole = self.chunks_cancelled == 0 and self.partitions_moved >= self.partitions
            return "healed" if is_whole else "partly_healed"
        if self.queued_at is not None:
            return "healing"
        if self.returned_at is None:
            return "failed"
        return "partly_healed" if self.partitions_moved else "cancelled"


class TaskRecord(msgspec.Struct, frozen=True):
    """A task as its latest entry has it; times in Unix ms, `finished_at` 0 until it is over."""

    id: str
    kind: str
    actor: str
    cause: str
    reason: str
    state: str
    created_at: int
    finished_at: int
    total: int
    outcome: Mapping[str, Any]
    details: Mapping[str, Any]


def resource_of(entry: AuditEntry) -> Resource:
    """Return what an entry is about, whichever way it says so."""
    told = entry.resource
    if not told and len(entry.changes) == 1:
        return Resource(topic=entry.changes[0].topic, partition=entry.changes[0].partition)
    return Resource(
        topic=_text(told.get("topic")),
        partition=_number(told.get("partition")),
        broker=_number(told.get("broker")),
        group=_text(told.get("group")),
        config=_text(told.get("config")),
    )


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) else None


class PastPartition(msgspec.Struct):
    """A partition as it was; `replicas` empty where no entry told of them.

    `state_version` is the data version of the state node, -1 before the first leader.
    """

    replicas: tuple[int, ...] = ()
    leader: int = -1
    leader_epoch: int = -1
    isr: tuple[int, ...] = ()
    state_version: int = -1


class PastTopic(msgspec.Struct):
    """A topic as it was."""

    topic_id: str = ""
    partitions: dict[int, PastPartition] = {}


class PastCluster(msgspec.Struct):
    """The cluster after the transaction `zxid`, which entry `audit_id` (of `time`) recorded.

    All three are -1 before the first record. `brokers` are None until an entry told
    who is live. Where entries before it are lost, it is not `complete`.
    """

    audit_id: int = -1
    zxid: int = -1
    time: int = -1
    controller: int | None = None
    brokers: list[int] | None = None
    topics: dict[str, PastTopic] = {}
    complete: bool = True

    def apply(self, record: AuditRecord) -> None:
        """Go one entry further."""
        entry = record.entry
        self.audit_id = record.id
        if entry.kind == HISTORY_GAP:  # written when it was found, and by no transaction
            self.complete = False
            return
        self.zxid, self.time = record.zxid, entry.time
        after = entry.after if isinstance(entry.after, Mapping) else {}
        topic = entry.resource.get("topic")
        if entry.kind == CONTROLLER_ELECTED:
            self.controller = _number(after.get("id"))
        if BROKERS in after:
            self.brokers = list(after[BROKERS])
        if entry.kind in (TOPIC_DELETED, TOPIC_DELETION_ORDERED) and topic is not None:
            self.topics.pop(topic, None)
        elif topic is not None and entry.kind == REASSIGNMENT_STEP:
            self._reassign(topic, after)
        elif topic is not None and ASSIGNMENT in after:
            self._assign(topic, entry.resource.get("topic_id"), after[ASSIGNMENT])
        for change in entry.changes:
            self._set_state(change)

    def _reassign(self, topic: str, rows: Mapping[str, Mapping[str, list[int]]]) -> None:
        for number, row in rows.items():
            self._partition(topic, int(number)).replicas = tuple(row["replicas"])

    def _assign(
        self, name: str, topic_id: str | None, assignment: Mapping[str, list[int] | None]
    ) -> None:
        topic = self.topics.setdefault(name, PastTopic())
        topic.topic_id = topic_id or topic.topic_id
        for number, replicas in assignment.items():
            if replicas is None:
                topic.partitions.pop(int(number), None)
            else:
                self._partition(name, int(number)).replicas = tuple(replicas)

    def _set_state(self, change: StateChange) -> None:
        partition = self._partition(change.topic, change.partition)
        partition.leader, partition.leader_epoch, partition.isr = change.after
        partition.state_version = change.state_version

    def _partition(self, name: str, number: int) -> PastPartition:
        topic = self.topics.setdefault(name, PastTopic())
        return topic.partitions.setdefault(number, PastPartition())


def replay(records: Iterable[AuditRecord], start: PastCluster | None = None) -> PastCluster:
    """Rebuild the cluster from records in order of their ids, beginning with `start`."""
    past = start or PastCluster()
    for record in records:
        past.apply(record)
    return past


def broken_chains(records: Iterable[AuditRecord]) -> Iterator[str]:
    """Say where a partition's history does not hold together (invariant I14).

    Each change must begin with what the one before it left, and write the next
    version of the state node; what was deleted, or removed, begins anew.
    """
    last: dict[tuple[str, int], StateChange] = {}
    for record in records:
        if record.entry.kind == TOPIC_DELETED:
            gone = record.entry.resource.get("topic")
            last = {name: change for name, change in last.items() if name[0] != gone}
        for name in _removed(record.entry):
            last.pop(name, None)
        for change in record.entry.changes:
            name = (change.topic, change.partition)
            before = last.get(name)
            version = 0 if before is None else before.state_version + 1
            if change.state_version != version:
                yield f"{name}: {record.id} writes version {change.state_version}, not {version}"
            if change.before != (None if before is None else before.after):
                yield f"{name}: {record.id} begins with {change.before}, not where the last ended"
            last[name] = change


def _removed(entry: AuditEntry) -> list[tuple[str, int]]:
    """Return the partitions that an entry says are gone."""
    after = entry.after if isinstance(entry.after, Mapping) else {}
    topic = str(entry.resource.get("topic"))
    assignment = after.get(ASSIGNMENT) or {}
    return [(topic, int(number)) for number, replicas in assignment.items() if replicas is None]


class ReaderPosition(msgspec.Struct, frozen=True):
    """How far a controller has stored the outbox: the ids from `oldest` to `stored`."""

    reader: int
    url: str
    oldest: int
    stored: int


def trimmable(
    readers: Iterable[ReaderPosition], *, oldest: int, head: int, keep: int, limit: int
) -> range:
    """Return the ids that may leave the outbox, which now holds `oldest` up to (without) `head`.

    What every known reader has stored goes, but for the newest `keep`. Beyond
    `limit` entries a reader that is far behind is waited for no longer: then two
    copies are enough, or the only one. It catches up from whoever has them.
    """
    stored = sorted((reader.stored for reader in readers), reverse=True)
    if not stored:
        return range(oldest, oldest)
    end = min(stored[-1] + 1, head - keep)
    if head - oldest > limit:
        copies = stored[min(1, len(stored) - 1)]
        end = max(end, min(copies + 1, head - limit))
    return range(oldest, max(oldest, end))
