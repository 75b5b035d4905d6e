"""What the parts of a replica's state machine share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from leadline_broker.domain.epochs import EpochHistory
from leadline_broker.domain.isr import isr_floor
from leadline_broker.domain.rules import ALL_RULES, Rules
from leadline_client.wire import NO_LEADER
from leadline_common.rpc import PartitionRow

NO_LEADER_EPOCH = -1
NO_STATE_VERSION = -1

Order = tuple[int, int]
"""When a controller spoke: its epoch, and the sequence of its request within that."""

NOTHING_ORDERED: Order = (-1, -1)


class LogView(Protocol):
    """What the machine reads of the log. Offsets are exclusive ends but for the start."""

    @property
    def log_start_offset(self) -> int:
        """The first offset kept."""

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets."""

    @property
    def durable_end_offset(self) -> int:
        """The end up to which the log is fsynced."""

    @property
    def epochs(self) -> EpochHistory:
        """Which leader epoch wrote which offsets."""


@dataclass(frozen=True, slots=True)
class PublishedState:
    """The state node as it was read: what ZooKeeper says of the partition."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    eligible: tuple[int, ...]
    state_version: int


@dataclass(frozen=True, slots=True)
class ReplicaConfig:
    """Settings that the protocol reads. Times in milliseconds."""

    min_insync_replicas: int = 2
    replica_lag_time_max_ms: int = 30_000


@dataclass(slots=True)
class ReplicaState:
    """Identity, last grant and high watermark of one replica.

    `isr` and `eligible` are the committed ones, as published with `state_version`.
    `adding` are the assigned replicas that a reassignment brings in; `order` is
    when the controller said so. `last_proposal` numbers ISR proposals over all
    epochs, so that a late answer never passes for that of a newer proposal (rule R3).
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

    def take(self, row: PartitionRow) -> None:
        """Take over what a grant says."""
        self.leader = row.leader
        self.leader_epoch = row.leader_epoch
        self.state_version = row.state_version
        self.assigned = row.replicas
        self.isr = row.isr
        self.eligible = row.eligible
        self.adding = row.adding

    def moves(self, broker: int) -> bool:
        """Tell whether a replica is being added and is not in sync yet: it may be throttled."""
        return broker in self.adding and broker not in self.isr

    @property
    def isr_floor(self) -> int:
        """The ISR size below which nothing commits.

        Replicas that are being added do not raise it before they are in: an
        unfinished reassignment refuses no produce that was accepted before it.
        """
        settled = [broker for broker in self.assigned if broker not in self.adding]
        return isr_floor(self.config.min_insync_replicas, settled or self.assigned)
