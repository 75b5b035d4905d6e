"""The history of the cluster: audit records, queries, and past states rebuilt from records.

Every write of cluster state creates an audit entry in the same transaction. So the
records, in order of their ids, are the complete history: replaying them up to a
transaction gives the state of ZooKeeper after that transaction.

An entry that changes replica assignments lists them in `after` under `ASSIGNMENT`:
partition -> replicas, or None for a removed partition. Changes of leader and ISR are
in its `changes`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from leadline_common.znodes import AuditEntry, StateChange

ASSIGNMENT = "assignment"
"""The member of an entry's `after` (and `before`) that maps partitions to replicas."""
BROKERS = "brokers"
"""The member of an entry's `after` that lists the live brokers."""
NOTICED_AT = "noticed_at"
"""The member of an entry's `after` with the time of the event that caused it, in Unix ms."""
TOPIC_DELETED = "topic_deleted"
TOPIC_DELETION_ORDERED = "topic_deletion_ordered"
"""From this entry on the topic is hidden, although its nodes still exist."""
EXTERNAL = "external"
"""The actor of changes that others made in ZooKeeper, found by a controller."""
CONTROLLER_ELECTED = "controller_elected"
CLUSTER_RESTORED = "cluster_restored"
"""ZooKeeper is another one from this entry on, and counts its transactions from 0 again."""
HISTORY_GAP = "history_gap"
"""Replaces entries that no controller has any more, under the id of the last of them."""
UNAUDITED_CHANGES = "unaudited_changes_found"
"""Precedes what a new controller found changed by others.

Its `after` has the id `since`, from which on past states are not certain.
"""
UNKNOWN = "unknown"
"""The outcome of an entry that does not have all of its change."""
ALWAYS_REPLAYED_KINDS = frozenset({CONTROLLER_ELECTED, CLUSTER_RESTORED, HISTORY_GAP})
"""The kinds whose entries affect a past state even without a `resource`, an `after` or changes.

Entries of all other kinds that have neither a `resource` nor an `after` affect it by their changes
only.
"""
REASSIGNMENT_STEP = "reassignment_step"
"""Its `after` maps partitions to rows with `replicas`, `adding` and `removing`."""


class AuditRecord(msgspec.Struct, frozen=True):
    """An audit entry with its position in the history.

    `id` counts entries from 0 without gaps; `zxid` is the ZooKeeper transaction
    that wrote the entry, and with it the change.
    """

    id: int
    zxid: int
    entry: AuditEntry


class Resource(msgspec.Struct, frozen=True):
    """What an entry is about; a member is None if the entry concerns none or several of them."""

    topic: str | None = None
    partition: int | None = None
    broker: int | None = None
    group: str | None = None
    config: str | None = None


class AuditQuery(msgspec.Struct, frozen=True):
    """A filter for records: all members that are not None must match.

    `since_ms` (inclusive) and `until_ms` (exclusive) are Unix times; `topic` and
    `partition` also match entries that changed several partitions.
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
    """One change of a partition's leader or ISR, with members of its audit entry."""

    audit_id: int
    zxid: int
    time: int
    cause: str
    actor: str
    kind: str
    entry_reason: str
    change: StateChange


_UNFIT = (msgspec.MsgspecError, AttributeError, LookupError, TypeError, ValueError)
"""The errors that entries with unexpected members cause."""
_MAX_REASON = 300

FailureOutcome: TypeAlias = Literal["failed", "cancelled", "healing", "healed", "partly_healed"]


