"""Unclean elections that operators ask for, and what they may lose.

A replica from outside the ISR leads with the log that it has: acknowledged records that this lacks
are lost. What it has stays, nothing else comes back, and readers are told where the log differs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from leadline_client.errors import CorruptBatch
from leadline_client.wire import TopicPartition
from leadline_common.znodes import PartitionState
from tests.runtime_simulation.services import BrokerService
from tests.runtime_simulation.topics import STATE, Topics
from tests.runtime_simulation.workload import Producer, Writer
from tests.runtime_simulation.zookeeper_tree import Change
from tests.support.checks.history import History
from tests.support.checks.replica_files import Replica, read_replica

ELECTED: Final = "a replica from outside the ISR was elected"
LOST: Final = "an unclean election lost acknowledged records"


@dataclass(frozen=True, slots=True)
class UncleanElection:
    """The leader of an epoch was not in sync; `name` is the history's of the partition.

    `log` has the values of its log by their offsets. The first `durable` offsets are synced.
    """

    name: str
    partition: int
    leader_epoch: int
    log_start: int
    durable: int
    log: Mapping[int, str]

    def has(self, offset: int, value: str) -> bool:
        """Tell whether a record that was acknowledged before is certain to stay."""
        if offset < self.log_start:
            return True  # Retention had removed it.
        return offset < self.durable and self.log.get(offset) == value


@dataclass(eq=False)
class UncleanElections:
    """Notes the unclean elections of partitions for which operators have asked for one."""

    topics: Topics
    brokers: Mapping[int, BrokerService]
    asked: set[TopicPartition] = field(default_factory=set, init=False)
    ever: list[UncleanElection] = field(default_factory=list, init=False)
    _states: dict[str, PartitionState] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.topics.zookeeper.on_commit.append(self._look)

    def count(self, name: str, partition: int) -> int:
        """Return how many there were of an incarnation of a partition."""
        return sum((one.name, one.partition) == (name, partition) for one in self.ever)

    def forgive(self, history: History, producers: list[Writer]) -> None:
        """Let acknowledged records be lost that leaders from outside the ISR did not have."""
        for producer in producers:
            if not isinstance(producer, Producer):
                continue
            for row in producer.placed:
                if self._may_be_lost(producer.partition, *row):
                    history.give_up(row[1])
                    self.topics.world.sometimes[LOST] += 1

    def _may_be_lost(
        self, partition: int, name: str, value: str, offset: int, leader_epoch: int
    ) -> bool:
        return any(
            (one.name, one.partition) == (name, partition)
            and one.leader_epoch > leader_epoch
            and not one.has(offset, value)
            for one in self.ever
        )

    def returned(self, name: str, replica: Replica) -> list[str]:
        """Say which records of a replica are of an earlier epoch, and were lost since."""
        found = []
        for one in self.ever:
            if (one.name, one.partition) != (name, replica.partition):
                continue
            for offset, (epoch, value) in replica.records().items():
                earlier = epoch < one.leader_epoch and one.log_start <= offset
                if earlier and one.log.get(offset) != value:
                    found.append(
                        f"{replica.broker} has {value} of epoch {epoch} at {offset} of {name}"
                        f"-{replica.partition}, which was lost in epoch {one.leader_epoch}"
                    )
        return found

    def _look(self, changes: list[Change]) -> bool:
        """Note unclean elections; a function of `on_commit`."""
        for change in changes:
            found = STATE.fullmatch(change.path)
            if found is None:
                continue
            before = self._states.pop(change.path, None)
            after = self.topics.state(TopicPartition(found[1], int(found[2])))
            if after is None:
                continue
            self._states[change.path] = after
            if before is not None and not change.created and is_unclean(before, after):
                self._note(TopicPartition(found[1], int(found[2])), after)
        return False

    def _note(self, partition: TopicPartition, state: PartitionState) -> None:
        if partition not in self.asked:
            return
        self.topics.world.reached(ELECTED)
        leader = self.brokers[state.leader]
        replica = _stored(leader, partition)
        self.ever.append(
            UncleanElection(
                self.topics.name_now(partition),
                partition.partition,
                state.leader_epoch,
                replica.log_start_offset,
                leader.durable_end_offset(*partition),
                {offset: value for offset, (_, value) in replica.records().items()},
            )
        )


def _stored(broker: BrokerService, partition: TopicPartition) -> Replica:
    """Return what the files of a broker hold; nothing if they hold a part of a batch."""
    try:
        return read_replica(broker.name, broker.disk.root, *partition)
    except CorruptBatch:
        return Replica(broker.name, *partition, ())


def is_unclean(before: PartitionState, after: PartitionState) -> bool:
    """Tell whether the leader of a new epoch may lack what was committed."""
    elected = after.leader >= 0 and after.leader_epoch > before.leader_epoch
    return elected and after.leader not in {*before.isr, *before.eligible}
