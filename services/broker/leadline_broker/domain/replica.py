"""One replica of one partition: the protocol that keeps acknowledged records safe.

A sans-IO state machine (Replication V3, sections C and G, with rules R1-R7, R9 and R14).
Events come in through methods; effects go out as values, which the shell executes in
order. The shell is the broker's runtime, or the simulator. It owns the log: the machine
reads the log's ends through `LogView` and changes it by effects only.

    FENCED ---- grant ----> LEADER <--- newer grant ---> FOLLOWER
      ^                       |
      '----- step down -------'

A replica starts FENCED and takes a role only from a grant (a LeaderAndISR row) with a newer
leader epoch. A replica that was fenced within an epoch may follow in that epoch, but never
leads in it again.
"""

from __future__ import annotations

from enum import Enum

from leadline_broker.domain.effects import (
    Effect,
    Flush,
    HighWatermarkAdvanced,
    ResetLog,
    StartFetching,
    StopFetching,
    Truncate,
)
from leadline_broker.domain.following import Following
from leadline_broker.domain.leadership import IsrWriteResult, PartitionLeadership
from leadline_broker.domain.rules import ALL_RULES, Rules
from leadline_broker.domain.state import (
    NO_STATE_VERSION,
    LogView,
    Order,
    ParkedAcks,
    PublishedState,
    ReplicaConfig,
    ReplicaState,
)
from leadline_client.errors import (
    FencedLeaderEpoch,
    InvalidRequest,
    NotLeader,
    StorageFailed,
    UnknownLeaderEpoch,
)
from leadline_client.wire import NO_LEADER
from leadline_common.rpc import NO_ERROR, FetchedRow, FetchRow, PartitionRow


class Role(Enum):
    """The current role of a replica."""

    FENCED = "fenced"
    FOLLOWER = "follower"
    LEADER = "leader"


