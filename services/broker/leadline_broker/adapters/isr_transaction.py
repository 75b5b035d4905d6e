"""The ZooKeeper transaction that writes one ISR change (rules R1, R6, R7, R13)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from leadline_broker.domain.effects import IsrProposal
from leadline_broker.domain.leadership import IsrWriteResult
from leadline_broker.domain.state import TopicIdPartition
from leadline_common import znodes
from leadline_common.audit_outbox import audit_op
from leadline_common.zk.ops import ANY_VERSION, CheckOp, Op, OpResult, SetOp, Stat
from leadline_common.znodes import AuditEntry, PartitionState, StateChange, TopicAssignment


class TopicNode(NamedTuple):
    """A topic's node as read: its value and data version."""

    assignment: TopicAssignment
    version: int


class PartitionNodes(NamedTuple):
    """The nodes of a partition as read: topic node, state, and the state node's version."""

    topic: TopicNode
    state: PartitionState
    version: int


class IsrTransaction:
    """One ISR proposal as ZooKeeper operations, and the meaning of each operation's failure.

    It succeeds only while this broker leads the partition in the proposal's epoch and in its
    current incarnation, and while the joiners are assigned (rule R13) and registered in the
    incarnations that the leader has counted. It does not check the controller epoch: leaders
    may write during a controller failover.
    """

    def __init__(
        self, broker_id: int, incarnation: int, partition: TopicIdPartition, proposal: IsrProposal
    ) -> None:
        self._broker_id = broker_id
        self._incarnation = incarnation
        self._topic, self._topic_id, self._partition = partition
        self._proposal = proposal
        self._joiner_ops: range = range(0)
        self._state_op = 0

    def fits(self, nodes: PartitionNodes) -> bool:
        """Return whether the nodes are still those on which the proposal is based."""
        assignment, state = nodes.topic.assignment, nodes.state
        assigned = assignment.partitions.get(self._partition, ())
        return (
            assignment.topic_id == self._topic_id
            and all(joiner in assigned for joiner, _ in self._proposal.joiners)
            and nodes.version == self._proposal.state_version
            and state.leader == self._broker_id
            and state.leader_epoch == self._proposal.leader_epoch
        )

    def operations(self, nodes: PartitionNodes, now_ms: int) -> list[Op]:
        """Return the operations; `now_ms` is Unix time, for the audit entry."""
        before = nodes.state
        after = msgspec.structs.replace(
            before,
            isr=self._proposal.isr,
            eligible=self._proposal.eligible,
            directory_epochs=self._proposal.directory_epochs,
        )
        ops: list[Op] = [
            CheckOp(znodes.topic_path(self._topic), nodes.topic.version),
            CheckOp(znodes.broker_epoch_path(self._broker_id), self._incarnation),
        ]
        first_joiner = len(ops)
        for joiner, incarnation in self._proposal.joiners:
            ops.append(CheckOp(znodes.broker_epoch_path(joiner), incarnation))
            ops.append(CheckOp(znodes.broker_id_path(joiner), ANY_VERSION))
        self._joiner_ops = range(first_joiner, len(ops))
        self._state_op = len(ops)
        path = znodes.state_path(self._topic, self._partition)
        ops.append(SetOp(path, znodes.encode_state(after), nodes.version))
        entry = self._audit(before, after, nodes.version + 1, now_ms)
        ops.append(audit_op(entry))
        return ops

    def _audit(
        self, before: PartitionState, after: PartitionState, new_version: int, now_ms: int
    ) -> AuditEntry:
        change = StateChange(
            topic=self._topic,
            partition=self._partition,
            reason=self._proposal.reason,
            before=(before.leader, before.leader_epoch, before.isr),
            after=(after.leader, after.leader_epoch, after.isr),
            state_version=new_version,
        )
        return AuditEntry(
            time=now_ms,
            cause=f"isr-{self._broker_id}-{self._incarnation}-{self._proposal.number}",
            actor=f"broker {self._broker_id}",
            kind="isr_change",
            reason=self._proposal.reason,
            changes=(change,),
        )

    def refusal(self, index: int) -> IsrWriteResult:
        """Return the write result that follows from the failure of the operation at `index`."""
        joiner = index in self._joiner_ops
        return IsrWriteResult.JOINER_REFUSED if joiner else IsrWriteResult.CONFLICT

    def new_version(self, results: Sequence[OpResult]) -> int:
        """Return the state node's version after the transaction."""
        written = results[self._state_op]
        if not isinstance(written, Stat):
            raise TypeError("a set answers with a Stat")
        return written.version
