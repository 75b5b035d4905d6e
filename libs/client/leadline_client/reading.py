"""The position of a reader in a partition, and how it moves.

A reader delivers each offset at most once and in order: it never goes back and
never skips, whichever broker leads the partition (rule R15). It drops responses of
former leaders, treats a recreated topic as another topic, and raises when its offset
is out of range. Each fetch states the leader epoch of the last record, so that a leader
whose log lacks that record refuses: the log was truncated (KIP-320).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain
from typing import Literal, NamedTuple, TypeAlias, TypeVar

from leadline_client import batches
from leadline_client.batch_header import BatchHeader, parse_headers
from leadline_client.codec import SupportsPlace, SupportsStored
from leadline_client.core import DEFAULT_MAX_BYTES, ClientCore
from leadline_client.errors import (
    CorruptBatch,
    LogTruncated,
    OffsetOutOfRange,
    TopicIdMismatch,
    UnreadableBatch,
)
from leadline_client.flows import Flow
from leadline_client.payloads import FetchedBatches, foreign_answer
from leadline_client.read_history import ReadHistory
from leadline_client.wire import LogPosition, Record, ReplicaChoice

R = TypeVar("R", bound=SupportsPlace)

Start: TypeAlias = Literal["earliest", "latest"] | int | LogPosition
"""Where to begin: at the log start offset, at the high watermark, at an offset, or at a position.

