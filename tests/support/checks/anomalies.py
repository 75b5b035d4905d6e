"""The kinds of anomalies that a history of sends, polls, commits and ends can show.

They are those of Jepsen's checker for Kafka-like queues, as far as there are no
transactions: without them there is no precommitted read and no cycle among
transactions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field
from enum import StrEnum

TopicPartition = tuple[str, int]


class AnomalyKind(StrEnum):
    """What is wrong."""

    LOST = "lost"
    """Acknowledged, but not in a final read, or not in the files of a replica."""
    UNSEEN = "unseen"
    """Acknowledged, but never delivered to a consumer that read to the end."""
    MISPLACED = "misplaced"
    """Acknowledged at another offset, or in another partition, than it is read at."""
    DUPLICATE = "duplicate"
    """One value at two offsets."""
    ABORTED_READ = "aborted read"
    """Refused for certain, and read all the same."""
    UNSENT = "unsent"
    """Read, but not sent before."""
    INCONSISTENT_OFFSETS = "inconsistent offsets"
    """Two values at one offset, in two reads or replicas."""
    NONMONOTONIC_SEND = "nonmonotonic send"
    """A producer's later send stands before an earlier one, though that was answered first."""
    INTERNAL_NONMONOTONIC_SEND = "internal nonmonotonic send"
    """The values of one send stand in another order than they were sent in."""
    NONMONOTONIC_POLL = "nonmonotonic poll"
    """A poll repeats an offset, or goes back, relative to the same consumer's poll before."""
    INTERNAL_NONMONOTONIC_POLL = "internal nonmonotonic poll"
    """Offsets do not rise within one poll."""
    POLL_SKIP = "poll skip"
    """A poll begins after records that come after the same consumer's poll before."""
    INTERNAL_POLL_SKIP = "internal poll skip"
    """One poll leaves out records between two that it has."""
    COMMIT_BEYOND_DELIVERED = "commit beyond delivered"
    """An offset was committed that no member of the group had been delivered up to (I10)."""
    COMMIT_MOVED_BACK = "commit moved back"
    """A committed offset became lower without a reset (I10)."""
    TWO_OWNERS = "two owners"
    """Two members were assigned one partition in one generation (I10)."""
    LATEST_OFFSET_FELL = "latest offset fell"
    """An advertised latest offset was lower than one that was advertised before (I8)."""


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One thing that is wrong, where, and when.

    `at_s` is on the clock of the history: when the record was acknowledged, polled or
    committed; None if the history has no time for it. `who` is the producer, consumer,
    replica or group that shows it.
    """

    kind: AnomalyKind
    partition: TopicPartition
    value: Hashable
    detail: str
    at_s: float | None = field(default=None, compare=False)
    who: str = field(default="", compare=False)

    def __str__(self) -> str:
        topic, number = self.partition
        return f"{self.kind} in {topic}-{number}: {self.value!r}, {self.detail}"


@dataclass(slots=True)
class Anomalies:
    """Collects anomalies: of each kind at most `limit`, so that a broken run fits into memory."""

    limit: int = 10_000
    found: list[Anomaly] = field(default_factory=list)
    counts: Counter[AnomalyKind] = field(default_factory=Counter)

    def add(
        self,
        kind: AnomalyKind,
        partition: TopicPartition,
        value: Hashable,
        detail: str,
        *,
        at_s: float | None = None,
        who: str = "",
    ) -> None:
        """Add one, unless there are enough of its kind: then it is only counted."""
        self.counts[kind] += 1
        if self.counts[kind] <= self.limit:
            self.found.append(Anomaly(kind, partition, value, detail, at_s, who))

    def all(self) -> list[Anomaly]:
        """Return what was found, with one more for each kind of which there were too many."""
        surplus = [
            Anomaly(kind, ("...", 0), count - self.limit, "more of this kind are not listed")
            for kind, count in self.counts.items()
            if count > self.limit
        ]
        return [*self.found, *surplus]
