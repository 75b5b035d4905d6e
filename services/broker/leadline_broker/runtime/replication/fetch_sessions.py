"""Serving followers: incremental fetch sessions (seed 1 G at the leader; the KIP-227 idea).

A session remembers where a follower stands in each partition, so that a request
names only what changed, and the answer only partitions with news. Partitions
tell their sessions when something happens: an idle partition costs nothing,
however many there are.

News are records, a divergence, an error, or a changed high watermark; the last
does not end a wait by itself, but travels with the next answer. A partition that
was answered with an error leaves the session, and the follower names it again
when it has something new to say.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from leadline_broker.domain.effects import Effect
from leadline_broker.runtime.ports import ReplicaKey
from leadline_broker.runtime.replication.partition import Partition
from leadline_broker.runtime.replication.throttle import Throttle
from leadline_client.errors import (
    FetchSessionUnknown,
    LeadlineError,
    StaleIncarnation,
    UnknownPartition,
)
from leadline_common.clock import Clock
from leadline_common.rpc import (
    NO_ERROR,
    FetchedRow,
    FetchedTopic,
    FetchRow,
    ReplicaFetchRequest,
    ReplicaFetchResponse,
)

Execute = Callable[[Partition, list[Effect]], None]
Find = Callable[[ReplicaKey], Partition | None]

_LEFT_BEHIND_MS: Final = 600_000
"""After how long a session without a request is one that its follower has left."""


@dataclass(slots=True)
class _Position:
    """Where a follower stands in one partition, and the high watermark it was told.

    `void`: this leader no longer counts it, so the follower must state it anew.
    """

    partition: Partition
    row: FetchRow
    told_high_watermark: int = -1
    void: bool = False


class FetchSession:
    """One follower's fetches over one connection. A `Subscriber` of its partitions."""

    def __init__(self, request: ReplicaFetchRequest, sending: Throttle) -> None:
        self._sending = sending
        self.id = request.session
        self.broker_id = request.broker_id
        self.incarnation = request.incarnation
        self.last_nonce = request.nonce - 1
        self.last_request_ms = 0
        self._positions: dict[Partition, _Position] = {}
        self._with_records: dict[Partition, None] = {}
        self._with_high_watermark: dict[Partition, None] = {}
        self._new_bytes = 0
        self._min_bytes = 1
        self._parked: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        return len(self._positions)

    # -- what partitions tell --------------------------------------------------

    def on_appended(self, partition: Partition, size: int) -> None:
        """Note `size` bytes to send, and answer if they are enough and may be sent."""
        self._with_records[partition] = None
        if not self._room(partition, size):
            return
        self._new_bytes += size
        if self._new_bytes >= self._min_bytes:
            self.wake()

    def on_high_watermark(self, partition: Partition) -> None:
        """Note that the follower does not know the high watermark."""
        self._with_high_watermark[partition] = None

    def on_role_change(self, partition: Partition) -> None:
        """Have the follower ask anew: what was counted of it no longer holds."""
        position = self._positions.get(partition)
        if position is not None:
            position.void = True
            self._with_records[partition] = None
            self.wake()

    # -- what the follower says ------------------------------------------------

    def place(self, partition: Partition, row: FetchRow) -> None:
        """Remember where the follower stands; a partition is in one session of a follower."""
        if partition not in self._positions:
            for other in list(partition.subscribers or ()):
                if other.broker_id == self.broker_id:
                    other.forget(partition)
            partition.subscribe(self)
        known = self._positions.get(partition)
        told = -1 if known is None else known.told_high_watermark
        position = self._positions[partition] = _Position(partition, row, told)
        if partition.replica.state.high_watermark != position.told_high_watermark:
            self._with_high_watermark[partition] = None
        if row.fetch_offset < partition.log.log_end_offset:
            self._with_records[partition] = None
        else:
            self._with_records.pop(partition, None)

    def forget(self, partition: Partition) -> None:
        """Drop a partition from the session."""
        if self._positions.pop(partition, None) is not None:
            partition.unsubscribe(self)
            self._with_records.pop(partition, None)
            self._with_high_watermark.pop(partition, None)

    def close(self) -> None:
        """Drop all partitions and answer a parked request."""
        for partition in list(self._positions):
            self.forget(partition)
        self.wake()

    # -- waiting and answering -------------------------------------------------

    async def wait_for_news(self, wait_ms: int, min_bytes: int) -> None:
        """Park until `min_bytes` come in, there is an error, or `wait_ms` have passed.

        What is there already is answered at once, or when the throttle lets it go.
        """
        if any(self._room(partition, 1) for partition in self._with_records):
            return
        if self._with_records:
            wait_ms = min(wait_ms, math.ceil(self._sending.delay_ms()))
        self._new_bytes = 0
        self._min_bytes = min_bytes
        parked = self._parked = asyncio.get_running_loop().create_future()
        timer = asyncio.get_running_loop().call_later(wait_ms / 1000, _resolve, parked)
        try:
            await parked
        finally:
            timer.cancel()

    def wake(self) -> None:
        """Answer a parked request now."""
        parked, self._parked = self._parked, None
        if parked is not None:
            _resolve(parked)

    def news(self, max_bytes: int) -> Iterator[tuple[Partition, FetchedRow]]:
        """Yield answers with news: records in the order in which they came up, to `max_bytes`.

        What does not fit stays first in line for the next answer. Moving replicas
        come last and stay within the throttle.
        """
        left = max_bytes
        for partition in sorted(self._with_records, key=self._moves):
            if left <= 0:
                break
            room = self._room(partition, left)
            if not room:
                continue
            del self._with_records[partition]
            answer = self._read(self._positions[partition], room)
            left -= len(answer.records)
            if self._moves(partition):
                self._sending.take(len(answer.records))
            yield partition, answer
        told, self._with_high_watermark = self._with_high_watermark, {}
        for partition in told:
            position = self._positions.get(partition)
            if position is not None and self._owes_high_watermark(position):
                answer = partition.replica.peek(position.row)
                position.told_high_watermark = answer.high_watermark
                yield partition, answer

    def _moves(self, partition: Partition) -> bool:
        return partition.replica.state.moves(self.broker_id)

    def _room(self, partition: Partition, size: int) -> int:
        """Return how much of `size` bytes the throttle lets go for a partition."""
        position = self._positions[partition]
        if position.void or not self._moves(partition):
            return size
        return min(size, self._sending.available())

    def _owes_high_watermark(self, position: _Position) -> bool:
        return position.told_high_watermark != position.partition.replica.state.high_watermark

    def _read(self, position: _Position, max_bytes: int) -> FetchedRow:
        """Return the records after the follower's position, or why there are none."""
        log, row = position.partition.log, position.row
        answer = position.partition.replica.peek(row)
        position.told_high_watermark = answer.high_watermark
        if answer.error_code != NO_ERROR:
            return answer
        if position.void:
            return _replace(answer, error_code=FetchSessionUnknown.code)
        try:
            records = log.read(row.fetch_offset, max_bytes, log.log_end_offset)
        except LeadlineError as error:
            return _replace(answer, error_code=error.code)
        return _replace(answer, records=records)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _replace(row: FetchedRow, *, error_code: int = NO_ERROR, records: bytes = b"") -> FetchedRow:
    return FetchedRow(
        row.partition,
        row.leader_epoch,
        row.fetch_offset,
        row.last_epoch,
        error_code,
        row.high_watermark,
        row.log_start_offset,
        records=records,
    )