class Replica:
    """The state machine of one replica; `state` is for reading.

    Invariants: the leader epoch never falls; the high watermark never falls
    within a leader epoch and never passes the log end; `leadership` is set
    exactly while the role is LEADER.
    """

    __slots__ = ("_following", "_parked", "leadership", "role", "state")

    def __init__(
        self,
        *,
        broker_id: int,
        topic_id: str,
        partition: int,
        log: LogView,
        high_watermark: int = 0,
        config: ReplicaConfig | None = None,
        rules: Rules = ALL_RULES,
    ) -> None:
        """Start fenced; `high_watermark` comes from the checkpoint."""
        self.state = ReplicaState(
            broker_id=broker_id,
            topic_id=topic_id,
            partition=partition,
            log=log,
            config=config or ReplicaConfig(),
            rules=rules,
            high_watermark=max(log.log_start_offset, min(high_watermark, log.log_end_offset)),
        )
        self.role = Role.FENCED
        self.leadership: PartitionLeadership | None = None
        self._following: Following | None = None
        self._parked = ParkedAcks()

    def on_leader_and_isr(
        self, row: PartitionRow, now: int, order: Order = (0, 0)
    ) -> tuple[int, list[Effect]]:
        """Take the role that the controller grants (Replication V3, section C).

        Returns the partition's error code and effects. A repeated grant succeeds without
        effects. An older one is refused, and so is one to lead again in an epoch in which
        this replica has stepped down: its ISR proposals may still arrive. A grant to lead
        with another log directory is refused too: this one lacks the records (rule R17). Within
        an epoch the assignment may change; `order` then tells a newer row from a delayed one.
        """
        refusal = self._refusal(row)
        if refusal != NO_ERROR:
            return refusal, []
        leads = row.leader == self.state.broker_id
        overtaken, self.state.order = order < self.state.order, max(order, self.state.order)
        if row.leader_epoch == self.state.leader_epoch:
            if self.role is not Role.FENCED:
                return NO_ERROR, [] if overtaken else self._refresh(row, now)
            if leads:
                return FencedLeaderEpoch.code, []
        if leads:
            return NO_ERROR, self.become_leader(row, now)
        return NO_ERROR, self.become_follower(row)

    def repeats(self, row: PartitionRow, order: Order) -> bool:
        """Return whether a grant, which is not older, says what this replica has applied.

        `on_leader_and_isr` would change nothing but `order`. The state version stands for the ISR
        and what else the leader reads from the state node; a follower uses none of it.
        """
        state = self.state
        return (
            row.leader_epoch == state.leader_epoch
            and row.leader == state.leader
            and self.role is not Role.FENCED
            and row.replicas == state.assigned
            and row.adding == state.adding
            and order >= state.order
            and (
                self.leadership is None
                or (row.state_version == state.state_version and state.may_lead(row))
            )
        )

    def _refusal(self, row: PartitionRow) -> int:
        """Return the code of a grant that is for another broker, epoch or directory, or 0.

        A log with a later epoch than the published one is damaged, and its leader could not
        append to it. A follower truncates it there (rule R18).
        """
        if self.state.broker_id not in row.replicas:
            return InvalidRequest.code
        if row.leader_epoch < self.state.leader_epoch:
            return FencedLeaderEpoch.code
        leads = row.leader == self.state.broker_id
        if not leads:
            return NO_ERROR
        if not self.state.may_lead(row):
            return StorageFailed.code
        damaged = self.state.log.epochs.latest > row.leader_epoch
        return UnknownLeaderEpoch.code if damaged else NO_ERROR

    def _refresh(self, row: PartitionRow, now: int) -> list[Effect]:
        """Apply what may change within an epoch: the assignment (rule R13), and a newer ISR.

        The newer ISR is this leader's own write, which the controller has read.
        """
        self.state.assigned, self.state.adding = row.replicas, row.adding
        if self.leadership is None:
            return []
        effects = self.leadership.reassign(now)
        if row.state_version > self.state.state_version:
            effects += self.leadership.apply_isr(
                row.isr, row.eligible, row.state_version, row.directory_epochs
            )
        return effects

    def become_leader(self, row: PartitionRow, now: int) -> list[Effect]:
        """Lead from the current log end on (Replication V3, section C: becomeLeader).

        A follower counts only once it has reconciled in the new epoch, so the high
        watermark stays put until all ISR members have fetched. Produces that were parked in
        an earlier epoch stay parked: their records are still in this log.
        """
        self.state.take(row)
        # A damaged log may have lost committed records: claim no more than it holds.
        self.state.high_watermark = min(self.state.high_watermark, self.state.log.log_end_offset)
        self._following = None
        self.leadership = PartitionLeadership(self.state, now, self._parked)
        self.role = Role.LEADER
        return [StopFetching(), Flush()]

    def become_follower(self, row: PartitionRow) -> list[Effect]:
        """Follow the granted leader and keep the log (Replication V3, section C: becomeFollower).

        The source truncates the log to the high watermark here, which loses records
        (KIP-101); instead, the first fetch finds the point of divergence. Produces that are
        parked here stay parked until the new leader has committed their records or turns
        out to lack them, so that moving a leader fails no produce.
        """
        effects: list[Effect] = [StopFetching()]
        self.leadership = None
        self.state.take(row)
        self._following = Following(self.state)
        self.role = Role.FOLLOWER
        if not self.state.rules.r2_reconcile:
            effects += self._settle([Truncate(self.state.high_watermark)])
        effects.append(Flush())
        if row.leader != NO_LEADER:
            effects.append(StartFetching(row.leader, row.leader_epoch))
        return effects

    def step_down(self) -> list[Effect]:
        """Fence the replica until the next grant, and fail the parked produces."""
        self.leadership = self._following = None
        self.role = Role.FENCED
        return self._parked.fail_beyond(0)

    def give_up(self) -> list[Effect]:
        """Fail the parked produces, because the new leader cannot be reached."""
        return self._parked.fail_beyond(0) if self.leadership is None else []

    @property
    def has_parked(self) -> bool:
        """Whether produces are waiting to be committed."""
        return bool(self._parked)

    @property
    def catching_up(self) -> bool:
        """Whether a reassignment adds this follower and it still lacks committed records."""
        following = self._following
        moves = self.state.moves(self.state.broker_id)
        return following is not None and moves and not following.caught_up

    def leading(self) -> PartitionLeadership:
        """Return the leadership.

        Raises:
            NotLeader: another broker leads, or none does.

        """
        if self.leadership is None:
            raise NotLeader("this broker does not lead the partition")
        return self.leadership

    def unpark(self, token: int) -> None:
        """Remove a parked produce whose caller no longer waits."""
        self._parked.remove(token)

    def on_durable(self) -> list[Effect]:
        """Record that the log's durable end has risen."""
        return self.leadership.advance_high_watermark() if self.leadership else []

    def on_replica_fetch(
        self,
        row: FetchRow,
        *,
        broker_id: int,
        incarnation: int,
        nonce: int,
        now: int,
        leaving: bool = False,
    ) -> tuple[FetchedRow, list[Effect]]:
        """Record a follower's fetch; see `PartitionLeadership.on_replica_fetch`."""
        if self.leadership is None:
            return self.state.answer(row, error_code=NotLeader.code), []
        return self.leadership.on_replica_fetch(
            row,
            broker_id=broker_id,
            incarnation=incarnation,
            nonce=nonce,
            now=now,
            leaving=leaving,
        )

    def peek(self, row: FetchRow) -> FetchedRow:
        """Return a response to a row that is already recorded, with the current high watermark."""
        if self.leadership is None:
            return self.state.answer(row, error_code=NotLeader.code)
        return self.leadership.peek(row)

    def maybe_change_isr(self, now: int) -> list[Effect]:
        """Propose to shrink or grow the ISR if necessary; call this regularly."""
        return self.leadership.maybe_change_isr(now) if self.leadership else []

    def on_isr_written(
        self, number: int, result: IsrWriteResult, state_version: int = NO_STATE_VERSION
    ) -> list[Effect]:
        """Apply the result of an ISR write; `state_version` is the new one if committed."""
        if self.leadership is None:
            return []
        return self.leadership.on_isr_written(number, result, state_version)

    def on_state_read(self, state: PublishedState | None) -> list[Effect]:
        """Resolve an ISR write of unknown outcome from the state node (rule R7).

        In the same epoch, use ZooKeeper's ISR, whoever wrote it. In a newer epoch, or if the
        partition is gone, step down and wait for a grant.
        """
        if self.leadership is None:
            return []
        if state is None or state.leader_epoch > self.state.leader_epoch:
            return self.step_down()
        return self.leadership.on_state_read(state)

    def fetch_row(self) -> FetchRow | None:
        """Return where to fetch from, or None while this replica cannot fetch."""
        return self._following.fetch_row() if self._following else None

    def on_fetch_answer(self, answer: FetchedRow) -> list[Effect]:
        """Apply a fetch response if it still matches this replica's state (rule R3)."""
        effects = self._following.on_fetch_answer(answer) if self._following else []
        return self._settle(effects)

    def on_fetched(self, leader_high_watermark: int) -> list[Effect]:
        """Raise the high watermark after fetched records were appended."""
        effects = self._following.on_fetched(leader_high_watermark) if self._following else []
        return self._settle(effects)

    def _settle(self, effects: list[Effect]) -> list[Effect]:
        """Add the effects on produces that this follower accepted while it was the leader.

        Below the high watermark this log equals the new leader's (rule R2), so the produces
        parked there are committed. Those whose records are truncated have failed.
        """
        settled: list[Effect] = []
        for effect in effects:
            match effect:
                case HighWatermarkAdvanced(end):
                    settled += self._parked.acknowledge_up_to(end)
                case Truncate(end):
                    settled += self._parked.fail_beyond(end)
                case ResetLog():
                    settled += self._parked.fail_beyond(0)
        return effects + settled
