"""What brokers said of their replicas during a run, and which directories they had (I8, I13)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from leadline_common.znodes import AuditEntry, TopicAssignment
from leadline_controller.domain.history import (
    ASSIGNMENT,
    REASSIGNMENT_STEP,
    TOPIC_DELETED,
    TOPIC_DELETION_ORDERED,
    AuditRecord,
    PastCluster,
)

MARGIN_MS = 1000
"""An audit entry has the time before its write: so much earlier, at most, unless frozen."""

GONE = "is gone"

ReplicaName = tuple[int, str, int]
"""Broker, topic id, partition."""


@dataclass(frozen=True, slots=True)
class ReplicaSample:
    """One row of a broker's answer, which was asked for and received at these Unix times in ms."""

    broker: int
    topic: str
    topic_id: str
    partition: int
    high_watermark: int
    log_end: int
    began_ms: int
    ended_ms: int


@dataclass(frozen=True, slots=True)
class DirectorySample:
    """The replica directories of a broker at a moment, those set aside included.

    Maps topic id and partition to what tells one directory from another (its inode).
    """

    broker: int
    at_ms: int
    directories: Mapping[tuple[str, int], int]


class IsrHistory:
    """Who was in the ISR of each partition when, by the audit."""

    def __init__(self, audit: Iterable[AuditEntry]) -> None:
        self._rows: dict[tuple[str, int], list[tuple[int, frozenset[int]]]] = defaultdict(list)
        self.uncertain: set[tuple[str, int]] = set()
        """Partitions whose committed records may be gone: elected uncleanly, or created twice."""
        for entry in audit:
            for change in entry.changes:
                name = (change.topic, change.partition)
                created_again = change.before is None and name in self._rows
                if created_again or "unclean" in change.reason:
                    self.uncertain.add(name)
                self._rows[name].append((entry.time, frozenset(change.after[2])))

    def throughout(self, name: tuple[str, int], since_ms: int, until_ms: int) -> frozenset[int]:
        """Return the members of a partition's ISR at every moment of a time."""
        rows = sorted(self._rows[name], key=lambda row: row[0])
        times = [at_ms for at_ms, _ in rows]
        first = max(0, bisect_left(times, since_ms) - 1)
        isrs = [isr for _, isr in rows[first : bisect_right(times, until_ms)]]
        return frozenset.intersection(*isrs) if isrs else frozenset()


def watermark_problems(
    samples: Iterable[ReplicaSample],
    audit: Iterable[AuditEntry],
    excused: Collection[int] = (),
) -> list[str]:
    """Say which ISR members end before a high watermark that a broker had stated earlier (I8).

    What is below a high watermark is in the log of every ISR member, also of those that
    joined later. `excused` are brokers whose disk the test replaced.
    """
    by_partition: dict[tuple[str, str, int], list[ReplicaSample]] = defaultdict(list)
    for sample in samples:
        by_partition[sample.topic, sample.topic_id, sample.partition].append(sample)
    history, found = IsrHistory(audit), []
    for (topic, _, partition), rows in by_partition.items():
        if (topic, partition) not in history.uncertain:
            found += _behind((topic, partition), rows, history, excused)
    return found


def _behind(
    name: tuple[str, int],
    rows: Sequence[ReplicaSample],
    history: IsrHistory,
    excused: Collection[int],
) -> list[str]:
    stated = sorted(rows, key=lambda row: row.ended_ms)
    times = [row.ended_ms for row in stated]
    highest: list[ReplicaSample] = []
    for row in stated:
        is_higher = not highest or row.high_watermark > highest[-1].high_watermark
        highest.append(row if is_higher else highest[-1])
    found: list[str] = []
    for row in rows:
        before = bisect_left(times, row.began_ms)
        if before == 0 or row.broker in excused:
            continue
        mark = highest[before - 1]
        if row.log_end >= mark.high_watermark:
            continue
        since_ms, until_ms = row.began_ms - MARGIN_MS, row.ended_ms + MARGIN_MS
        if row.broker in history.throughout(name, since_ms, until_ms):
            found.append(
                f"I8: broker {row.broker}, in the ISR of {name[0]}-{name[1]}, ends at "
                f"{row.log_end} after broker {mark.broker} had the high watermark "
                f"{mark.high_watermark}"
            )
    return found


def departures(audit: Iterable[AuditEntry]) -> set[ReplicaName]:
    """Return the replicas that the controller took away: by reassignment, removal or deletion."""
    past, found = PastCluster(), set()
    for number, entry in enumerate(audit):
        before = _replicas(past, entry)
        past.apply(AuditRecord(number, number, entry))
        after = _replicas(past, entry) if before else set()
        found |= before - after
    return found


def _replicas(past: PastCluster, entry: AuditEntry) -> set[ReplicaName]:
    """Return the replicas of the topic that an entry may reassign or delete."""
    after = entry.after if isinstance(entry.after, Mapping) else {}
    changes = entry.kind == REASSIGNMENT_STEP or ASSIGNMENT in after
    topic = past.topics.get(str(entry.resource.get("topic")))
    if topic is None or not (changes or entry.kind in (TOPIC_DELETED, TOPIC_DELETION_ORDERED)):
        return set()
    return {
        (broker, topic.topic_id, number)
        for number, partition in topic.partitions.items()
        for broker in partition.replicas
    }


def directory_problems(
    samples: Iterable[DirectorySample],
    topics: Mapping[str, TopicAssignment],
    audit: Iterable[AuditEntry],
    excused: Collection[int] = (),
) -> list[str]:
    """Say which replica directories vanished, or were made again, though nobody ordered it (I13).

    A directory that is set aside under another name has not vanished. `topics` is what is
    assigned at the end; what a broker is still assigned must be there.
    """
    by_broker: dict[int, list[DirectorySample]] = defaultdict(list)
    for sample in samples:
        by_broker[sample.broker].append(sample)
    ordered = departures(audit)
    assigned = {
        (broker, topic.topic_id, number)
        for topic in topics.values()
        for number, replicas in topic.partitions.items()
        for broker in replicas
    }
    found = []
    for broker, rows in by_broker.items():
        if broker in excused:
            continue
        rows.sort(key=lambda row: row.at_ms)
        for (topic_id, number), what in _changes(rows).items():
            replica = (broker, topic_id, number)
            if replica not in ordered and (replica in assigned or what != GONE):
                found.append(f"I13: broker {broker}: partition {number} of {topic_id} {what}")
    return found


def _changes(rows: Sequence[DirectorySample]) -> dict[tuple[str, int], str]:
    """Return what happened to directories from one sample to the next."""
    found: dict[tuple[str, int], str] = {}
    for before, after in pairwise(rows):
        for name, inode in before.directories.items():
            now = after.directories.get(name)
            if now is None:
                found[name] = GONE
            elif now != inode:
                found[name] = "is another directory than before"
    return found
