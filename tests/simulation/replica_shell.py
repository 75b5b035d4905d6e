"""Carries out what one replica's state machine asks for: log, fsync, fetches, ISR writes.

The simulator's counterpart of the broker's runtime, around the same `Replica`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from leadline_broker.domain.effects import (
    Acknowledge,
    AppendFetched,
    Effect,
    FailAck,
    Flush,
    HighWatermarkAdvanced,
    IsrProposal,
    ReadState,
    ResetLog,
    StartFetching,
    StopFetching,
    Truncate,
    WriteIsr,
)
from leadline_broker.domain.leadership import IsrWriteResult
from leadline_broker.domain.replica import Replica, Role
from leadline_broker.domain.state import PublishedState, ReplicaConfig
from leadline_client.errors import (
    FencedLeaderEpoch,
    NotLeader,
    StaleIncarnation,
    UnknownLeaderEpoch,
)
from leadline_common.rpc import NO_ERROR, FetchedRow, FetchRow, PartitionRow
from leadline_common.znodes import PartitionState, broker_epoch_path, broker_id_path, state_path
from tests.simulation.disk import pack, unpack
from tests.simulation.messages import PARTITION, TOPIC, TOPIC_ID, FetchCall, FetchReply, Stop
from tests.simulation.network import Answer
from tests.simulation.zookeeper import Check, Op, Outcome, Read, Set, ZkError

if TYPE_CHECKING:
    from tests.simulation.broker_shell import BrokerProcess

STATE = state_path(TOPIC, PARTITION)
LAG_TIME_MAX_MS = 60
FETCH_WAIT_MS = 40.0
FETCH_TIMEOUT_MS = 90.0
MAX_RECORDS = 4

_REFUSALS = {
    FencedLeaderEpoch.code: "fetch of an older epoch refused",
    UnknownLeaderEpoch.code: "fetch of a newer epoch refused",
    StaleIncarnation.code: "late fetch refused",
    NotLeader.code: "fetch from no leader refused",
}

_CHANGES = {
    "caught up": "ISR grown",
    "lagging": "ISR shrunk",
    "nobody is eligible any more": "eligible replicas dropped",
}

ParkedFetch = tuple[FetchRow, int, int, Answer[FetchReply]]


class ReplicaShell:
    """One replica in one broker process."""

    def __init__(self, process: BrokerProcess) -> None:
        self.process = process
        self.world = process.world
        self.log = process.disk.log
        self.acks: dict[int, Callable[[int], None]] = {}
        self.fetch_leader: int | None = None
        self._nonce = 0
        self._in_flight = 0
        self._flushing = False
        self._flush_again = False
        self._parked: list[ParkedFetch] = []
        self._stopped_in = -1
        self.replica = self._fresh()

    def _fresh(self) -> Replica:
        return Replica(
            broker_id=self.process.broker_id,
            topic_id=TOPIC_ID,
            partition=PARTITION,
            log=self.log,
            high_watermark=self.process.disk.high_watermark,
            config=self._config,
            rules=self.world.rules,
        )

    @property
    def _config(self) -> ReplicaConfig:
        return ReplicaConfig(self.process.cluster.min_insync, LAG_TIME_MAX_MS)

    def configure(self) -> None:
        """Use the configs in force; a lower min.insync.replicas may commit records."""
        self.replica.state.config = self._config
        self.run(self.replica.on_durable())

    # -- effects -----------------------------------------------------------------

    def run(self, effects: list[Effect]) -> None:
        """Execute effects in order."""
        if effects:
            self.process.checks.on_replica(self.process, self.replica)
        for effect in effects:
            match effect:
                case Flush():
                    self._flush()
                case AppendFetched():
                    self._append_fetched(effect)
                case HighWatermarkAdvanced():
                    self._wake()
                case Acknowledge():
                    self._answer(effect.token, NO_ERROR)
                case FailAck():
                    self._answer(effect.token, effect.error.code)
                case WriteIsr():
                    self._write_isr(effect.proposal)
                case ReadState():
                    self._read_state()
                case _:
                    self._run_rare(effect)

    def _answer(self, token: int, code: int) -> None:
        if self.replica.role is Role.FOLLOWER:
            how = "ack" if code == NO_ERROR else "failed produce"
            self.world.reached(f"{how} of a former leader")
        self.acks.pop(token)(code)

    def _run_rare(self, effect: Effect) -> None:
        match effect:
            case StartFetching():
                self.fetch_leader = effect.leader
                self._in_flight = 0
                self.fetch()
            case StopFetching():
                self.fetch_leader = None
                self._wake()
            case Truncate():
                self._truncate(effect.end_offset)
            case ResetLog():
                self.world.reached("log reset")
                self._truncate(0)

    def _truncate(self, end_offset: int) -> None:
        if end_offset < self.log.log_end_offset:
            self.world.note("broker %d cuts its log to %d", self.process.broker_id, end_offset)
            self.world.reached("log cut")
        self.log.truncate(end_offset)
        self.process.checks.on_truncated(self.process, end_offset)

    def _append_fetched(self, effect: AppendFetched) -> None:
        self.append(unpack(effect.records))
        self.run(self.replica.on_fetched(effect.leader_high_watermark))

    def append(self, records: list[tuple[int, int]]) -> None:
        """Append records to the log, unsynced."""
        self.process.checks.on_append(self.process, self.log.log_end_offset, records)
        self.log.append(records)

    def _flush(self) -> None:
        if self._flushing:
            self._flush_again = True
            return
        self._flushing = True
        delay = self.world.between(0.5, 4)
        if self.world.chance(self.process.cluster.slow_fsync):
            delay += self.world.between(0, 80)
        self.process.after(delay, self._flushed, self.log.log_end_offset, self.log.cuts)

    def _flushed(self, end_offset: int, cuts: int) -> None:
        self._flushing = False
        self.log.flushed(end_offset, cuts)
        if self._flush_again:
            self._flush_again = False
            self._flush()
        self.run(self.replica.on_durable())
        self.fetch()

    # -- roles -------------------------------------------------------------------

    def grant(self, row: PartitionRow) -> int:
        """Take a role; return the partition's code."""
        if row.leader_epoch <= self._stopped_in:
            self.world.reached("grant from before a stop refused")
            return FencedLeaderEpoch.code
        led = self.replica.leadership
        self.replica.state.directory_epoch = self.process.directory_epoch
        code, effects = self.replica.on_leader_and_isr(row, self.world.now_ms)
        if self.replica.leadership is not led and self.replica.role is Role.LEADER:
            if self.replica.has_parked:
                self.world.reached("acks parked over an epoch change")
            self.process.checks.on_leader(self.process, row.leader_epoch)
        self.run(effects)
        return code

    def stop(self, stop: Stop) -> int:
        """Leave the role, and start again if there will be another; return the partition's code."""
        if self.replica.state.leader_epoch > stop.leader_epoch:
            return FencedLeaderEpoch.code
        if self.replica.role is not Role.FENCED:
            self.world.reached("replica deleted" if stop.delete else "replica made stray")
        self._stopped_in = max(self._stopped_in, stop.leader_epoch)
        self.fetch_leader = None
        self.step_down()
        if stop.delete:
            self.process.disk.wipe()
            self.process.checks.on_truncated(self.process, 0)
        self.replica = self._fresh()
        return NO_ERROR

    def step_down(self) -> None:
        """Give up leading."""
        self.run(self.replica.step_down())
        self._wake()

    def tick(self) -> None:
        """Look whether the ISR should change."""
        self.run(self.replica.maybe_change_isr(self.world.now_ms))

    # -- following ---------------------------------------------------------------

    def fetch(self) -> None:
        """Ask the leader, unless a fetch is under way or the log is not fsynced yet."""
        if self.fetch_leader is None or self._in_flight:
            return
        row = self.replica.fetch_row()
        if row is None:
            return
        process = self.process
        self._nonce += 1
        self._in_flight = self._nonce
        call = FetchCall(process.broker_id, process.incarnation, self._nonce, row)
        target = process.cluster.brokers[self.fetch_leader]
        process.cluster.network.call(process, target, _serve, call, self.on_fetched)
        process.after(FETCH_TIMEOUT_MS, self._give_up, self._nonce)

    def _give_up(self, nonce: int) -> None:
        if self._in_flight == nonce:
            self._in_flight = 0
            self.fetch()

    def on_fetched(self, reply: FetchReply) -> None:
        """Use an answer; one of another fetch than that under way is too late (rule R3)."""
        if reply.nonce != self._in_flight:
            self.world.reached("late fetch answer")
            if self.world.rules.r3_correlated:
                return
        else:
            self._in_flight = 0
        self.run(self.replica.on_fetch_answer(reply.row))
        if reply.row.error_code == NO_ERROR:
            self.fetch()
        else:
            self.process.after(10, self.fetch)

    # -- leading -----------------------------------------------------------------

    def serve(self, call: FetchCall, answer: Answer[FetchReply]) -> None:
        """Answer a follower's fetch, at once if there is news for it."""
        row = call.row
        result, effects = self.replica.on_replica_fetch(
            row,
            broker_id=call.broker_id,
            incarnation=call.incarnation,
            nonce=call.nonce,
            now=self.world.now_ms,
        )
        self.run(effects)
        if result.error_code != NO_ERROR or result.diverging_end >= 0:
            self._count_refusal(result)
            answer(FetchReply(call.nonce, result))
            return
        result = self._with_records(result)
        if result.records:
            answer(FetchReply(call.nonce, result))
            return
        parked = (row, call.nonce, result.high_watermark, answer)
        self._parked.append(parked)
        self.process.after(FETCH_WAIT_MS, self._wait_over, parked)

    def _count_refusal(self, result: FetchedRow) -> None:
        if result.diverging_end >= 0:
            self.world.reached("diverging answer")
            if result.diverging_epoch < result.last_epoch - 1:
                self.world.reached("diverging answer over more than one epoch")
        elif result.error_code in _REFUSALS:
            self.world.reached(_REFUSALS[result.error_code])

    def _with_records(self, result: FetchedRow) -> FetchedRow:
        records = self.log.records[result.fetch_offset : result.fetch_offset + MAX_RECORDS]
        if not records or result.error_code != NO_ERROR:
            return result
        return msgspec.structs.replace(result, records=pack(records))

    def _wake(self) -> None:
        """Answer the parked fetches that there is news for."""
        if self._parked:
            parked, self._parked = self._parked, []
            for fetch in parked:
                result = self._with_records(self.replica.peek(fetch[0]))
                news = result.records or result.high_watermark > fetch[2] or result.error_code
                if news:
                    fetch[3](FetchReply(fetch[1], result))
                else:
                    self._parked.append(fetch)

    def _wait_over(self, parked: ParkedFetch) -> None:
        if parked in self._parked:
            self._parked.remove(parked)
            result = self._with_records(self.replica.peek(parked[0]))
            parked[3](FetchReply(parked[1], result))

    def appended(self, previous_end: int) -> None:
        """Note a produced record: fsync it, and tell the waiting followers."""
        self.run(self.replica.leading().on_appended(previous_end, self.world.now_ms))
        self._wake()

    # -- ISR writes --------------------------------------------------------------

    def _write_isr(self, proposal: IsrProposal) -> None:
        process = self.process
        after = PartitionState(
            process.broker_id,
            proposal.leader_epoch,
            proposal.isr,
            process.disk.controller_epoch,
            proposal.eligible,
            directory_epochs=proposal.directory_epochs,
        )
        ops: list[Op] = [Check(broker_epoch_path(process.broker_id), process.incarnation)]
        for broker, incarnation in proposal.joiners:
            ops += [Check(broker_epoch_path(broker), incarnation), Check(broker_id_path(broker))]
        ops.append(Set(STATE, after, proposal.state_version))
        self.world.note("broker %d proposes %s", process.broker_id, proposal)
        grows = proposal.reason == "caught up"
        process.cluster.on_proposal(process, proposal, grows)
        last = len(ops) - 1
        session = process.session

        def answered(outcome: Outcome) -> None:
            if session is process.session:
                self._isr_written(proposal, outcome, last)

        session.multi(ops, answered)

    def _isr_written(self, proposal: IsrProposal, outcome: Outcome, last: int) -> None:
        if outcome.error is None:
            self.world.reached(_CHANGES[proposal.reason])
            result = IsrWriteResult.COMMITTED
        elif outcome.error is ZkError.CONNECTION_LOSS:
            self.world.reached("ISR write of unknown outcome")
            result = IsrWriteResult.UNKNOWN
        elif outcome.error is ZkError.SESSION_EXPIRED or outcome.failed == 0:
            self.step_down()
            return
        elif outcome.failed < last:
            self.world.reached("joiner refused")
            result = IsrWriteResult.JOINER_REFUSED
        else:
            self.world.reached("ISR write in conflict")
            result = IsrWriteResult.CONFLICT
        version = proposal.state_version + 1
        self.run(self.replica.on_isr_written(proposal.number, result, version))
        if result is IsrWriteResult.COMMITTED:
            self.process.cluster.tell_controllers(self.process)

    def _read_state(self) -> None:
        pending = self.replica.leadership.pending if self.replica.leadership else None

        def settle(read: Read | None) -> None:
            if read is not None:
                self._state_read(read, pending)
            elif self.replica.leadership is not None:
                self.process.after(self.world.between(2, 15), self._read_state)

        self.process.session.sync_and_read([STATE], settle)

    def _state_read(self, read: Read, pending: IsrProposal | None) -> None:
        node = read[STATE]
        if node is None:
            self.run(self.replica.on_state_read(None))
            return
        state: PartitionState = node.value
        mine = pending is not None and (node.version, state.leader_epoch) == (
            pending.state_version + 1,
            pending.leader_epoch,
        )
        if mine:
            self.world.reached("ISR write of unknown outcome adopted")
        led = self.replica.leadership
        published = PublishedState(
            state.leader,
            state.leader_epoch,
            state.isr,
            state.eligible,
            node.version,
            state.directory_epochs,
        )
        self.run(self.replica.on_state_read(published))
        if led is not None and self.replica.leadership is None:
            self.world.reached("leader stepped down after reading")


def _serve(process: BrokerProcess, call: FetchCall, answer: Answer[FetchReply]) -> None:
    process.shell.serve(call, answer)
