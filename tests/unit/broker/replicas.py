"""A replica over a log in memory, for tests of the protocol."""

from __future__ import annotations

from collections.abc import Iterable

from leadline_broker.domain.effects import (
    Acknowledge,
    Effect,
    FailAck,
    IsrProposal,
    ReadState,
    WriteIsr,
)
from leadline_broker.domain.epochs import EpochHistory
from leadline_broker.domain.leadership import PartitionLeadership
from leadline_broker.domain.replica import Replica
from leadline_broker.domain.rules import ALL_RULES, Rules
from leadline_broker.domain.state import ReplicaConfig
from leadline_common.directories import DirectoryEpochs
from leadline_common.rpc import FetchedRow, FetchRow, PartitionRow

ME = 1
AR = (1, 2, 3)
LAG_MS = 1000


class MemoryLog:
    """Records as leader epochs; durable at once unless `durable_end_offset` is set back."""

    log_start_offset = 0

    def __init__(self, epochs: Iterable[int] = ()) -> None:
        self.records: list[int] = []
        self.epochs = EpochHistory()
        self.durable_end_offset = 0
        self.append(epochs)

    @property
    def log_end_offset(self) -> int:
        return len(self.records)

    def append(self, epochs: Iterable[int], *, durable: bool = True) -> None:
        for epoch in epochs:
            self.epochs.assign(epoch, len(self.records))
            self.records.append(epoch)
        if durable:
            self.durable_end_offset = len(self.records)

    def truncate(self, end_offset: int) -> None:
        del self.records[end_offset:]
        self.epochs.truncate_to(end_offset)
        self.durable_end_offset = min(self.durable_end_offset, end_offset)


def row(
    leader: int,
    epoch: int,
    isr: tuple[int, ...] = AR,
    *,
    version: int = 0,
    replicas: tuple[int, ...] = AR,
    eligible: tuple[int, ...] = (),
    directory_epochs: DirectoryEpochs | None = None,
) -> PartitionRow:
    return PartitionRow(
        0,
        leader,
        epoch,
        isr,
        replicas,
        version,
        eligible,
        directory_epochs=directory_epochs,
    )


def replica(
    epochs: Iterable[int] = (),
    *,
    me: int = ME,
    high_watermark: int = 0,
    rules: Rules = ALL_RULES,
    min_insync: int = 2,
) -> tuple[Replica, MemoryLog]:
    log = MemoryLog(epochs)
    made = Replica(
        broker_id=me,
        topic_id="topic",
        partition=0,
        log=log,
        high_watermark=high_watermark,
        config=ReplicaConfig(min_insync, LAG_MS),
        rules=rules,
    )
    return made, log


def leader(
    epochs: Iterable[int] = (),
    *,
    epoch: int = 5,
    isr: tuple[int, ...] = AR,
    replicas: tuple[int, ...] = AR,
    version: int = 0,
    high_watermark: int = 0,
    rules: Rules = ALL_RULES,
    min_insync: int = 2,
    eligible: tuple[int, ...] = (),
) -> tuple[Replica, MemoryLog]:
    made, log = replica(epochs, high_watermark=high_watermark, rules=rules, min_insync=min_insync)
    grant = row(ME, epoch, isr, version=version, replicas=replicas, eligible=eligible)
    code, _ = made.on_leader_and_isr(grant, 0)
    assert code == 0
    return made, log


def leadership(made: Replica) -> PartitionLeadership:
    assert made.leadership is not None
    return made.leadership


class Follower:
    """A follower as the leader sees it: it fetches with rising nonces."""

    def __init__(self, made: Replica, broker: int, incarnation: int = 0) -> None:
        self.replica = made
        self.broker = broker
        self.incarnation = incarnation
        self.nonce = 0

    def fetch(
        self,
        offset: int,
        last_epoch: int = -1,
        *,
        epoch: int = 5,
        now: int = 0,
        leaving: bool = False,
        directory: int = 1,
    ) -> tuple[FetchedRow, list[Effect]]:
        self.nonce += 1
        return self.replica.on_replica_fetch(
            FetchRow(0, epoch, offset, last_epoch, directory),
            broker_id=self.broker,
            incarnation=self.incarnation,
            nonce=self.nonce,
            now=now,
            leaving=leaving,
        )


def proposals(effects: list[Effect]) -> list[IsrProposal]:
    return [effect.proposal for effect in effects if isinstance(effect, WriteIsr)]


def the_proposal(effects: list[Effect]) -> IsrProposal:
    assert len(proposals(effects)) == 1
    return proposals(effects)[0]


def acknowledged(effects: list[Effect]) -> list[int]:
    return [effect.token for effect in effects if isinstance(effect, Acknowledge)]


def failed(effects: list[Effect]) -> list[int]:
    return [effect.token for effect in effects if isinstance(effect, FailAck)]


def reads(effects: list[Effect]) -> int:
    return sum(isinstance(effect, ReadState) for effect in effects)
