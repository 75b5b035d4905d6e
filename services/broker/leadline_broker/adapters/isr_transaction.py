"""The ZooKeeper transaction that writes ISR changes (rules R1, R6, R7, R13)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from leadline_broker.domain.effects import IsrProposal
from leadline_broker.domain.leadership import IsrWriteResult
from leadline_broker.domain.state import TopicIdPartition
from leadline_common import znodes
from leadline_common.audit_outbox import audit_op
from leadline_common.zk.ops import ANY_VERSION, CheckOp, Op, OpResult, SetOp, Stat
from leadline_common.znodes import AuditEntry, PartitionState, StateChange, TopicAssignment

CHANGES_AT_ONCE: Final = 100


class TopicNode(NamedTuple):
    """A topic's node as read: its value and data version."""

    assignment: TopicAssignment
    version: int


class PartitionNodes(NamedTuple):
    """The nodes of a partition as read: topic node, state, and the state node's version."""

    topic: TopicNode
    state: PartitionState
    version: int


class IsrChange(NamedTuple):
    """An ISR proposal of this leader, and the nodes that it is based on."""

    partition: TopicIdPartition
    proposal: IsrProposal
    nodes: PartitionNodes

    def fits(self, broker_id: int) -> bool:
        """Return whether the nodes are still those on which the leader bases its proposal."""
        assignment, state = self.nodes.topic.assignment, self.nodes.state
        _, topic_id, number = self.partition
        assigned = assignment.partitions.get(number, ())
        return (
            assignment.topic_id == topic_id
            and all(joiner in assigned for joiner, _ in self.proposal.joiners)
            and self.nodes.version == self.proposal.state_version
            and state.leader == broker_id
            and state.leader_epoch == self.proposal.leader_epoch
        )

    def state(self) -> PartitionState:
        """Return the state that the proposal asks for."""
        return msgspec.structs.replace(
            self.nodes.state,
            isr=self.proposal.isr,
            eligible=self.proposal.eligible,
            directory_epochs=self.proposal.directory_epochs,
        )

    def audited(self) -> StateChange:
        """Return the row of the audit entry."""
        topic, _, number = self.partition
        before = self.nodes.state
        return StateChange(
            topic=topic,
            partition=number,
            reason=self.proposal.reason,
            before=(before.leader, before.leader_epoch, before.isr),
            after=(before.leader, before.leader_epoch, self.proposal.isr),
            state_version=self.nodes.version + 1,
        )


def in_parts(changes: Sequence[tuple[int, IsrChange]]) -> Iterator[dict[int, IsrChange]]:
    """Divide numbered changes into transactions; ZooKeeper takes requests of up to 1 MB.

    A state with fields that this release does not know may be of any size, and is alone.
    """
    plain = [(number, change) for number, change in changes if not change.nodes.state.extra]
    for start in range(0, len(plain), CHANGES_AT_ONCE):
        yield dict(plain[start : start + CHANGES_AT_ONCE])
    for number, change in changes:
        if change.nodes.state.extra:
            yield {number: change}


class IsrTransaction:
    """Some ISR changes as ZooKeeper operations, and the meaning of each operation's failure.

    Either all are written or none. It succeeds only while this broker leads the partitions in
    the proposals' epochs and in its current incarnation, and while the joiners are assigned
    (rule R13) and registered in the incarnations that the leader has counted. It does not check
    the controller epoch: leaders may write during a controller failover.
    """

    def __init__(self, broker_id: int, incarnation: int, changes: Sequence[IsrChange]) -> None:
        self._broker_id = broker_id
        self._incarnation = incarnation
        self._changes = changes
        self._checks: dict[CheckOp, list[int]] = {}
        self._of_joiners: set[CheckOp] = set()
        for number, change in enumerate(changes):
            self._add_checks(number, change)

    def _add_checks(self, number: int, change: IsrChange) -> None:
        """Note on what a change depends; changes share the checks that they have in common."""
        topic, own = znodes.topic_path(change.partition[0]), self._broker_id
        checks = [
            CheckOp(topic, change.nodes.topic.version),
            CheckOp(znodes.broker_epoch_path(own), self._incarnation),
        ]
        for joiner, incarnation in change.proposal.joiners:
            of_joiner = (
                CheckOp(znodes.broker_epoch_path(joiner), incarnation),
                CheckOp(znodes.broker_id_path(joiner), ANY_VERSION),
            )
            checks += of_joiner
            self._of_joiners.update(of_joiner)
        for check in checks:
            self._checks.setdefault(check, []).append(number)

    def operations(self, now_ms: int) -> list[Op]:
        """Return the operations; `now_ms` is Unix time, for the audit entry."""
        sets = [
            SetOp(
                znodes.state_path(change.partition[0], change.partition[2]),
                znodes.encode_state(change.state()),
                change.nodes.version,
            )
            for change in self._changes
        ]
        return [*self._checks, *sets, audit_op(self._audit(now_ms))]

    def _audit(self, now_ms: int) -> AuditEntry:
        first = self._changes[0].proposal
        reasons = dict.fromkeys(change.proposal.reason for change in self._changes)
        return AuditEntry(
            time=now_ms,
            cause=f"isr-{self._broker_id}-{self._incarnation}-{first.number}",
            actor=f"broker {self._broker_id}",
            kind="isr_change",
            reason="; ".join(reasons),
            changes=tuple(change.audited() for change in self._changes),
        )

    def refusal(self, index: int) -> dict[int, IsrWriteResult]:
        """Return which changes fail with the operation at `index`, by number, and how.

        The others were not written either, but may be if they are written without these.
        """
        checks = list(self._checks)
        if index < len(checks):
            is_joiner = checks[index] in self._of_joiners
            result = IsrWriteResult.JOINER_REFUSED if is_joiner else IsrWriteResult.CONFLICT
            return dict.fromkeys(self._checks[checks[index]], result)
        number = index - len(checks)
        failed = [number] if number < len(self._changes) else range(len(self._changes))
        return dict.fromkeys(failed, IsrWriteResult.CONFLICT)

    def new_versions(self, results: Sequence[OpResult]) -> list[int]:
        """Return the versions of the state nodes after the transaction, by number of the change."""
        first = len(self._checks)
        written = results[first : first + len(self._changes)]
        return [one.version for one in written if isinstance(one, Stat)]
