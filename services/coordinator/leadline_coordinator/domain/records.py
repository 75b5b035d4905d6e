"""What ZooKeeper and brokers hold of groups, topics and logs, as the decisions use it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from leadline_client.channel import Assignor, Protocol
from leadline_client.wire import TopicPartition
from leadline_common.group_polls import OffsetReset


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic's id and its number of partitions.

    `first_epochs` has the first leader epoch of partitions that were removed and added again.
    """

    topic_id: str
    partitions: int
    first_epochs: Mapping[int, int] = field(default_factory=dict)

    def left_of(self, before: TopicState) -> int:
        """Return how many partitions are still those of `before`; the removed ones are the last.

        One that was added again is another one, also if nobody has seen the topic without it.
        """
        if self.topic_id != before.topic_id:
            return 0
        known, now = before.first_epochs, self.first_epochs
        again = [number for number, epoch in now.items() if epoch != known.get(number)]
        return min(self.partitions, *again) if again else self.partitions


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """What a member asked for when it joined: topics, a pattern of topic names, or both.

    It reads a topic with as many threads as `topic_threads` says, or else with `threads`. A member
    that polls over HTTP instead of a channel has a `session_timeout_ms`, and begins at
    `offset_reset` where nothing is committed.
    """

    client_id: str = ""
    instance_id: str | None = None
    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    threads: int = 1
    topic_threads: tuple[tuple[str, int], ...] = ()
    session_timeout_ms: int | None = None
    offset_reset: OffsetReset = "earliest"

    @property
    def thread_count(self) -> int:
        """The number of threads that the member reads with."""
        counts = [count for _, count in self.topic_threads]
        is_default_used = self.pattern is not None or len(counts) < len(self.topics or ())
        return max([*counts, self.threads] if is_default_used else counts, default=self.threads)


@dataclass(frozen=True, slots=True)
class MemberCredentials:
    """SHA-256 of the secrets of a member and of its instance, in hex; "" where there is none.

    Nobody can prove to be a member without a hash, which an earlier release recorded.
    """

    secret_hash: str = ""
    instance_hash: str = ""


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """The offset of the next record to read; `time_ms` is when it was committed, in Unix ms.

    It is valid only for the topic with the id `topic_id`; empty means that the id is unknown.
    `first_epoch` is the first leader epoch of its partition, if it has none itself; None means that
    it is unknown, as of an offset that an earlier release committed.
    """

    offset: int
    time_ms: int
    leader_epoch: int | None = None
    metadata: str = ""
    topic_id: str = ""
    first_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class Ends:
    """The readable range [start, end) of a partition's log.

    `found` is the first offset at or after the timestamp asked for, None if there is none.
    """

    start: int
    end: int
    found: int | None = None


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """Everything recorded about a group except its offsets; `empty_since_ms` in Unix ms."""

    name: str
    assignor: Assignor
    protocol: Protocol
    generation: int
    members: Mapping[str, MemberSubscription] = field(default_factory=dict)
    owners: Mapping[TopicPartition, str] = field(default_factory=dict)
    empty_since_ms: int | None = None
    credentials: Mapping[str, MemberCredentials] = field(default_factory=dict)
    """Of each member; one that is not listed has none."""


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """A group read from ZooKeeper: its record, and its offsets."""

    record: GroupRecord
    offsets: Mapping[TopicPartition, CommittedOffset]