A position also has the leader epoch of the record before it, so that a truncation that happened
before the first read is noticed too.
"""


class StoredBatches(NamedTuple):
    """Whole batches as they are stored, and the offset from which on they were read."""

    batches: bytes
    start: int


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """The size of one read (bytes), and how long the broker may wait for `min_bytes` (ms).

    `replica`: `any` reads from in-sync followers too, and from those in `rack` first.
    """

    max_bytes: int = DEFAULT_MAX_BYTES
    min_bytes: int = 1
    wait_ms: int = 500
    replica: ReplicaChoice = "leader"
    rack: str | None = None

    def with_replica(self, replica: ReplicaChoice, rack: str | None) -> ReadLimits:
        """Return these limits with another choice of replicas, unless that is the default."""
        return self if replica == "leader" else replace(self, replica=replica, rack=rack)


class FetchPosition:
    """The position of one reader in one partition."""

    def __init__(self, core: ClientCore, topic: str, partition: int, start: Start) -> None:
        self.topic = topic
        self.partition = partition
        self.high_watermark = -1
        self._core = core
        self._topic_id: str | None = None
        self._leader_epoch = -1
        self._recreated = False
        self.seek(start)

    @property
    def offset(self) -> int:
        """The offset of the next record; -1 until the leader was asked for it."""
        return -1 if self._history is None else self._history.offset

    @property
    def leader_epoch(self) -> int:
        """The leader epoch of the last answer; -1 until the first read."""
        return self._leader_epoch

    @property
    def topic_id(self) -> str | None:
        """The id of the topic that is read; None until the first read."""
        return self._topic_id

    def expect_topic(self, topic_id: str) -> None:
        """Read only the topic with this id: the position belongs to it."""
        self._topic_id = topic_id

    def seek(self, start: Start) -> None:
        """Continue at `start`; only this can move a reader back.

        After a TopicIdMismatch it is a position in the topic that has the name now.
        """
        if self._recreated:
            self._topic_id, self._leader_epoch, self._recreated = None, -1, False
        self.return_to(start)

    def return_to(self, start: Start) -> None:
        """Continue at `start` in the topic that has been read so far."""
        self._start = start
        self._history: ReadHistory | None = None
        if not isinstance(start, str):
            position = start if isinstance(start, LogPosition) else LogPosition(start)
            self._history = ReadHistory(position)

    def seek_to_time(self, timestamp: int) -> Flow[int]:
        """Continue at the first record of `timestamp` (Unix ms) or later, or else at the end.

        Returns its offset. If the search fails, the position does not change.
        """
        position = yield from self._core.position_for_timestamp(
            self.topic, self.partition, timestamp
        )
        self.seek(position)
        return position.offset

    def locate(self) -> Flow[int]:
        """Return the offset of the next record; ask the leader if it is not known yet."""
        return (yield from self._located()).offset

    def position_at(self, offset: int) -> LogPosition:
        """Return an offset with the leader epoch of the record before it, if that was read."""
        return LogPosition(offset) if self._history is None else self._history.position_at(offset)

    def read(self, limits: ReadLimits) -> Flow[list[Record]]:
        """Return the next records and move behind them; return none if none came in time.

        See `read_chunks`.
        """
        chunks = yield from self.read_chunks(limits, batches.stored_records)
        return list(chain.from_iterable(chunks))

    def read_chunks(
        self, limits: ReadLimits, make: Callable[[Iterable[SupportsStored]], list[R]]
    ) -> Flow[Iterator[list[R]]]:
        """Move behind the next records; return what `make` makes of them, in lists.

        No list is empty. Each is decoded when it is asked for, but the first one at once. A later
        one that cannot be decoded ends the lists, and the position returns to behind the records
        before it, so that the next read raises. So ask for none after a `seek`.

        Raises:
            LogTruncated: the log was truncated below the position (KIP-320).
            OffsetOutOfRange: the position is before the log start or beyond the end.
            TopicIdMismatch: the topic was deleted and recreated meanwhile.
            UnreadableBatch: the next batch cannot be decoded; the position stays before it. To skip
                it, seek to the error's `next_offset`.
            CorruptBatch: a header is invalid, or a batch does not follow the one before it.
            ConnectionLost: the answer contradicts itself about the offset to read on at.

        """
        fetched = yield from self._fetched(limits)
        if fetched is None:
            return iter(())
        start = self.offset
        decoded = batches.decode_chunks(fetched.batches, make)
        chunks = (kept for chunk in decoded if (kept := _from(start, chunk)))
        try:
            first = next(chunks, None)
        except UnreadableBatch as error:
            raise error.within(self.topic, self.partition) from error
        if first is not None:
            _check_first(start, first[0].offset)
        headers = list(parse_headers(fetched.batches))  # All, before anything moves.
        self._move(headers, _end_of(fetched, start, headers), fetched)
        return iter(()) if first is None else self._until_undecodable(first, chunks)

    def _until_undecodable(self, first: list[R], later: Iterator[list[R]]) -> Iterator[list[R]]:
        """Yield all lists; at one that cannot be decoded, return behind those before it."""
        last = first
        yield first
        try:
            for last in later:
                yield last
        except Exception:  # Whatever it is, the next read begins with it.
            self.return_to(self.position_at(last[-1].offset + 1))

    def read_stored(self, limits: ReadLimits) -> Flow[StoredBatches]:
        """Return the next batches as they are stored, and move behind them; see `read`.

        It decodes nothing, so that it raises no UnreadableBatch and checks no CRC. The first batch
        may begin before the position.
        """
        fetched = yield from self._fetched(limits)
        start = self.offset
        if fetched is None:
            return StoredBatches(b"", start)
        headers = list(parse_headers(fetched.batches))
        following = (one.base_offset for one in headers if one.next_offset > start)
        _check_first(start, next(following, start))
        self._move(headers, _end_of(fetched, start, headers), fetched)
        return StoredBatches(fetched.batches, start)

    def _fetched(self, limits: ReadLimits) -> Flow[FetchedBatches | None]:
        """Return what the leader has at the position; None if a former leader answered."""
        try:
            fetched = yield from self._ask(limits)
        except TopicIdMismatch:
            self._recreated = True
            raise
        if fetched is None or fetched.leader_epoch < self._leader_epoch:
            return None
        self._leader_epoch = fetched.leader_epoch
        self.high_watermark = fetched.high_watermark
        return fetched

    def _ask(self, limits: ReadLimits) -> Flow[FetchedBatches | None]:
        history = yield from self._located()
        try:
            fetched = yield from self._core.fetch_batches(
                self.topic,
                self.partition,
                history.offset,
                max_bytes=limits.max_bytes,
                min_bytes=limits.min_bytes,
                wait_ms=limits.wait_ms,
                last_epoch=history.epoch_before(history.offset),
                topic_id=self._topic_id,
                replica=limits.replica,
                rack=limits.rack,
            )
        except LogTruncated as error:
            self._check_topic(error.details.get("topic_id"))
            yield from self._truncated(history, error)
            return None
        except OffsetOutOfRange:
            self._check_topic()
            raise
        self._check_topic(fetched.topic_id)
        return fetched

    def _located(self) -> Flow[ReadHistory]:
        if self._history is None:
            offsets = yield from self._core.offsets(self.topic, self.partition)
        if self._history is None:  # Neither a seek nor another flow has set it meanwhile.
            self.high_watermark = offsets.high_watermark
            position = LogPosition(offsets.log_start_offset)
            if self._start == "latest":
                position = LogPosition(offsets.high_watermark, offsets.last_epoch)
            self._history = ReadHistory(position)
        return self._history

    def _check_topic(self, served: str | None = None) -> None:
        """Check the id of the topic that was `served` or, if that is not known, of the metadata."""
        topic = self._core.cache.topic(self.topic)
        found = topic.topic_id if served is None and topic is not None else served
        self._topic_id = self._topic_id or found
        if found not in (None, self._topic_id):
            raise TopicIdMismatch(f"topic {self.topic!r} was deleted and recreated")

    def _truncated(self, history: ReadHistory, error: LogTruncated) -> Flow[None]:
        """Raise LogTruncated with the point of divergence; the position does not move.

        Returns if a newer leader has the log that was read after all.
        """
        shared, leader_epoch = history.copy(), -1
        while (epoch := shared.epoch_before(shared.offset)) is not None:
            end = yield from self._core.epoch_end(self.topic, self.partition, epoch)
            leader_epoch = end.leader_epoch
            if not shared.truncate(end):
                break
        position = history.position_at(history.offset)
        if shared.offset >= position.offset:
            if leader_epoch > error.details["leader_epoch"]:
                return
            raise error  # The application has given an epoch in which nothing was read here.
        divergence = shared.position_at(shared.offset)
        raise LogTruncated.below(
            self.topic, self.partition, position, divergence, leader_epoch, self._topic_id
        )

    def _move(
        self, headers: Sequence[BatchHeader], end: LogPosition, fetched: FetchedBatches
    ) -> None:
        """Move behind the batches that begin before `end`."""
        if self._history is not None:
            self._history.advance((one for one in headers if one.base_offset < end.offset), end)
            self._history.forget_before(fetched.log_start_offset)


def _end_of(fetched: FetchedBatches, start: int, headers: Sequence[BatchHeader]) -> LogPosition:
    """Return the position behind the batches, or `start` if there are none.

    Nothing compacts logs, so that each batch begins where the one before it ends. The broker states
    the end of the last one, and there is no other reason to move.

    Raises:
        CorruptBatch: a batch leaves out offsets.
        ConnectionLost: the batches end before `start`, or elsewhere than the answer says.

    """
    ends = accumulate((one.next_offset for one in headers), max)
    for end, header in zip(ends, headers[1:], strict=False):  # Decoding refuses to go back.
        if header.base_offset > end:
            raise CorruptBatch(f"the batch at offset {header.base_offset} leaves out offset {end}")
    end = headers[-1].next_offset if headers else start
    if fetched.next_offset != end or (headers and end <= start):
        raise foreign_answer(
            f"it has batches up to offset {end} for offset {start}, and says"
            f" {fetched.next_offset} is the next one"
        )
    return LogPosition(end, fetched.last_epoch)


def _from(start: int, chunk: list[R]) -> list[R]:
    """Return the records from `start` on of a list in which offsets increase."""
    if chunk[0].offset >= start:
        return chunk
    return [record for record in chunk if record.offset >= start]


def _check_first(asked: int, found: int) -> None:
    """Raise OffsetOutOfRange if the records that came begin after the offset that was asked for."""
    if found > asked:
        raise OffsetOutOfRange(
            f"asked for offset {asked}, but the first record that came is {found}"
        )
