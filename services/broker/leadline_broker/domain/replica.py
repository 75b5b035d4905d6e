"""One replica of one partition: the protocol that keeps acknowledged records safe.

A sans-IO state machine (seed 1 C and G, with rules R1-R7, R9 and R14). Events
come in through methods and effects go out as values, for the shell to carry out
in order; a shell is the broker's runtime, or the simulator. The log itself
belongs to the shell: the machine reads its ends through `LogView` and changes
it by effects only.

    FENCED ---- grant ----> LEADER <--- newer grant ---> FOLLOWER
      ^                       |
      '-- deposed, no grant --'

A replica starts FENCED and takes a role only from a grant of the controller
with a newer leader epoch. One that was fenced again within an epoch may follow
in that epoch, but never leads in it once more.
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
from leadline_broker.domain.parked import ParkedAcks
from leadline_broker.domain.rules import ALL_RULES, Rules
from leadline_broker.domain.state import (
    NO_STATE_VERSION,
    LogView,
    Order,
    PublishedState,
    ReplicaConfig,
    ReplicaState,
)
from leadline_client.errors import FencedLeaderEpoch, InvalidRequest, NotLeader
from leadline_client.wire import NO_LEADER
from leadline_common.rpc import NO_ERROR, FetchedRow, FetchRow, PartitionRow


class Role(Enum):
    """What a replica does at present."""

    FENCED = "fenced"
    FOLLOWER = "follower"
    LEADER = "leader"


class Replica:
    """The state machine of one replica; `state` is for reading.

    Invariants: the leader epoch never falls; the high watermark never falls
    within a leader epoch and never passes the log end; there is a leadership
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
        """Start fenced; `high_watermark` is the checkpointed one."""
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
        """Take the role that the controller grants (seed 1: on_leader_and_isr_command).

        Returns the partition's code for the answer, and effects. A repeated
        grant is success without effect; an older one is refused, as is one to
        lead again in an epoch that this replica has given up: its ISR proposals
        may still be under way. Within an epoch the assignment may change, and
        then `order` tells a newer row from one that was overtaken on the way.
        """
        if self.state.broker_id not in row.replicas:
            return InvalidRequest.code, []
        if row.leader_epoch < self.state.leader_epoch:
            return FencedLeaderEpoch.code, []
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

    def _refresh(self, row: PartitionRow, now: int) -> list[Effect]:
        """Take what is new in the same epoch: the assignment (R13), and a newer ISR.

        The ISR is this leader's own write, seen by the controller.
        """
        self.state.assigned, self.state.adding = row.replicas, row.adding
        if self.leadership is None:
            return []
        effects = self.leadership.reassign(now)
        if row.state_version > self.state.state_version:
            effects += self.leadership.adopt(row.isr, row.eligible, row.state_version)
        return effects

    def become_leader(self, row: PartitionRow, now: int) -> list[Effect]:
        """Lead from the present log end on (seed 1 C).

        No follower counts before it has reconciled in the new epoch, so the high
        watermark stays where it was until all ISR members have fetched. Produces
        parked in an earlier epoch stay parked: their records are still in this log.
        """
        self.state.take(row)
        # A damaged log may have lost what was committed: claim no more than there is.
        self.state.high_watermark = min(self.state.high_watermark, self.state.log.log_end_offset)
        self._following = None
        self.leadership = PartitionLeadership(self.state, now, self._parked)
        self.role = Role.LEADER
        return [StopFetching(), Flush()]

    def become_follower(self, row: PartitionRow) -> list[Effect]:
        """Follow the granted leader (seed 1 C), keeping the log as it is.

        The seed cuts the log to the high watermark here, which loses records
        (KIP-101); the first fetch finds the point of divergence instead. Produces
        that were parked here stay so until the new leader has committed their
        records, or has not got them: a leader that moves fails nobody.
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
        """Stop leading and wait, fenced, for the next grant: nobody knows when that comes."""
        self.leadership = self._following = None
        self.role = Role.FENCED
        return self._parked.fail_beyond(0)

    def give_up(self) -> list[Effect]:
        """Fail what was parked here, as the new leader cannot be asked about it."""
        return self._parked.fail_beyond(0) if self.leadership is None else []

    @property
    def has_parked(self) -> bool:
        """Whether produces wait to be committed."""
        return bool(self._parked)

    @property
    def catching_up(self) -> bool:
        """Whether this follower is being added and lacks records that are committed."""
        following = self._following
        moves = self.state.moves(self.state.broker_id)
        return following is not None and moves and not following.caught_up

    def leading(self) -> PartitionLeadership:
        """Return the leadership.

        Raises:
            NotLeader: another broker leads, or none.

        """
        if self.leadership is None:
            raise NotLeader("this broker does not lead the partition")
        return self.leadership

    def check_append(self, *, all_replicas: bool) -> None:
        """Raise the refusal if a produce may not be appended now.

        Raises:
            NotLeader: another broker leads, or none.
            NotEnoughReplicas: acks=all and the ISR is below min.insync.replicas.

        """
        self.leading().check_append(all_replicas=all_replicas)

    def on_appended(self, previous_end: int, now: int) -> list[Effect]:
        """Note that the leader appended: its log ended at `previous_end` before."""
        return self.leading().on_appended(previous_end, now)

    def park(self, end_offset: int, token: int) -> list[Effect]:
        """Acknowledge `token` once every record below `end_offset` is committed."""
        return self.leading().park(end_offset, token)

    def unpark(self, token: int) -> None:
        """Forget a parked produce whose caller has given up."""
        self._parked.remove(token)

    def on_durable(self) -> list[Effect]:
        """Note that the log's durable end moved."""
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
        """Count a follower's durable end, or tell it where to cut; see `PartitionLeadership`."""
        if self.leadership is None:
            return self._not_leader(row), []
        return self.leadership.on_replica_fetch(
            row,
            broker_id=broker_id,
            incarnation=incarnation,
            nonce=nonce,
            now=now,
            leaving=leaving,
        )

    def peek(self, row: FetchRow) -> FetchedRow:
        """Answer a row that was counted before, with the present high watermark."""
        if self.leadership is None:
            return self._not_leader(row)
        return self.leadership.peek(row)

    def _not_leader(self, row: FetchRow) -> FetchedRow:
        return FetchedRow(
            row.partition,
            row.leader_epoch,
            row.fetch_offset,
            row.last_epoch,
            NotLeader.code,
            self.state.high_watermark,
            self.state.log.log_start_offset,
        )

    def maybe_change_isr(self, now: int) -> list[Effect]:
        """Propose to shrink or grow the ISR, if it should (seed 1 G); call this regularly."""
        return self.leadership.maybe_change_isr(now) if self.leadership else []

    def on_isr_written(
        self, number: int, result: IsrWriteResult, state_version: int = NO_STATE_VERSION
    ) -> list[Effect]:
        """Take the result of an ISR write; `state_version` is the new one if committed."""
        if self.leadership is None:
            return []
        return self.leadership.on_isr_written(number, result, state_version)

    def on_state_read(self, state: PublishedState | None) -> list[Effect]:
        """Settle an ISR write of unknown outcome by what ZooKeeper says (rule R7).

        The same epoch: take ZooKeeper's ISR, whoever wrote it. Another epoch, or
        no such partition: step down and wait for the grant.
        """
        if self.leadership is None:
            return []
        if state is None or state.leader_epoch > self.state.leader_epoch:
            return self.step_down()
        return self.leadership.on_state_read(state)

    def fetch_row(self) -> FetchRow | None:
        """Return where to fetch from, or None while there is nothing to ask."""
        return self._following.fetch_row() if self._following else None

    def on_fetch_answer(self, answer: FetchedRow) -> list[Effect]:
        """Use a leader's answer, if it still fits this replica's state (rule R3)."""
        effects = self._following.on_fetch_answer(answer) if self._following else []
        return self._settle(effects)

    def on_fetched(self, leader_high_watermark: int) -> list[Effect]:
        """Raise the high watermark after fetched records were appended."""
        effects = self._following.on_fetched(leader_high_watermark) if self._following else []
        return self._settle(effects)

    def _settle(self, effects: list[Effect]) -> list[Effect]:
        """Add what a follower's change means for produces that it accepted as leader.

        Below the high watermark this log is the new leader's (rule R2): what was
        parked there is committed. What is cut off is not.
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
