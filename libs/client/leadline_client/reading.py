"""The position of a reader in a partition, and how it moves.

A reader delivers each offset at most once and in order: it never goes back and
never skips, whichever broker leads the partition (rule R15). It drops responses of
former leaders, treats a recreated topic as another topic, and raises when its offset
is out of range.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from leadline_client import batches
from leadline_client.core import DEFAULT_MAX_BYTES, ClientCore
from leadline_client.errors import OffsetOutOfRange, TopicIdMismatch
from leadline_client.flows import Flow
from leadline_client.payloads import FetchedBatches
from leadline_client.wire import Record

Start: TypeAlias = Literal["earliest", "latest"] | int
"""Where to begin: at the log start offset, at the high watermark, or at an offset."""


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """The size of one read (bytes), and how long the leader may wait for `min_bytes` (ms)."""

    max_bytes: int = DEFAULT_MAX_BYTES
    min_bytes: int = 1
    wait_ms: int = 500


class FetchPosition:
    """The position of one reader in one partition."""

    def __init__(self, core: ClientCore, topic: str, partition: int, start: Start) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = start if isinstance(start, int) else -1
        self.high_watermark = -1
        self._core = core
        self._start = start
        self._topic_id: str | None = None
        self._leader_epoch = -1

    def seek(self, start: Start) -> None:
        """Continue at `start`; only this can move a reader back."""
        self._start = start
        self.offset = start if isinstance(start, int) else -1

    def seek_to_time(self, timestamp: int) -> Flow[int]:
        """Continue at the first record of `timestamp` (Unix ms) or later, or else at the end."""
        offset = yield from self._core.offset_for_timestamp(self.topic, self.partition, timestamp)
        self.seek("latest" if offset is None else offset)
        return (yield from self.locate())

    def locate(self) -> Flow[int]:
        """Return the offset of the next record; ask the leader if it is not known yet."""
        if self.offset < 0:
            offsets = yield from self._core.offsets(self.topic, self.partition)
            self.high_watermark = offsets.high_watermark
            self.offset = (
                offsets.log_start_offset if self._start == "earliest" else offsets.high_watermark
            )
        return self.offset

    def read(self, limits: ReadLimits) -> Flow[list[Record]]:
        """Return the next records and move behind them; return none if none came in time.

        Raises:
            OffsetOutOfRange: the position is before the log start or beyond the end.
            TopicIdMismatch: the topic was deleted and recreated meanwhile.

        """
        offset = yield from self.locate()
        try:
            fetched = yield from self._core.fetch_batches(
                self.topic,
                self.partition,
                offset,
                max_bytes=limits.max_bytes,
                min_bytes=limits.min_bytes,
                wait_ms=limits.wait_ms,
            )
        except OffsetOutOfRange:
            self._check_topic()
            raise
        self._check_topic()
        return self._accept(offset, fetched)

    def _check_topic(self) -> None:
        topic = self._core.cache.topic(self.topic)
        if topic is None:
            return
        if self._topic_id is None:
            self._topic_id = topic.topic_id
        elif self._topic_id != topic.topic_id:
            raise TopicIdMismatch(f"topic {self.topic!r} was deleted and recreated")

    def _accept(self, offset: int, fetched: FetchedBatches) -> list[Record]:
        if fetched.leader_epoch < self._leader_epoch:
            return []
        self._leader_epoch = fetched.leader_epoch
        self.high_watermark = fetched.high_watermark
        records = [record for record in batches.decode(fetched.batches) if record.offset >= offset]
        if records and records[0].offset > offset:
            raise OffsetOutOfRange(
                f"asked for offset {offset}, but the first record that came is {records[0].offset}"
            )
        self.offset = max(offset, fetched.next_offset)
        return records
