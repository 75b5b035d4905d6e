"""Leading a partition: followers' progress, ISR changes, the high watermark, waiting produces.

One `PartitionLeadership` lasts for one leader epoch (Replication V3, section G, with rules
R1-R7). A follower counts only once it has reconciled in this epoch.
"""

from __future__ import annotations

from enum import Enum

from leadline_broker.domain.effects import (
    Acknowledge,
    Effect,
    Flush,
    HighWatermarkAdvanced,
    IsrProposal,
    ReadState,
    WriteIsr,
)
from leadline_broker.domain.isr import (
    FollowerProgress,
    committed_end,
    lagging_members,
    may_change_with_time,
    may_join,
)
from leadline_broker.domain.state import (
    NO_LEADER_EPOCH,
    NO_STATE_VERSION,
    ParkedAcks,
    PublishedState,
    ReplicaState,
)
from leadline_client.errors import (
    FencedLeaderEpoch,
    InvalidRequest,
    NotEnoughReplicas,
    OffsetOutOfRange,
    StaleIncarnation,
    UnknownLeaderEpoch,
)
from leadline_common.directories import DirectoryEpochs, kept_epochs, membership_epoch
from leadline_common.isr import eligible_after
from leadline_common.rpc import NO_ERROR, FetchedRow, FetchRow


class IsrWriteResult(Enum):
    """The result of an ISR write, as far as ZooKeeper reports it."""

    COMMITTED = "committed"
    CONFLICT = "conflict"
    """The state node has another version."""
    JOINER_REFUSED = "joiner refused"
    """The joiner is not registered in the incarnation that the leader has counted."""
    UNKNOWN = "unknown"
    """The connection was lost: the write may or may not have been applied."""


IsrOutcome = tuple[IsrWriteResult, int]
"""The result of an ISR write, and the state node's new version if it was committed."""


