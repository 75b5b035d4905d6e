"""Where a reader stands in a partition, and the one rule about moving on.

A reader delivers each offset at most once and in order: it never goes back and
never skips, whoever leads the partition (rule R15). An answer from a leader that
was succeeded is thrown away; a topic that was deleted and created again is
another topic, and an offset out of range is said, not silently replaced.
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
"""Where to begin: at the log start, at the high watermark, or at an offset."""


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """How much one read asks for (bytes) and how long a leader may wait for it (ms)."""

    max_bytes: int = DEFAULT_MAX_BYTES
    min_bytes: int = 1
    wait_ms: int = 500


class Position:
    """The place of one reader in one partition."""

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
        """Read on from elsewhere; the only way in which a reader goes back."""
        self._start = start
        self.offset = start if isinstance(start, int) else -1

    def seek_to_time(self, timestamp: int) -> Flow[int]:
        """Read on from the first record of `timestamp` (Unix ms) or later, or else from the end."""
        offset = yield from self._core.offset_for_timestamp(self.topic, self.partition, timestamp)
        self.seek("latest" if offset is None else offset)
        return (yield from self.locate())

    def locate(self) -> Flow[int]:
        """Return the offset of the next record, asking the leader if it is not known yet."""
        if self.offset < 0:
            offsets = yield from self._core.offsets(self.topic, self.partition)
            self.high_watermark = offsets.high_watermark
            self.offset = (
                offsets.log_start_offset if self._start == "earliest" else offsets.high_watermark
            )
        return self.offset

    def read(self, limits: ReadLimits) -> Flow[list[Record]]:
        """Return the next records and move on behind them; empty when none came in time.

        Raises:
            OffsetOutOfRange: the position is before the log start or beyond the end.
            TopicIdMismatch: the topic was deleted and created again meanwhile.

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
            raise TopicIdMismatch(f"topic {self.topic!r} was deleted and created again")

    def _accept(self, offset: int, fetched: FetchedBatches) -> list[Record]:
        if fetched.leader_epoch < self._leader_epoch:
            return []
        self._leader_epoch = fetched.leader_epoch
        self.high_watermark = fetched.high_watermark
        records = [one for one in batches.decode(fetched.batches) if one.offset >= offset]
        if records and records[0].offset > offset:
            raise OffsetOutOfRange(
                f"asked for offset {offset}, but the first record that came is {records[0].offset}"
            )
        self.offset = max(offset, fetched.next_offset)
        return records
