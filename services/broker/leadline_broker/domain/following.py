"""Following a leader: where to fetch from, and how to apply a fetch response.

Replication V3, section G, follower side, with rules R2 (reconcile by leader epoch, never
truncate to the high watermark), R3 (a response must match the current state) and R4
(durable ends).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from leadline_broker.domain.effects import (
    AppendFetched,
    Effect,
    Flush,
    HighWatermarkAdvanced,
    ResetLog,
    Truncate,
)
from leadline_broker.domain.producers import NO_PRODUCER_ID, ProducerStates
from leadline_broker.domain.state import ReplicaState
from leadline_client.errors import OffsetOutOfRange
from leadline_client.wire import NO_LEADER
from leadline_common.rpc import NO_ERROR, FetchedRow, FetchRow, KnownProducers


@dataclass(eq=False, slots=True)
class Told:
    """What a leader has told, so far, of the producers before the offset to begin again at."""

    start: int
    table: ProducerStates | None = None
    last: int = NO_PRODUCER_ID

    def learn(self, known: KnownProducers) -> bool:
        """Add a part; return whether it is the last one. A repeated one changes nothing."""
        if known.after != self.last:
            return False
        part = ProducerStates.after(known, self.start)
        if self.table is None:
            self.table = part
        else:
            self.table.insert(part)
        self.last = known.last
        return known.last == NO_PRODUCER_ID


@dataclass(eq=False, slots=True)
class Following:
    """One leader epoch of one partition, on a follower.

    `caught_up` is true once this log has held every record that the leader had committed.
    """

    state: ReplicaState
    caught_up: bool = field(default=False, init=False)
    _told: Told | None = field(default=None, init=False)

    def fetch_row(self) -> FetchRow | None:
        """Return where to fetch from, or None while this replica cannot fetch.

        The offset is the durable end: a fetch waits until the whole log is
        fsynced (rule R4).
        """
        if self.state.leader == NO_LEADER:
            return None
        log = self.state.log
        if self.state.rules.r4_durable_ends and log.durable_end_offset < log.log_end_offset:
            return None
        return FetchRow(
            self.state.partition,
            self.state.leader_epoch,
            log.log_end_offset,
            log.epochs.latest,
            self.state.directory_epoch,
            None if self._told is None else (self._told.start, self._told.last),
        )

    def on_fetch_answer(self, answer: FetchedRow) -> list[Effect]:
        """Apply a fetch response if it still matches this replica's state (rule R3).

        Errors other than OffsetOutOfRange have no effect: the next LeaderAndISR request
        or the next fetch resolves them.
        """
        asked = self.fetch_row()
        if asked is None or not self._fits(answer, asked):
            return []
        if answer.error_code == OffsetOutOfRange.code:
            return self._begin_again(answer)
        if answer.error_code != NO_ERROR:
            return []
        if answer.diverging_end >= 0:
            return self._truncate(answer.diverging_epoch, answer.diverging_end)
        if not answer.records:
            return self.on_fetched(answer.high_watermark)
        return [AppendFetched(answer.records, answer.high_watermark), Flush()]

    def _fits(self, answer: FetchedRow, asked: FetchRow) -> bool:
        echo = (answer.partition, answer.leader_epoch, answer.fetch_offset, answer.last_epoch)
        if echo == (asked.partition, asked.leader_epoch, asked.fetch_offset, asked.last_epoch):
            return True
        uncorrelated = answer.diverging_end >= 0 and not self.state.rules.r3_correlated
        return uncorrelated and answer.leader_epoch == self.state.leader_epoch

    def _truncate(self, epoch: int, end_offset: int) -> list[Effect]:
        """Truncate to the leader's end of `epoch`, or to this log's own end of it if that is lower.

        If this log lacks the epoch, the next fetch states an older one, and so on until
        both logs agree (KIP-279).
        """
        log_end = self.state.log.log_end_offset
        _, own_end = self.state.log.epochs.end_of(epoch, log_end)
        end = min(end_offset, own_end)
        committed = max(0, min(self.state.high_watermark, log_end) - end)
        self.state.high_watermark = min(self.state.high_watermark, end)
        return [Truncate(end, committed)]

    def _begin_again(self, answer: FetchedRow) -> list[Effect]:
        start, log = answer.log_start_offset, self.state.log
        if self._told is None or self._told.start != start:
            self._told = Told(start)
        if answer.known is not None and not self._told.learn(answer.known):
            return []  # The next fetch asks for the rest.
        told, self._told = self._told, None
        committed_end = min(self.state.high_watermark, log.log_end_offset)
        committed = max(0, committed_end - max(start, log.log_start_offset))
        self.state.high_watermark = start
        return [ResetLog(start, told.table, committed), Flush()]

    def on_fetched(self, leader_high_watermark: int) -> list[Effect]:
        """Raise the high watermark after a fetch response, at most to this log's own end (rule R5).

        A follower that holds every committed record has caught up, for this leader epoch.
        """
        end = min(leader_high_watermark, self.state.log.log_end_offset)
        self.caught_up |= end == leader_high_watermark
        if end <= self.state.high_watermark:
            return []
        self.state.high_watermark = end
        return [HighWatermarkAdvanced(end)]
