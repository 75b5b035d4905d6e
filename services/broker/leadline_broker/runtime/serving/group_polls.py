"""Polls of consumers of a group over HTTP: the records of what a consumer owns.

The coordinator says what a consumer owns and extends its lease; this broker reads, from whoever
leads. It keeps nothing between polls: the positions are in the cursor that the consumer returns.
So an answer that is lost loses no record, and the next poll may go to any broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec

from leadline_broker.runtime.cluster.coordinator_finder import CoordinatorFinder
from leadline_broker.runtime.ports import Peers
from leadline_broker.runtime.serving.fetched_data import FetchedData
from leadline_broker.runtime.serving.offset_finder import OffsetFinder
from leadline_broker.runtime.serving.routing import Reading, RoutedRecords
from leadline_client.errors import (
    ConnectionLost,
    CoordinatorNotAvailable,
    LeaderNotAvailable,
    LeadlineError,
    LogTruncated,
    NotCoordinator,
    OffsetOutOfRange,
    PollSuperseded,
    TopicIdMismatch,
)
from leadline_client.wire import TopicPartition
from leadline_common.access.caller import require
from leadline_common.access.rights import Action
from leadline_common.bulk_offsets import (
    EARLIEST,
    LATEST,
    BulkQuestion,
    PartitionAnswer,
    PartitionEnds,
    PartitionQuestion,
)
from leadline_common.clock import Clock
from leadline_common.group_polls import (
    AssignedRow,
    Cursor,
    Position,
    SyncAnswer,
    SyncRequest,
    TopicPositions,
    decode_cursor,
    encode_cursor,
)
from leadline_common.identity import ServiceAddress, ServiceIdentity
from leadline_common.rpc import NO_ERROR
from leadline_common.waiting import CountedWait

_SYNC_MS: Final = 10_000
_READ_MS: Final = 3_000
"""How long a poll reads, and how long one partition may delay the records of the others."""
_RETRY_MS: Final = 200
_WAIT_PART: Final = 3
"""A poll waits for at most this part of the session timeout: the rest is for processing."""


@dataclass(frozen=True, slots=True)
class GroupPoll:
    """One poll: who polls, what was received before, and how much to return."""

    group: str
    member: str
    secret: str
    cursor: str | None
    commit: bool
    max_records: int
    max_bytes: int
    wait_ms: int
    seek: Mapping[TopicPartition, int] = field(default_factory=dict)


class Reset(NamedTuple):
    """A position that was out of the log, or below which the log was truncated."""

    partition: TopicPartition
    before: int
    after: int


@dataclass(slots=True)
class Polled:
    """What a poll has found. `fetched` are batches with the position to begin at, by partition.

    The caller moves `positions` beyond the records that it returns. `begun` are partitions that
    begin at the end of their log as it is now. None of their records is returned before this is
    told: if the answer is lost, the next one begins later.
    """

    sync: SyncAnswer
    positions: dict[TopicPartition, Position] = field(default_factory=dict)
    fetched: dict[TopicPartition, FetchedData] = field(default_factory=dict)
    errors: dict[TopicPartition, LeadlineError] = field(default_factory=dict)
    resets: list[Reset] = field(default_factory=list)
    begun: set[TopicPartition] = field(default_factory=set)

    def rows(self) -> dict[TopicPartition, AssignedRow]:
        """Return the rows of the partitions that the consumer owns."""
        return {TopicPartition(row.topic, row.partition): row for row in self.sync.partitions}

    def must_be_told(self) -> bool:
        """Tell whether there is something that the consumer has to know at once."""
        broken = any(not error.retriable for error in self.errors.values())
        found = self.fetched or self.resets or self.begun or broken
        return bool(found or self.sync.revoked or self.sync.not_committed)

    def cursor(self) -> str:
        """Return the cursor of the answer."""
        topics: dict[str, TopicPositions] = {}
        for row in self.sync.partitions:
            position = self.positions.get(TopicPartition(row.topic, row.partition))
            if position is not None:
                of_topic = topics.setdefault(row.topic, TopicPositions(row.topic_id, {}))
                of_topic.partitions[row.partition] = position
        return encode_cursor(Cursor(self.sync.point, self.sync.generation, topics))


@dataclass(eq=False, kw_only=True)
class GroupPolls:
    """Serves polls. Owned by the event loop."""

    coordinators: CoordinatorFinder
    peers: Peers
    routed: RoutedRecords
    offset_finder: OffsetFinder
    clock: Clock

    async def poll(self, poll: GroupPoll) -> Polled:
        """Return records that the consumer owns; wait for some, or for a change, if asked.

        Raises:
            UnknownGroup, UnknownMember, FencedInstance, WrongMemberSecret: the consumer is no
                member (any more).
            Forbidden: it may not read what it is to read.
            PollSuperseded: the consumer has polled again meanwhile.
            CoordinatorNotAvailable: no coordinator answers; nothing was done.
            OutcomeUnknown: positions may be committed; the poll can be repeated.

        """
        cursor = decode_cursor(poll.cursor)
        request = SyncRequest(poll.secret, poll.cursor, poll.commit)
        sync = await self._sync(poll, request, _SYNC_MS)
        wait_ms = min(poll.wait_ms, sync.session_timeout_ms // _WAIT_PART)
        deadline = self.clock.monotonic_ms() + wait_ms
        polled = _first(sync, cursor, poll)
        while True:
            require(Action.READ, "topic", {row.topic for row in sync.partitions})
            polled = await self._read(polled, sync, poll)
            left_ms = int(deadline - self.clock.monotonic_ms())
            is_last = left_ms <= 0 or not poll.max_records or self.offset_finder.is_stopping
            if is_last or polled.must_be_told():
                return polled
            with CountedWait():
                news = await self._wait(poll, polled, left_ms)
            if news is not None and news.superseded:
                raise PollSuperseded("this consumer has polled again meanwhile: poll one at a time")
            if news is not None and news.changed:
                # Without a commit: it was made above, and the cursor has not moved since.
                again = msgspec.structs.replace(request, commit=False)
                sync = await self._sync(poll, again, _SYNC_MS)

    async def _sync(self, poll: GroupPoll, request: SyncRequest, timeout_ms: int) -> SyncAnswer:
        found = self.coordinators.current
        if found is None:
            raise CoordinatorNotAvailable("no coordinator of consumer groups is active")
        service = ServiceIdentity("coordinator", found.id)
        to = ServiceAddress(service, found.url, found.internal_url)
        try:
            return await self.peers.sync_consumer(to, poll.group, poll.member, request, timeout_ms)
        except NotCoordinator:
            # Who polls a broker has no better way to the next coordinator than it.
            raise CoordinatorNotAvailable("another coordinator is being elected") from None

    async def _read(self, before: Polled, sync: SyncAnswer, poll: GroupPoll) -> Polled:
        """Return what there is to read now, without waiting, from where `before` has come to."""
        polled, known = Polled(sync), before.rows()
        rows = polled.rows()
        for one, row in rows.items():
            position = before.positions.get(one)
            if position is None or known[one].since != row.since:
                position = None if row.offset is None else Position(row.offset, row.leader_epoch)
            if position is not None:
                polled.positions[one] = position
        await self._find_starts(polled, rows)
        if poll.max_records:
            await self._fetch(polled, rows, poll)
        return polled

    async def _find_starts(
        self, polled: Polled, rows: Mapping[TopicPartition, AssignedRow]
    ) -> None:
        """Find the position of partitions of which nothing was committed."""
        missing = [one for one in rows if one not in polled.positions]
        timestamp = EARLIEST if polled.sync.offset_reset == "earliest" else LATEST
        for answer in await self._ends(missing, timestamp):
            row = rows[answer.topic_partition]
            if not self._may_be_of_topic(row):
                mismatch = TopicIdMismatch(f"topic {row.topic} was deleted and recreated")
                polled.errors[answer.topic_partition] = mismatch
            elif answer.offsets is None or answer.offsets.offset is None:
                polled.errors[answer.topic_partition] = _error_of(answer)
            else:
                position = Position(answer.offsets.offset, answer.offsets.last_epoch)
                polled.positions[answer.topic_partition] = position
                if timestamp == LATEST:
                    polled.begun.add(answer.topic_partition)

    def _may_be_of_topic(self, row: AssignedRow) -> bool:
        """Tell whether the offsets of a partition are not known to be of another topic (R1)."""
        replica = self.routed.serving.replicas.named(row.topic, row.partition)
        known = self.routed.metadata.topic_id(row.topic) if replica is None else replica.topic_id
        return known in (None, row.topic_id)

    async def _ends(
        self, asked: Sequence[TopicPartition], timestamp: int | None = None
    ) -> Sequence[PartitionAnswer]:
        if not asked:
            return ()
        questions = [PartitionQuestion(*one, timestamp) for one in asked]
        return (await self.offset_finder.answer(BulkQuestion(partitions=questions))).partitions

    async def _fetch(
        self, polled: Polled, rows: Mapping[TopicPartition, AssignedRow], poll: GroupPoll
    ) -> None:
        """Fetch partitions that have records beyond their positions, until there are enough."""
        waiting = [one for one in polled.positions if one not in polled.begun]
        first = polled.sync.point.answer % len(waiting) if waiting else 0
        left, give_up_ms = poll.max_bytes, self.clock.monotonic_ms() + _READ_MS
        for answer in await self._ends([*waiting[first:], *waiting[:first]]):
            one = answer.topic_partition
            if answer.offsets is None:
                polled.errors[one] = _error_of(answer)
                continue
            if _is_at_end(polled.positions[one], answer.offsets):
                continue
            enough = left <= 0 or len(polled.fetched) >= poll.max_records
            if enough or self.clock.monotonic_ms() >= give_up_ms:
                break
            await self._fetch_one(polled, rows[one], left)
            if one in polled.fetched:
                left -= len(polled.fetched[one].records)

    async def _fetch_one(self, polled: Polled, row: AssignedRow, max_bytes: int) -> None:
        one = TopicPartition(row.topic, row.partition)
        position = polled.positions[one]
        # The log of another topic of this name must not reset the position (rule R1).
        reading = Reading(
            offset=position.offset,
            max_bytes=max_bytes,
            last_epoch=position.leader_epoch,
            topic_id=row.topic_id,
        )
        try:
            async with asyncio.timeout(_READ_MS / 1000):
                data = await self.routed.fetch(*one, reading)
        except TimeoutError:
            polled.errors[one] = LeaderNotAvailable(f"the leader of {one} did not answer in time")
        except LogTruncated as truncated:
            epoch = truncated.divergence_epoch
            self._reset(polled, one, Position(truncated.divergence_offset, epoch))
        except OffsetOutOfRange as error:
            earliest = polled.sync.offset_reset == "earliest"
            after = error.details["log_start_offset" if earliest else "high_watermark"]
            self._reset(polled, one, Position(int(after)))
        except LeadlineError as error:
            polled.errors[one] = error
        else:
            if data.records:
                polled.fetched[one] = data

    @staticmethod
    def _reset(polled: Polled, one: TopicPartition, after: Position) -> None:
        polled.resets.append(Reset(one, polled.positions[one].offset, after.offset))
        polled.positions[one] = after

    async def _wait(self, poll: GroupPoll, polled: Polled, left_ms: int) -> SyncAnswer | None:
        """Wait until a partition has records, or the coordinator has news, which are returned."""
        if polled.errors:
            # A partition that cannot be read may have records, which would end the wait at once.
            pause_ms = min(left_ms, _RETRY_MS)
            await asyncio.sleep(pause_ms / 1000)
            left_ms -= pause_ms
        watch = SyncRequest(poll.secret, watch=polled.sync.point, wait_ms=left_ms)
        news = asyncio.create_task(self._sync(poll, watch, left_ms + _SYNC_MS))
        records = asyncio.create_task(self._wait_for_records(polled.positions, left_ms))
        tasks = (news, records)
        try:
            await asyncio.wait(tasks, timeout=left_ms / 1000, return_when=asyncio.FIRST_COMPLETED)
            if not news.done():
                return None
            try:
                return news.result()
            except (CoordinatorNotAvailable, ConnectionLost):
                # The lease holds without the coordinator: go on waiting for records.
                await asyncio.wait((records,), timeout=min(left_ms, _RETRY_MS) / 1000)
                return None
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _wait_for_records(
        self, positions: Mapping[TopicPartition, Position], left_ms: int
    ) -> None:
        if not positions:
            await self.offset_finder.until_stopping()
            return
        after: dict[str, dict[int, int]] = {}
        for one, position in positions.items():
            after.setdefault(one.topic, {})[one.partition] = position.offset
        question = BulkQuestion(
            partitions=[PartitionQuestion(*one) for one in positions],
            wait_ms=min(left_ms, 30_000),
            after=after,
        )
        await self.offset_finder.answer(question)


def _first(sync: SyncAnswer, cursor: Cursor | None, poll: GroupPoll) -> Polled:
    """Return where a poll continues: where it seeks to, or else at the cursor's positions.

    A position of the cursor is valid if the consumer has owned the partition ever since.
    """
    polled = Polled(sync)
    frame = -1
    if cursor is not None:
        point = cursor.point
        same = (point.epoch, point.connection) == (sync.point.epoch, sync.point.connection)
        frame = point.frame if same else 0
    for one, row in polled.rows().items():
        if one in poll.seek:
            polled.positions[one] = Position(poll.seek[one])
        elif cursor is not None and row.since <= frame:
            position = cursor.position(row.topic, row.topic_id, row.partition)
            if position is not None:
                polled.positions[one] = position
    return polled


def _is_at_end(position: Position, ends: PartitionEnds) -> bool:
    """Tell whether a consumer has read all committed records of a log.

    A log may end where the consumer stands, and have records of a later epoch than it has read: its
    partition was removed and added again, or elected uncleanly. The fetch tells from where to read.
    """
    read, last = position.leader_epoch, ends.last_epoch
    if read is not None and last is not None and last > read:
        return False
    first = max(ends.high_watermark, ends.log_start_offset)
    return first <= position.offset <= ends.log_end_offset


def _error_of(answer: PartitionAnswer) -> LeadlineError:
    if answer.error_code == NO_ERROR:
        return LeaderNotAvailable(f"the end of {answer.topic_partition} is unknown")
    return LeaderNotAvailable(f"{answer.topic_partition}: {answer.message}")