class FailureRecord(msgspec.Struct, frozen=True):
    """One failure of a broker and its healing (KIP-46); times are in Unix ms.

    `queued_at` is None until the broker counts as dead and all its partitions are queued
    in `chunks`; `over_at` is None until all chunks are over. `detected_by` is the
    controller that detected the failure, `controller_epoch` its epoch.
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
        """The state of the failure.

        `failed`: the broker is down. `cancelled`: it returned before any replica moved.
        `healing`: its replicas are being recreated. `healed`: all of them were recreated.
        `partly_healed`: it returned, or an operator intervened, before all were recreated.
        """
        if self.over_at is not None:
            if self.partitions_moved == 0 and self.returned_at is not None:
                return "cancelled"
            is_complete = self.chunks_cancelled == 0 and self.partitions_moved >= self.partitions
            return "healed" if is_complete else "partly_healed"
        if self.queued_at is not None:
            return "healing"
        if self.returned_at is None:
            return "failed"
        return "partly_healed" if self.partitions_moved else "cancelled"


class TaskRecord(msgspec.Struct, frozen=True):
    """A task as of its latest entry; times are in Unix ms, `finished_at` is 0 until it is over."""

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
    """Return what an entry is about, from its resource or from its only change."""
    named = entry.resource
    if not named and len(entry.changes) == 1:
        return Resource(topic=entry.changes[0].topic, partition=entry.changes[0].partition)
    return Resource(
        topic=_text(named.get("topic")),
        partition=_number(named.get("partition")),
        broker=_number(named.get("broker")),
        group=_text(named.get("group")),
        config=_text(named.get("config")),
    )


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _name(value: Any) -> str | None:
    # Every entry that is replayed has it checked, and `msgspec.convert` took a third of the time.
    if value is None or isinstance(value, str):
        return value
    raise TypeError(f"{value!r} is not a name")


def _replicas(value: Any) -> tuple[int, ...]:
    return msgspec.convert(value, tuple[int, ...])


class PastPartition(msgspec.Struct, gc=False):
    """A partition at a past time; `replicas` is empty if no entry lists them.

    `state_version` is the data version of the state node, -1 before the first leader.
    """

    replicas: tuple[int, ...] = ()
    leader: int = -1
    leader_epoch: int = -1
    isr: tuple[int, ...] = ()
    state_version: int = -1


class PastTopic(msgspec.Struct):
    """A topic at a past time; `zxid` is the transaction that last changed its assignment."""

    topic_id: str = ""
    partitions: dict[int, PastPartition] = {}
    zxid: int = 0


class PastCluster(msgspec.Struct):
    """The cluster after the transaction `zxid`, which entry `audit_id` of `time` recorded.

    All three are -1 before the first record. `brokers` is None until an entry lists the
    live brokers. It is not `complete` if earlier entries are lost, or if others changed
    ZooKeeper at a time that nobody knows; `reason` says which.
    """

    audit_id: int = -1
    zxid: int = -1
    time: int = -1
    controller: int | None = None
    brokers: list[int] | None = None
    topics: dict[str, PastTopic] = {}
    complete: bool = True
    reason: str = ""

    def miss(self, reason: str) -> None:
        """Note why this past is not complete."""
        self.complete, self.reason = False, self.reason or reason

    def apply(self, record: AuditRecord) -> None:
        """Apply the next record.

        The changes of an entry are applied after the rest of it, even if that is unfit. So a
        partition's state is that of its latest change, unless the partition is deleted later.
        """
        entry = record.entry
        self.audit_id = record.id
        if entry.kind == HISTORY_GAP:
            # No transaction wrote it, and its time is that of its detection.
            self.miss(entry.reason or "audit entries are lost")
        else:
            self.zxid, self.time = record.zxid, entry.time
            try:
                self._apply(entry)
            except _UNFIT as problem:  # anybody may have written the entry
                self.miss(f"audit entry {record.id} cannot be applied: {problem!r}"[:_MAX_REASON])
        for change in entry.changes:
            self.set_state(change)

    def set_state(self, change: StateChange) -> None:
        """Set the state of a partition to that after a change."""
        partition = self._partition(change.topic, change.partition)
        partition.leader, partition.leader_epoch, partition.isr = change.after
        partition.state_version = change.state_version

    def _apply(self, entry: AuditEntry) -> None:
        after = entry.after if isinstance(entry.after, Mapping) else {}
        topic = _name(entry.resource.get("topic"))
        if entry.actor == EXTERNAL and entry.outcome == UNKNOWN:
            self.miss(entry.reason)
        if entry.kind == CLUSTER_RESTORED:
            self._begin_again()
        if entry.kind == CONTROLLER_ELECTED:
            self.controller = _number(after.get("id"))
        if BROKERS in after:
            self.brokers = msgspec.convert(after[BROKERS], list[int])
        if entry.kind in (TOPIC_DELETED, TOPIC_DELETION_ORDERED) and topic is not None:
            self.topics.pop(topic, None)
        elif topic is not None and entry.kind == REASSIGNMENT_STEP:
            self._reassign(topic, after)
        elif topic is not None and ASSIGNMENT in after:
            topic_id = _name(entry.resource.get("topic_id"))
            self._assign(topic, topic_id, after[ASSIGNMENT])

    def _begin_again(self) -> None:
        """Forget what was before: the next controller records all that has been restored."""
        self.controller, self.brokers, self.topics = None, None, {}
        self.complete, self.reason = True, ""

    def _reassign(self, topic: str, rows: Mapping[str, Mapping[str, list[int]]]) -> None:
        for number, row in rows.items():
            self._partition(topic, int(number)).replicas = _replicas(row["replicas"])
            self.topics[topic].zxid = self.zxid

    def _assign(
        self, name: str, topic_id: str | None, assignment: Mapping[str, list[int] | None]
    ) -> None:
        topic = self.topics.setdefault(name, PastTopic())
        topic.topic_id = topic_id or topic.topic_id
        topic.zxid = self.zxid
        for number, replicas in assignment.items():
            if replicas is None:
                topic.partitions.pop(int(number), None)
            else:
                self._partition(name, int(number)).replicas = _replicas(replicas)

    def _partition(self, name: str, number: int) -> PastPartition:
        topic = self.topics.get(name)
        if topic is None:
            topic = self.topics[name] = PastTopic()
        partition = topic.partitions.get(number)
        if partition is None:
            partition = topic.partitions[number] = PastPartition()
        return partition


class ReaderPosition(msgspec.Struct, frozen=True):
    """The range of ids that a controller has stored from the outbox: `oldest` to `stored`.

    It is not `durable` if the controller keeps them in memory only. Other controllers read them
    at `internal_url`, or at `url` without authentication.
    """

    reader: int
    url: str
    oldest: int
    stored: int
    durable: bool = True
    internal_url: str = ""


def trimmable(
    readers: Iterable[ReaderPosition], *, oldest: int, head: int, keep: int, limit: int
) -> range:
    """Return the ids that may be deleted from the outbox, which holds `oldest` to `head` - 1.

    Entries that all known readers have stored may go, except the newest `keep`, if one of
    the readers is durable. If the outbox holds more than `limit` entries, it no longer waits
    for slow readers: then two stored copies are enough, or one if there is only one reader,
    of durable readers where there are any. A slow reader catches up from another controller.
    """
    known = [*readers]
    stored = sorted((reader.stored for reader in known), reverse=True)
    if not stored:
        return range(oldest, oldest)
    durable = sorted((reader.stored for reader in known if reader.durable), reverse=True)
    end = min(stored[-1] + 1, head - keep) if durable else oldest
    if head - oldest > limit:
        kept = durable or stored
        copies = kept[min(1, len(kept) - 1)]
        end = max(end, min(copies + 1, head - limit))
    return range(oldest, max(oldest, end))
