"""Serving followers: incremental fetch sessions, as in KIP-227.

Replication V3, section G, leader side. A session stores the follower's position in each
partition, so that a request names only changed positions, and the response only partitions
with updates. Partitions notify their sessions of changes, so idle partitions cost nothing.

An update is records, a divergence, an error, or a changed high watermark. A high watermark
alone does not end a wait; it is part of the next response. A partition that returned an error
leaves the session until the follower names it again.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from leadline_broker.domain.state import ReplicaKey
from leadline_broker.runtime.cluster.broker_state import BrokerState
from leadline_broker.runtime.replication.fetch_answers import FetchAnswers
from leadline_broker.runtime.replication.partition import Execute, Partition
from leadline_broker.runtime.replication.repairs import ReadLog
from leadline_broker.runtime.replication.throttle import MovingThrottle
from leadline_client.errors import (
    FetchSessionUnknown,
    LeadlineError,
    StaleIncarnation,
)
from leadline_common.clock import Clock
from leadline_common.rpc import (
    NO_ERROR,
    FetchedRow,
    FetchRow,
    ReplicaFetchRequest,
    ReplicaFetchResponse,
)
from leadline_common.waiting import CountedWait

_ABANDONED_MS: Final = 600_000
"""A session without a request for this long is abandoned."""


@dataclass(slots=True)
class _Position:
    """A follower's position in one partition, and the last high watermark sent to it.

    `reset`: the leader has reset the follower's progress, so the follower must state its
    position again.
    """

    partition: Partition
    row: FetchRow
    sent_high_watermark: int = -1
    reset: bool = False


class FetchSession:
    """One follower's fetches over one connection; a `Subscriber` of its partitions."""

    def __init__(
        self, request: ReplicaFetchRequest, throttle: MovingThrottle, read: ReadLog
    ) -> None:
        self._throttle, self._read_log = throttle, read
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

    # -- notifications of partitions -------------------------------------------

    def on_appended(self, partition: Partition, size: int) -> None:
        """Record `size` bytes to send, and respond if they are enough and not throttled."""
        self._with_records[partition] = None
        if not self._allowed(partition, size):
            return
        self._new_bytes += size
        if self._new_bytes >= self._min_bytes:
            self.wake()

    def on_high_watermark(self, partition: Partition) -> None:
        """Record that the follower must be sent the new high watermark."""
        self._with_high_watermark[partition] = None

    def on_reset(self, partition: Partition) -> None:
        """Make the follower state its position again, because its progress was reset."""
        position = self._positions.get(partition)
        if position is not None:
            position.reset = True
            self._with_records[partition] = None
            self.wake()

    # -- requests of the follower ----------------------------------------------

    def update(self, partition: Partition, row: FetchRow) -> None:
        """Store the follower's position, and drop it from the follower's other sessions."""
        if partition not in self._positions:
            for other in list(partition.subscribers or ()):
                if other.broker_id == self.broker_id:
                    other.forget(partition)
            partition.subscribe(self)
        known = self._positions.get(partition)
        sent = -1 if known is None else known.sent_high_watermark
        position = self._positions[partition] = _Position(partition, row, sent)
        if partition.replica.state.high_watermark != position.sent_high_watermark:
            self._with_high_watermark[partition] = None
        if row.fetch_offset < partition.log.log_end_offset:
            self._with_records[partition] = None
        else:
            self._with_records.pop(partition, None)

    def forget(self, partition: Partition) -> None:
        """Remove a partition from the session."""
        if self._positions.pop(partition, None) is not None:
            partition.unsubscribe(self)
            self._with_records.pop(partition, None)
            self._with_high_watermark.pop(partition, None)

    def close(self) -> None:
        """Remove all partitions and answer a waiting request."""
        for partition in list(self._positions):
            self.forget(partition)
        self.wake()

    # -- responses -------------------------------------------------------------

    async def wait_for_updates(self, wait_ms: int, min_bytes: int) -> None:
        """Wait for `min_bytes` of new records or an error, at most `wait_ms`.

        Returns at once if there are records already, or as soon as the throttle allows them.
        """
        if any(self._allowed(partition, 1) for partition in self._with_records):
            return
        if self._with_records:
            wait_ms = min(wait_ms, math.ceil(self._throttled_ms()))
        self._new_bytes = 0
        self._min_bytes = min_bytes
        parked = self._parked = asyncio.get_running_loop().create_future()
        timer = asyncio.get_running_loop().call_later(wait_ms / 1000, _resolve, parked)
        try:
            await parked
        finally:
            timer.cancel()

    def wake(self) -> None:
        """Answer a waiting request now."""
        parked, self._parked = self._parked, None
        if parked is not None:
            _resolve(parked)

    def updates(self, max_bytes: int) -> Iterator[tuple[Partition, FetchedRow]]:
        """Yield the rows of a response, with at most `max_bytes` of records, oldest update first.

        Partitions that do not fit come first in the next response. Moving replicas come last
        and stay within the throttle.
        """
        left = max_bytes
        for partition in sorted(self._with_records, key=self._moves):
            if left <= 0:
                break
            allowed = self._allowed(partition, left)
            if not allowed:
                continue
            del self._with_records[partition]
            answer = self._read(self._positions[partition], allowed)
            left -= len(answer.records)
            if self._moves(partition):
                self._throttle.sending.take(self._group_of(partition), len(answer.records))
            yield partition, answer
        changed, self._with_high_watermark = self._with_high_watermark, {}
        for partition in changed:
            position, current = self._positions.get(partition), partition.replica.state
            if position is not None and position.sent_high_watermark != current.high_watermark:
                answer = partition.replica.peek(position.row)
                position.sent_high_watermark = answer.high_watermark
                yield partition, answer

    def _moves(self, partition: Partition) -> bool:
        return partition.replica.state.moves(self.broker_id)

    def _group_of(self, partition: Partition) -> str:
        return self._throttle.group_of(partition.key)

    def _throttled_ms(self) -> float:
        """Return how long the throttle forbids sending anything that there is to send."""
        groups = {self._group_of(one) for one in self._with_records if self._moves(one)}
        return min(map(self._throttle.sending.delay_ms, groups), default=0.0)

    def _allowed(self, partition: Partition, size: int) -> int:
        """Return how many of `size` bytes the throttle allows for a partition."""
        position = self._positions[partition]
        if position.reset or not self._moves(partition):
            return size
        return min(size, self._throttle.sending.available(self._group_of(partition)))

    def _read(self, position: _Position, max_bytes: int) -> FetchedRow:
        """Return the records from the follower's position on, or an error."""
        log, row = position.partition.log, position.row
        answer = position.partition.replica.peek(row)
        position.sent_high_watermark = answer.high_watermark
        if answer.error_code != NO_ERROR:
            return answer
        if position.reset:
            return replace(answer, error_code=FetchSessionUnknown.code)
        try:
            end = log.log_end_offset
            records = self._read_log(position.partition, row.fetch_offset, max_bytes, end)
        except LeadlineError as error:
            return replace(answer, error_code=error.code)
        return replace(answer, records=records)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