class PartitionLeadership:
    """One leader epoch of one partition, on its leader.

    Invariants: the ISR contains the leader; at most one ISR write is in flight;
    the high watermark never falls.
    """

    __slots__ = ("_acks", "_state", "epoch_start", "pending", "progress")

    def __init__(self, state: ReplicaState, now: int, parked: ParkedAcks) -> None:
        """Lead from the current log end; `parked` may hold produces of an earlier epoch."""
        self._state = state
        self.epoch_start = state.log.log_end_offset
        self.pending: IsrProposal | None = None
        self.progress = {
            broker: FollowerProgress(last_caught_up_ms=now)
            for broker in state.assigned
            if broker != state.broker_id
        }
        self._acks = parked

    def reassign(self, now: int) -> list[Effect]:
        """Apply a changed assignment within the epoch (rule R13).

        Added replicas start without progress, and the progress of removed ones is dropped.
        The high watermark stays put while a removed one is in the ISR or in the proposal.
        """
        known = self.progress
        self.progress = {
            broker: known.get(broker) or FollowerProgress(last_caught_up_ms=now)
            for broker in self._state.assigned
            if broker != self._state.broker_id
        }
        return self.advance_high_watermark()

    def check_append(self, *, all_replicas: bool) -> None:
        """Raise if a produce may not be appended now.

        Raises:
            NotEnoughReplicas: acks=all and the ISR is below min.insync.replicas.

        """
        if all_replicas and len(self._state.isr) < self._state.isr_floor:
            raise NotEnoughReplicas(
                f"{len(self._state.isr)} in-sync replicas, {self._state.isr_floor} are required",
                isr=list(self._state.isr),
            )

    def on_appended(self, previous_end: int, now: int) -> list[Effect]:
        """Record that the leader appended to its log, which ended at `previous_end` before."""
        for follower in self.progress.values():
            if follower.end == previous_end:
                follower.last_caught_up_ms = now
        return [Flush()]

    def park(self, end_offset: int, token: int) -> list[Effect]:
        """Acknowledge `token` once every record below `end_offset` is committed."""
        if end_offset <= self._state.high_watermark:
            return [Acknowledge(token)]
        self._acks.add(end_offset, token)
        return []

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
        """Record a follower's durable end, or return where to truncate (on_ReplicaFetchRequest).

        Replication V3, section G, with rules R1-R3 and R6. The response has no records; the
        shell adds those from `row.fetch_offset` on if there is neither error nor divergence.
        """
        code = self._fetch_refusal(row, broker_id, incarnation, nonce)
        if code != NO_ERROR:
            return self._state.answer(row, error_code=code), []
        follower = self._follower(broker_id, incarnation, now)
        follower.last_nonce = nonce
        follower.leaving = leaving
        follower.directory_epoch = row.directory_epoch
        divergence = self._divergence(row) if self._state.rules.r2_reconcile else None
        if self._state.is_out_of_range(row, divergence):
            return self._state.answer(row, error_code=OffsetOutOfRange.code), []
        if divergence is not None:
            epoch, end = divergence
            return self._state.answer(row, diverging_epoch=epoch, diverging_end=end), []
        follower.on_fetch(row.fetch_offset, self._state.log.log_end_offset, now)
        effects = self._maybe_grow(now) + self.advance_high_watermark()
        return self._state.answer(row), effects

    def peek(self, row: FetchRow) -> FetchedRow:
        """Return a response to a row that is already recorded, with the current high watermark."""
        stale = row.leader_epoch != self._state.leader_epoch
        return self._state.answer(row, error_code=FencedLeaderEpoch.code if stale else NO_ERROR)

    def _fetch_refusal(self, row: FetchRow, broker_id: int, incarnation: int, nonce: int) -> int:
        if broker_id not in self.progress:
            return InvalidRequest.code
        if self._state.rules.r1_identity and row.leader_epoch != self._state.leader_epoch:
            older = row.leader_epoch < self._state.leader_epoch
            return FencedLeaderEpoch.code if older else UnknownLeaderEpoch.code
        known = self.progress[broker_id]
        if incarnation < known.incarnation:
            return StaleIncarnation.code
        late = incarnation == known.incarnation and nonce <= known.last_nonce
        return StaleIncarnation.code if late and self._state.rules.r3_correlated else NO_ERROR

    def _follower(self, broker_id: int, incarnation: int, now: int) -> FollowerProgress:
        follower = self.progress[broker_id]
        if incarnation > follower.incarnation:
            follower = FollowerProgress(incarnation=incarnation, last_caught_up_ms=now)
            self.progress[broker_id] = follower
        return follower

    def _divergence(self, row: FetchRow) -> tuple[int, int] | None:
        """Return where the follower's log diverges from this one (rule R2), or None."""
        if row.last_epoch == NO_LEADER_EPOCH:
            return None
        epoch, end = self._state.log.epochs.end_of(row.last_epoch, self._state.log.log_end_offset)
        if epoch == row.last_epoch and end >= row.fetch_offset:
            return None
        return epoch, end

    @property
    def is_settled(self) -> bool:
        """Whether `maybe_change_isr` need not be called until the next fetch, append or write.

        All records are committed, and the ISR is complete or cannot change with time. A proposal is
        not settled: a follower may have caught up by the time that its removal is written.
        """
        state, end = self._state, self._state.log.log_end_offset
        if self.pending is not None or state.high_watermark != end:
            return False
        return len(state.isr) == len(state.assigned) or not may_change_with_time(
            state.isr, self.progress, log_end_offset=end, epoch_start=self.epoch_start
        )

    def maybe_change_isr(self, now: int) -> list[Effect]:
        """Propose to shrink or grow the ISR if necessary; call this regularly.

        Replication V3, section G: maybe_change_ISR.
        """
        if self.pending is not None:
            return []
        lagging = self._lagging(self._state.isr, now)
        if not lagging:
            return self._maybe_grow(now)
        isr = tuple(broker for broker in self._state.isr if broker not in lagging)
        return self._propose(isr, reason="lagging")

    def _lagging(self, brokers: tuple[int, ...], now: int) -> tuple[int, ...]:
        return lagging_members(
            brokers,
            self.progress,
            log_end_offset=self._state.log.log_end_offset,
            now=now,
            lag_time_max_ms=self._state.config.replica_lag_time_max_ms,
        )

    def _maybe_grow(self, now: int) -> list[Effect]:
        if self.pending is not None:
            return []
        epoch_start = self.epoch_start if self._state.rules.r6_joiner else 0
        joiner = next(
            (
                broker
                for broker in self._state.assigned
                if broker not in self._state.isr
                and broker in self.progress
                and not self.progress[broker].leaving
                and may_join(
                    self.progress[broker],
                    high_watermark=self._state.high_watermark,
                    epoch_start=epoch_start,
                )
                and broker not in self._lagging((broker,), now)
            ),
            None,
        )
        if joiner is None:
            return []
        members = {*self._state.isr, joiner}
        isr = tuple(broker for broker in self._state.assigned if broker in members)
        joiners = ((joiner, self.progress[joiner].incarnation),)
        return self._propose(isr, joiners=joiners, reason="caught up")

    def _propose(
        self,
        isr: tuple[int, ...],
        *,
        joiners: tuple[tuple[int, int], ...] = (),
        reason: str,
    ) -> list[Effect]:
        state = self._state
        state.last_proposal += 1
        eligible = eligible_after(state.assigned, state.isr, state.eligible, isr, state.isr_floor)
        joined = {broker: self.progress[broker].directory_epoch for broker, _ in joiners}
        self.pending = IsrProposal(
            number=state.last_proposal,
            leader_epoch=state.leader_epoch,
            isr=isr,
            eligible=eligible,
            state_version=state.state_version,
            joiners=joiners if state.rules.r6_joiner else (),
            reason=reason,
            directory_epochs=kept_epochs(state.directory_epochs, (*isr, *eligible), joined),
        )
        return [WriteIsr(self.pending)]

    def on_isr_written(
        self, number: int, result: IsrWriteResult, state_version: int = NO_STATE_VERSION
    ) -> list[Effect]:
        """Apply the result of an ISR write; `state_version` is the new one if committed.

        The result of a proposal that is no longer pending is ignored (rule R3).
        """
        proposal = self.pending
        if proposal is None or (self._state.rules.r3_correlated and proposal.number != number):
            return []
        if result is IsrWriteResult.COMMITTED:
            return self.apply_isr(
                proposal.isr, proposal.eligible, state_version, proposal.directory_epochs
            )
        if result is IsrWriteResult.JOINER_REFUSED:
            return self._drop_joiners(proposal)
        if result is IsrWriteResult.UNKNOWN and not self._state.rules.r7_ambiguous:
            self.pending = None
            return self.advance_high_watermark()
        return [ReadState()]

    def on_state_read(self, state: PublishedState) -> list[Effect]:
        """Apply a state of this epoch that was read; an older one changes nothing (rule R3).

        A version later than the known one is this leader's own write. The known version
        only shows that a pending proposal was not applied *yet*. The write may still arrive
        or be lost, so the proposal stays pending and is written again; its version makes
        that harmless. A joiner that is no longer assigned can never be admitted, because
        the transaction checks the assignment.
        """
        if state.state_version > self._state.state_version:
            return self.apply_isr(
                state.isr, state.eligible, state.state_version, state.directory_epochs
            )
        if self.pending is None or state.state_version != self.pending.state_version:
            return []
        if {*self.pending.isr} <= {*self._state.isr, *self._state.assigned}:
            return [WriteIsr(self.pending)]
        self.pending = None
        return self.advance_high_watermark()

    def _drop_joiners(self, proposal: IsrProposal) -> list[Effect]:
        self.pending = None
        for broker, incarnation in proposal.joiners:
            follower = self.progress.get(broker)
            if follower is not None and follower.incarnation == incarnation:
                self.progress[broker] = FollowerProgress(incarnation=incarnation)
        return self.advance_high_watermark()

    def apply_isr(
        self,
        isr: tuple[int, ...],
        eligible: tuple[int, ...],
        state_version: int,
        directory_epochs: DirectoryEpochs | None,
    ) -> list[Effect]:
        """Set the committed ISR to what is published in this epoch; no proposal is pending then."""
        self._state.isr = isr
        self._state.eligible = eligible
        self._state.directory_epochs = directory_epochs
        self._state.state_version = state_version
        self.pending = None
        return self.advance_high_watermark()

    def advance_high_watermark(self) -> list[Effect]:
        """Commit what every member of the committed ISR and of the proposed ISR holds (rule R5).

        Below the floor nothing is committed. Back at it, because the ISR has grown or
        min.insync.replicas was lowered, nothing is committed either until the published state
        lists no eligible replicas: they would lack what is committed from then on.

        A member that fetches into another log directory than its membership is bound to holds
        nothing (rule R17), until the controller has removed it from the ISR.
        """
        members = set(self._state.isr)
        if self._state.rules.r17_directories and self._is_misplaced():
            return []
        if self._state.rules.r5_proposed_isr:
            if len(self._state.isr) < self._state.isr_floor:
                return []
            if self._state.eligible:
                return self._drop_eligible()
            if self.pending is not None:
                members.update(self.pending.isr)
        durable = self._state.rules.r4_durable_ends
        end = committed_end(
            members,
            self.progress,
            leader=self._state.broker_id,
            leader_end=self._state.log.durable_end_offset
            if durable
            else self._state.log.log_end_offset,
        )
        if end <= self._state.high_watermark:
            return []
        self._state.high_watermark = end
        return [*self._acks.acknowledge_up_to(end), HighWatermarkAdvanced(end)]

    def _drop_eligible(self) -> list[Effect]:
        """Propose the same ISR without eligible replicas, unless a proposal is pending."""
        if self.pending is not None:
            return []
        return self._propose(self._state.isr, reason="nobody is eligible any more")

    def _is_misplaced(self) -> bool:
        """Return whether a member fetches into another directory than its membership says."""
        pending = self.pending
        return any(
            follower.directory_epoch != membership_epoch(self._state.directory_epochs, broker)
            for broker in self._state.isr
            if (follower := self.progress.get(broker)) is not None and follower.last_nonce >= 0
        ) or (
            pending is not None
            and any(
                self.progress[broker].directory_epoch
                != membership_epoch(pending.directory_epochs, broker)
                for broker, _ in pending.joiners
                if broker in self.progress
            )
        )
