"""The roles that this broker was granted and has not taken, with the reasons.

A replica takes a role at a leader epoch by applying its grant (`Partition.applied_epoch`). A grant
that is refused leaves a mark here until the role, or a later one, is taken or given up. The broker
is not ready meanwhile, and its heartbeats report the marks (rule R8).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Final

from leadline_broker.domain.state import ReplicaKey
from leadline_client.wire import TopicPartition
from leadline_common.rpc import LateRow

_MOST_ROWS: Final = 1_000


@dataclass(frozen=True, slots=True)
class LateRole:
    """A granted role that is not taken; `since_ms` is when it was first refused (monotonic)."""

    topic_partition: TopicPartition
    topic_id: str
    leader_epoch: int
    reason: str
    since_ms: int

    @property
    def key(self) -> ReplicaKey:
        """Topic id and partition."""
        return self.topic_id, self.topic_partition.partition


@dataclass(eq=False)
class LateRoles:
    """The late roles of this broker. Owned by the event loop."""

    _late: dict[ReplicaKey, LateRole] = field(default_factory=dict, init=False)

    def __len__(self) -> int:
        return len(self._late)

    def oldest_first(self) -> list[LateRole]:
        """Return all, the longest refused first."""
        return sorted(self._late.values(), key=lambda late: late.since_ms)

    def rows(self, taken: Callable[[ReplicaKey], int]) -> list[LateRow]:
        """Return the oldest for a heartbeat; with more, the controller sends full grants instead.

        `taken` returns the leader epoch of the role that a replica has.
        """
        return [
            LateRow(late.topic_partition.topic, late.topic_id, late.key[1], taken(late.key))
            for late in self.oldest_first()[:_MOST_ROWS]
        ]

    def refused(self, late: LateRole) -> None:
        """Mark a role; a later grant of the partition does not make it younger."""
        known = self._late.get(late.key)
        if known is not None:
            late = replace(late, since_ms=known.since_ms)
        self._late[late.key] = late

    def forget(self, key: ReplicaKey) -> None:
        """Remove a mark, because the role is taken or was given up."""
        self._late.pop(key, None)

    def keep_only(self, granted: Collection[ReplicaKey]) -> None:
        """Remove the marks of all replicas that a full grant does not name."""
        for key in self._late.keys() - set(granted):
            del self._late[key]

    def problems(self) -> list[str]:
        """Return why the broker is not ready: how many roles are late, and the oldest."""
        if not self._late:
            return []
        oldest = self.oldest_first()[0]
        topic, partition = oldest.topic_partition
        problem = (
            f"granted roles not taken: {len(self)}, first {topic}-{partition} at leader epoch "
            f"{oldest.leader_epoch}: {oldest.reason}"
        )
        return [problem]
