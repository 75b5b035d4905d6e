"""The state that the parts of a replica's state machine share."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from leadline_broker.domain.effects import Acknowledge, Effect, FailAck
from leadline_broker.domain.epochs import EpochHistory
from leadline_broker.domain.rules import ALL_RULES, Rules
from leadline_client.errors import LeadershipLost
from leadline_client.wire import NO_LEADER
from leadline_common.directories import (
    FIRST_DIRECTORY_EPOCH,
    DirectoryEpochs,
    membership_epoch,
)
from leadline_common.isr import isr_floor
from leadline_common.rpc import NO_ERROR, FetchedRow, FetchRow, PartitionRow

NO_LEADER_EPOCH = -1
NO_STATE_VERSION = -1

ReplicaKey = tuple[str, int]
"""Topic id and partition, which identify a replica on its broker (rule R1)."""


class Directories(NamedTuple):
    """The id of the log directory, and those of the replicas that have their own (rule R17)."""

    directory_id: str
    of_replicas: Mapping[ReplicaKey, str]


class Addresses(NamedTuple):
    """The URLs of a broker's listeners: for clients, and for other services."""

    url: str = ""
    internal_url: str = ""


TopicIdPartition = tuple[str, str, int]
"""Topic, topic id, partition."""

Order = tuple[int, int]
"""Orders the controller's requests: controller epoch, then sequence number within it."""

NOTHING_ORDERED: Order = (-1, -1)


class LogView(Protocol):
    """The part of a log that the state machine reads. Ends are exclusive offsets."""

    @property
    def log_start_offset(self) -> int:
        """The first offset in the log."""

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record (LEO)."""

    @property
    def durable_end_offset(self) -> int:
        """The end up to which the log is fsynced."""

    @property
    def epochs(self) -> EpochHistory:
        """Which leader epoch wrote which offsets."""


@dataclass(frozen=True, slots=True)
class PublishedState:
    """A partition's state node as read from ZooKeeper."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    eligible: tuple[int, ...]
    state_version: int
    directory_epochs: DirectoryEpochs | None = None


@dataclass(frozen=True, slots=True)
class ReplicaConfig:
    """The settings that the protocol uses. Times in milliseconds."""

    min_insync_replicas: int = 2
    replica_lag_time_max_ms: int = 30_000


@dataclass(slots=True)
class ReplicaState:
    """Identity, last grant and high watermark of one replica.

    `isr`, `eligible` and `directory_epochs` are those of the state node at `state_version`.
    `directory_epoch` is that of this replica's own log directory (rule R17). `adding` are the
    assigned replicas that a reassignment adds; `order` is that of the request that last set
    them. `last_proposal` numbers ISR proposals over all epochs, so that a late result is
    never taken for the result of a newer proposal (rule R3).
    """

    broker_id: int
    topic_id: str
    partition: int
    log: LogView
    config: ReplicaConfig
    rules: Rules = ALL_RULES
    high_watermark: int = 0
    leader: int = NO_LEADER
    leader_epoch: int = NO_LEADER_EPOCH
    state_version: int = NO_STATE_VERSION
    assigned: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    eligible: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    order: Order = NOTHING_ORDERED
    last_proposal: int = 0
    directory_epoch: int = FIRST_DIRECTORY_EPOCH
    directory_epochs: DirectoryEpochs | None = None

    def take(self, row: PartitionRow) -> None:
        """Copy leader, epoch, assignment and ISR from a grant."""
        self.leader = row.leader
        self.leader_epoch = row.leader_epoch
        self.state_version = row.state_version
        self.assigned = row.replicas
        self.isr = row.isr
        self.eligible = row.eligible
        self.directory_epochs = row.directory_epochs
        self.adding = row.adding

    def answer(
        self,
        row: FetchRow,
        *,
        error_code: int = NO_ERROR,
        diverging_epoch: int = -1,
        diverging_end: int = -1,
    ) -> FetchedRow:
        """Return a response without records to a follower's row."""
        return FetchedRow(
            partition=row.partition,
            leader_epoch=row.leader_epoch,
            fetch_offset=row.fetch_offset,
            last_epoch=row.last_epoch,
            error_code=error_code,
            high_watermark=self.high_watermark,
            log_start_offset=self.log.log_start_offset,
            diverging_epoch=diverging_epoch,
            diverging_end=diverging_end,
        )

    def is_out_of_range(self, row: FetchRow, divergence: tuple[int, int] | None) -> bool:
        """Return whether a follower has to begin again at this log's start.

        So it has if retention has removed all here that its log could agree with. If it truncated
        there, it would remove its whole log, and could lead then with an end below the committed.
        """
        start, end = self.log.log_start_offset, self.log.log_end_offset
        if divergence is None:
            return not start <= row.fetch_offset <= end
        return row.fetch_offset < start or (divergence[0] == NO_LEADER_EPOCH and start > 0)

    def may_lead(self, row: PartitionRow) -> bool:
        """Return whether a grant to lead is meant for this replica's log directory (rule R17)."""
        return membership_epoch(row.directory_epochs, self.broker_id) == self.directory_epoch

    def moves(self, broker: int) -> bool:
        """Return whether a replica is being added and not yet in sync: it may be throttled."""
        return broker in self.adding and broker not in self.isr

    @property
    def isr_floor(self) -> int:
        """The ISR size below which nothing commits."""
        return isr_floor(self.config.min_insync_replicas, self.assigned, self.adding)


class ParkedAcks:
    """The produces of one replica that wait to be committed, kept across changes of role.

    Each is an (end offset, token) pair. They are in offset order, except for duplicates of
    earlier batches, which may have lower offsets.
    """

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        # A deque takes 0.6 KB, and of a broker's many replicas few are ever produced to.
        self._waiting: deque[tuple[int, int]] | None = None

    def __len__(self) -> int:
        return len(self._waiting or ())

    def add(self, end_offset: int, token: int) -> None:
        """Let a produce wait until every record below `end_offset` is committed."""
        if self._waiting is None:
            self._waiting = deque()
        self._waiting.append((end_offset, token))

    def remove(self, token: int) -> None:
        """Remove a produce whose caller no longer waits."""
        self._waiting = deque(item for item in self._waiting or () if item[1] != token)

    def acknowledge_up_to(self, high_watermark: int) -> list[Effect]:
        """Acknowledge the produces whose records are committed."""
        acknowledged: list[Effect] = []
        while self._waiting and self._waiting[0][0] <= high_watermark:
            acknowledged.append(Acknowledge(self._waiting.popleft()[1]))
        return acknowledged

    def fail_beyond(self, end_offset: int) -> list[Effect]:
        """Fail the produces whose records are past `end_offset`, the new log end."""
        if not self._waiting:
            return []
        error = LeadershipLost("leadership moved before the records were committed")
        failed: list[Effect] = [
            FailAck(token, error) for end, token in self._waiting if end > end_offset
        ]
        self._waiting = deque(item for item in self._waiting if item[0] <= end_offset)
        return failed