@dataclass(eq=False, kw_only=True)
class FetchSessions:
    """All sessions of this leader's followers. Owned by the event loop."""

    broker_state: BrokerState
    find: Callable[[ReplicaKey], Partition | None]
    execute: Execute
    clock: Clock
    throttle: MovingThrottle
    read: ReadLog
    _sessions: dict[tuple[int, int], FetchSession] = field(default_factory=dict, init=False)

    def __len__(self) -> int:
        return len(self._sessions)

    async def fetch(self, request: ReplicaFetchRequest) -> ReplicaFetchResponse:
        """Record the follower's positions and return updates (on_ReplicaFetchRequest).

        Error codes of the whole response: FetchSessionUnknown, StaleIncarnation.
        """
        incarnation = self.broker_state.incarnation
        session = self._session(request)
        if isinstance(session, int):
            return ReplicaFetchResponse(request.nonce, incarnation, session, [])
        session.last_nonce = request.nonce
        session.wake()
        answers = FetchAnswers(takes_parts=request.takes_parts)
        self._record_positions(session, request, answers)
        if not answers:
            with CountedWait():
                await session.wait_for_updates(request.wait_ms, request.min_bytes)
        if session.last_nonce != request.nonce:
            # The follower has sent another request and ignores this response.
            return ReplicaFetchResponse(request.nonce, incarnation, NO_ERROR, [])
        for partition, answer in session.updates(request.max_bytes - answers.size):
            if answer.error_code != NO_ERROR:
                session.forget(partition)
            answers.add(partition.topic_id, answers.with_known(partition, answer))
        return ReplicaFetchResponse(request.nonce, incarnation, NO_ERROR, answers.topics())

    def close_all(self) -> None:
        """Answer every waiting request, because this broker no longer leads."""
        for session in self._sessions.values():
            session.close()
        self._sessions.clear()

    def _session(self, request: ReplicaFetchRequest) -> FetchSession | int:
        """Return the session of a request, which may open it, or an error code."""
        of_follower = [s for s in self._sessions.values() if s.broker_id == request.broker_id]
        if any(session.incarnation > request.incarnation for session in of_follower):
            return StaleIncarnation.code
        for session in of_follower:
            if session.incarnation < request.incarnation:
                self._close(session)
        found = self._sessions.get((request.broker_id, request.session))
        if found is not None:
            return found if request.nonce > found.last_nonce else FetchSessionUnknown.code
        if request.session != request.nonce:
            return FetchSessionUnknown.code
        found = self._sessions[request.broker_id, request.session] = FetchSession(
            request, self.throttle, self.read
        )
        return found

    def _close(self, session: FetchSession) -> None:
        session.close()
        self._sessions.pop((session.broker_id, session.id), None)

    def _record_positions(
        self, session: FetchSession, request: ReplicaFetchRequest, answers: FetchAnswers
    ) -> None:
        """Add the follower's rows to the session; add errors and divergence to `answers`."""
        now = session.last_request_ms = self.clock.monotonic_ms()
        for forgotten in request.forgotten:
            for number in forgotten.partitions:
                partition = self.find((forgotten.topic_id, number))
                if partition is not None:
                    session.forget(partition)
        for topic in request.topics:
            for row in topic.partitions:
                partition = self.find((topic.topic_id, row.partition))
                if partition is None:
                    answers.add_unknown(topic.topic_id, row)
                    continue
                answer = self._record_position(partition, row, request, now)
                if answer.error_code == NO_ERROR and answer.diverging_end < 0:
                    session.update(partition, row)
                else:
                    session.forget(partition)
                    answers.add(topic.topic_id, answers.with_known(partition, answer, row.told))
        if request.session == request.nonce:
            self._close_replaced(session)

    def _record_position(
        self, partition: Partition, row: FetchRow, request: ReplicaFetchRequest, now: int
    ) -> FetchedRow:
        answer, effects = partition.replica.on_replica_fetch(
            row,
            broker_id=request.broker_id,
            incarnation=request.incarnation,
            nonce=request.nonce,
            now=now,
            leaving=request.leaving,
        )
        if partition.traced_waits is not None and answer.error_code == NO_ERROR:
            partition.note_durable(request.broker_id, row.fetch_offset)
        if effects:
            self.execute(partition, effects)
        return answer

    def _close_replaced(self, opened: FetchSession) -> None:
        """Close the sessions of the same follower that are empty or abandoned.

        A session may keep a partition that the follower no longer follows.
        """
        abandoned_since = opened.last_request_ms - _ABANDONED_MS
        for session in list(self._sessions.values()):
            replaced = not len(session) or session.last_request_ms < abandoned_since
            if session is not opened and session.broker_id == opened.broker_id and replaced:
                self._close(session)