class FetchSessions:
    """All sessions of this leader's followers. Owned by the event loop."""

    def __init__(self, *, find: Find, execute: Execute, clock: Clock, sending: Throttle) -> None:
        self._sending = sending
        self._find = find
        self._execute = execute
        self._clock = clock
        self._sessions: dict[tuple[int, int], FetchSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    async def fetch(self, request: ReplicaFetchRequest, incarnation: int) -> ReplicaFetchResponse:
        """Count what the follower states and answer with news (on_ReplicaFetchRequest).

        `incarnation` is this broker's own. Error codes of the whole answer:
        FetchSessionUnknown, StaleIncarnation.
        """
        session = self._session(request)
        if isinstance(session, int):
            return ReplicaFetchResponse(request.nonce, incarnation, session, [])
        session.last_nonce = request.nonce
        session.wake()
        answers = _Answers()
        self._count(session, request, answers)
        if not answers:
            await session.wait_for_news(request.wait_ms, request.min_bytes)
        if session.last_nonce != request.nonce:
            # Nobody waits for this answer any more: the follower has asked again.
            return ReplicaFetchResponse(request.nonce, incarnation, NO_ERROR, [])
        for partition, answer in session.news(request.max_bytes - answers.size):
            if answer.error_code != NO_ERROR:
                session.forget(partition)
            answers.add(partition.topic_id, answer)
        return ReplicaFetchResponse(request.nonce, incarnation, NO_ERROR, answers.topics())

    def close_all(self) -> None:
        """Answer every parked request: this broker no longer leads."""
        for session in self._sessions.values():
            session.close()
        self._sessions.clear()

    def _session(self, request: ReplicaFetchRequest) -> FetchSession | int:
        """Return the session of a request, opened if it asks for that, or an error code."""
        mine = [s for s in self._sessions.values() if s.broker_id == request.broker_id]
        if any(session.incarnation > request.incarnation for session in mine):
            return StaleIncarnation.code
        for session in mine:
            if session.incarnation < request.incarnation:
                self._close(session)
        found = self._sessions.get((request.broker_id, request.session))
        if found is not None:
            return found if request.nonce > found.last_nonce else FetchSessionUnknown.code
        if request.session != request.nonce:
            return FetchSessionUnknown.code
        found = self._sessions[request.broker_id, request.session] = FetchSession(
            request, self._sending
        )
        return found

    def _close(self, session: FetchSession) -> None:
        session.close()
        self._sessions.pop((session.broker_id, session.id), None)

    def _count(
        self, session: FetchSession, request: ReplicaFetchRequest, answers: _Answers
    ) -> None:
        """Take the follower's rows into the session, or answer those that cannot be."""
        now = session.last_request_ms = self._clock.monotonic_ms()
        for forgotten in request.forgotten:
            for number in forgotten.partitions:
                partition = self._find((forgotten.topic_id, number))
                if partition is not None:
                    session.forget(partition)
        for topic in request.topics:
            for row in topic.partitions:
                partition = self._find((topic.topic_id, row.partition))
                if partition is None:
                    answers.add(topic.topic_id, _unknown(row))
                    continue
                answer, effects = partition.replica.on_replica_fetch(
                    row,
                    broker_id=request.broker_id,
                    incarnation=request.incarnation,
                    nonce=request.nonce,
                    now=now,
                    leaving=request.leaving,
                )
                if effects:
                    self._execute(partition, effects)
                if answer.error_code == NO_ERROR and answer.diverging_end < 0:
                    session.place(partition, row)
                else:
                    session.forget(partition)
                    answers.add(topic.topic_id, answer)
        if request.session == request.nonce:
            self._close_replaced(session)

    def _close_replaced(self, opened: FetchSession) -> None:
        """Close the sessions that a new one of the same follower has replaced.

        One that holds a partition which is followed no more is known by its silence.
        """
        left = opened.last_request_ms - _LEFT_BEHIND_MS
        for session in list(self._sessions.values()):
            replaced = not len(session) or session.last_request_ms < left
            if session is not opened and session.broker_id == opened.broker_id and replaced:
                self._close(session)


class _Answers:
    """Rows of one answer, grouped by topic."""

    def __init__(self) -> None:
        self._topics: dict[str, list[FetchedRow]] = {}
        self.size = 0

    def __bool__(self) -> bool:
        return bool(self._topics)

    def add(self, topic_id: str, row: FetchedRow) -> None:
        self._topics.setdefault(topic_id, []).append(row)
        self.size += len(row.records)

    def topics(self) -> list[FetchedTopic]:
        return [FetchedTopic(topic_id, rows) for topic_id, rows in self._topics.items()]


def _unknown(row: FetchRow) -> FetchedRow:
    return FetchedRow(
        row.partition,
        row.leader_epoch,
        row.fetch_offset,
        row.last_epoch,
        UnknownPartition.code,
        -1,
        0,
    )
