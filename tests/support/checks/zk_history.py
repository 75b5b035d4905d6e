"""What ZooKeeper says of a cluster, now and over time, and whether it holds together.

The audit entry of every change is in the multi that made the change, so
`/admin/audit` is the history of each partition's state node: all of it, until its
oldest entries are trimmed, which controllers have stored by then (`ZkView.completed`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from leadline_common import znodes
from leadline_common.zk.ops import Stat
from leadline_common.zk.session import ZkSession
from leadline_common.znodes import (
    AuditEntry,
    BrokerRegistration,
    ControllerRegistration,
    PartitionState,
    StateChange,
    TopicAssignment,
)
from leadline_controller.domain.history import AuditRecord
from tests.support.checks.anomalies import TopicPartition
from tests.support.checks.controller_terms import term_problems
from tests.support.services.cluster import Cluster


@dataclass(frozen=True, slots=True)
class ZkView:
    """One reading of everything that Leadline keeps in ZooKeeper.

    `written_in` and `audited_in` are the transactions that last wrote each state
    node, and that created each audit entry; `audit_begins` is the oldest entry's id.
    """

    controller: ControllerRegistration | None
    controller_epoch: int
    brokers: Mapping[int, BrokerRegistration]
    incarnations: Mapping[int, int]
    topics: Mapping[str, TopicAssignment]
    states: Mapping[TopicPartition, tuple[PartitionState, int]]
    written_in: Mapping[TopicPartition, int]
    deletions: Sequence[str]
    audit: Sequence[AuditEntry]
    audited_in: Sequence[int]
    audit_begins: int = 0

    def completed(self, stored: Sequence[AuditRecord]) -> ZkView:
        """Return the view with what was trimmed from ZooKeeper, out of what a controller stored."""
        trimmed = [record for record in stored if record.id < self.audit_begins]
        assert [record.id for record in trimmed] == list(range(self.audit_begins))
        return replace(
            self,
            audit=[*(record.entry for record in trimmed), *self.audit],
            audited_in=[*(record.zxid for record in trimmed), *self.audited_in],
            audit_begins=0,
        )

    def changes(self, topic: str, partition: int) -> list[StateChange]:
        """Return a partition's state changes in the order in which they happened.

        A topic created again begins again: only its latest life is told.
        """
        rows = [
            row
            for entry in self.audit
            for row in entry.changes
            if (row.topic, row.partition) == (topic, partition)
        ]
        births = [place for place, row in enumerate(rows) if row.before is None]
        return sorted(rows[births[-1] if births else 0 :], key=lambda row: row.state_version)

    def leaders(self, topic: str, partition: int) -> dict[int, int]:
        """Return who led in each leader epoch."""
        return {row.after[1]: row.after[0] for row in self.changes(topic, partition)}

    def problems(self) -> list[str]:
        """Say where the history breaks: I6, I11, I12, I14."""
        found = term_problems(self.audit, self.controller_epoch)
        for (topic, partition), (state, version) in self.states.items():
            where = f"{topic}-{partition}"
            assigned = self.topics[topic].partitions[partition]
            found += [f"{problem} ({where})" for problem in _state_problems(state, assigned)]
            chain = self.changes(topic, partition)
            found += [f"{problem} ({where})" for problem in _chain_problems(chain, state, version)]
            if state.controller_epoch > self.controller_epoch:
                found.append(f"I12: controller epoch {state.controller_epoch} wrote {where}")
            if self.written_in[topic, partition] not in self.audited_in:
                found.append(f"I14: the last change was not audited in its own multi ({where})")
        found += [f"I11: the deletion of {topic} is left over" for topic in self.deletions]
        for broker in self.brokers.values():
            if broker.incarnation != self.incarnations.get(broker.id):
                found.append(f"I11: broker {broker.id} is registered with an old incarnation")
        return found


def _state_problems(state: PartitionState, assigned: Sequence[int]) -> list[str]:
    found = []
    if state.leader >= 0 and state.leader not in state.isr:
        found.append(f"I11: leader {state.leader} is outside the ISR {state.isr}")
    if not set(state.isr) <= set(assigned):
        found.append(f"I11: the ISR {state.isr} is not within the assignment {assigned}")
    return found


def _chain_problems(chain: Sequence[StateChange], state: PartitionState, version: int) -> list[str]:
    found = []
    if [row.state_version for row in chain] != list(range(version + 1)):
        versions = [row.state_version for row in chain]
        found.append(f"I14: versions {versions} are audited, the node has {version}")
    before = None
    leaders: dict[int, int] = {}
    for row in chain:
        if row.before != before:
            found.append(f"I14: change {row.state_version} says it follows {row.before}: {before}")
        leader, epoch, _ = before = row.after
        if row.before and epoch < row.before[1]:
            found.append(f"I6: leader epoch {epoch} after {row.before[1]}")
        if leaders.setdefault(epoch, leader) != leader:
            found.append(f"I6: epoch {epoch} has the leaders {leaders[epoch]} and {leader}")
    if before is not None and before != (state.leader, state.leader_epoch, state.isr):
        found.append(f"I14: the node is {state}, the last audited change made it {before}")
    return found


async def read_cluster(cluster: Cluster) -> ZkView:
    """Read everything over a session of its own, as the operator."""
    async with cluster.zookeeper() as session:
        await session.sync("/")
        return await _read(session)


async def _read(session: ZkSession) -> ZkView:
    topics = {
        name: znodes.decode_topic(data)
        for name, (data, _) in (await _children(session, znodes.TOPICS)).items()
    }
    brokers = await _children(session, znodes.BROKER_IDS)
    controller = (await session.get_many([znodes.CONTROLLER]))[0]
    epochs = await session.get_children(znodes.BROKER_EPOCHS)
    counters = await session.get_many([znodes.broker_epoch_path(int(name)) for name in epochs])
    epoch_node = await session.get(znodes.CONTROLLER_EPOCH)
    audit = await _children(session, znodes.AUDIT)
    states = await _states(session, topics)
    return ZkView(
        controller=znodes.decode_controller(controller[0]) if controller else None,
        controller_epoch=int(epoch_node[0] or 0),
        brokers={int(name): znodes.decode_broker(data) for name, (data, _) in brokers.items()},
        incarnations={
            int(name): node[1].version
            for name, node in zip(epochs, counters, strict=True)
            if node is not None
        },
        topics=topics,
        states={
            key: (znodes.decode_state(data), stat.version) for key, (data, stat) in states.items()
        },
        written_in={key: stat.mzxid for key, (_, stat) in states.items()},
        deletions=await session.get_children(znodes.DELETE_TOPICS),
        audit=[znodes.decode_audit(data) for data, _ in audit.values()],
        audited_in=[stat.czxid for _, stat in audit.values()],
        audit_begins=min(map(znodes.audit_id, audit), default=0),
    )


async def _children(session: ZkSession, parent: str) -> dict[str, tuple[bytes, Stat]]:
    names = await session.get_children(parent)
    nodes = await session.get_many([f"{parent}/{name}" for name in names])
    return {name: node for name, node in zip(names, nodes, strict=True) if node is not None}


async def _states(
    session: ZkSession, topics: Mapping[str, TopicAssignment]
) -> dict[TopicPartition, tuple[bytes, Stat]]:
    keys = [(name, number) for name, topic in topics.items() for number in topic.partitions]
    nodes = await session.get_many([znodes.state_path(*key) for key in keys])
    return {key: node for key, node in zip(keys, nodes, strict=True) if node is not None}
