"""What a reader delivers of an answer, and of one that says its log was truncated (rule R15)."""

from __future__ import annotations

from typing import Any, cast

import pytest

from leadline_client import batches
from leadline_client.cache import MetadataCache
from leadline_client.core import ClientCore
from leadline_client.errors import LogTruncated
from leadline_client.flows import Flow
from leadline_client.payloads import FetchedBatches, OutgoingRecord
from leadline_client.reading import FetchPosition, ReadLimits
from leadline_client.wire import EpochEnd, LogPosition

READ = LogPosition(20, leader_epoch=3)
REFUSED_BY = 5


class AnsweringCore:
    """A leader that answers every fetch with the same batches."""

    def __init__(self, stored: bytes, next_offset: int) -> None:
        self.cache = MetadataCache()
        self.answer = FetchedBatches(stored, next_offset, 0, 1, next_offset, 1, "id")

    def fetch_batches(self, *_: object, **__: object) -> Flow[FetchedBatches]:
        yield from ()
        return self.answer


class RefusingCore:
    """A leader of epoch 5 refuses the position; another one says where epoch 3 ends."""

    def __init__(self, end: EpochEnd) -> None:
        self.cache = MetadataCache()
        self.end = end

    def fetch_batches(self, *_: object, **__: object) -> Flow[FetchedBatches]:
        yield from ()
        raise LogTruncated.below("t", 0, READ, (10, 3), REFUSED_BY, "id")

    def epoch_end(self, *_: object) -> Flow[EpochEnd]:
        yield from ()
        return self.end


def batch(base_offset: int, count: int) -> bytes:
    """Return `count` records as a broker stores them from `base_offset` on."""
    stored = bytearray(batches.encode([OutgoingRecord(b"v")] * count, now_ms=1))
    batches.stamp(stored, batches.header_at(stored), base_offset, leader_epoch=1)
    return bytes(stored)


def read(end: EpochEnd) -> list[Any]:
    reader = FetchPosition(cast("ClientCore", RefusingCore(end)), "t", 0, READ)
    with pytest.raises(StopIteration) as ended:
        next(reader.read(ReadLimits()))
    assert reader.offset == READ.offset
    found: list[Any] = ended.value.value
    return found


def test_a_newer_leader_that_has_the_log_after_all_is_read_on_from() -> None:
    assert read(EpochEnd(3, 25, leader_epoch=REFUSED_BY + 1)) == []


def test_the_leader_that_refuses_is_believed() -> None:
    with pytest.raises(LogTruncated):
        read(EpochEnd(3, 25, leader_epoch=REFUSED_BY))


def test_a_newer_leader_that_lacks_the_log_too_tells_the_divergence() -> None:
    with pytest.raises(LogTruncated) as truncated:
        read(EpochEnd(3, 15, leader_epoch=REFUSED_BY + 1))

    assert truncated.value.details["leader_epoch"] == REFUSED_BY + 1
    assert truncated.value.details["divergence_offset"] <= 15


def test_no_record_before_the_position_is_delivered_wherever_it_stands_in_the_answer() -> None:
    stored = batch(4, 1) + batch(2, 2) + batch(5, 1)
    reader = FetchPosition(cast("ClientCore", AnsweringCore(stored, 6)), "t", 0, 4)
    with pytest.raises(StopIteration) as ended:
        next(reader.read(ReadLimits()))

    assert [record.offset for record in ended.value.value] == [4, 5]
    assert reader.offset == 6
