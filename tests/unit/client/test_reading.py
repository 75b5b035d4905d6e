"""What a reader delivers of an answer, and of one that says its log was truncated (rule R15)."""

from __future__ import annotations

from typing import Any, TypeVar, cast

import pytest

from leadline_client import batches
from leadline_client.batch_header import header_at
from leadline_client.cache import MetadataCache
from leadline_client.core import ClientCore
from leadline_client.errors import (
    ConnectionLost,
    CorruptBatch,
    LogTruncated,
    OffsetOutOfRange,
    UnreadableBatch,
)
from leadline_client.flows import Flow
from leadline_client.payloads import FetchedBatches, OutgoingRecord
from leadline_client.reading import FetchPosition, ReadLimits
from leadline_client.wire import EpochEnd, LogPosition
from tests.support.bad_input.batches import half_readable

T = TypeVar("T")
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
    batches.stamp(stored, header_at(stored), base_offset, leader_epoch=1)
    return bytes(stored)


def outcome(flow: Flow[T]) -> T:
    """Return what a flow returns that sends nothing."""
    with pytest.raises(StopIteration) as ended:
        next(flow)
    found: T = ended.value.value
    return found


def read(end: EpochEnd) -> list[Any]:
    reader = FetchPosition(cast("ClientCore", RefusingCore(end)), "t", 0, READ)
    found = outcome(reader.read(ReadLimits()))
    assert reader.offset == READ.offset
    return found


def answered(stored: bytes, next_offset: int, start: int = 0) -> FetchPosition:
    """Return a reader whose leader always answers with these batches."""
    return FetchPosition(cast("ClientCore", AnsweringCore(stored, next_offset)), "t", 0, start)


def offsets(reader: FetchPosition) -> list[int]:
    return [record.offset for record in outcome(reader.read(ReadLimits()))]


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
    reader = answered(batch(0, 2) + batch(2, 600) + batch(602, 1), 603, start=500)

    assert offsets(reader) == list(range(500, 603))
    assert reader.offset == 603


def test_an_answer_whose_offsets_go_back_ends_before_them() -> None:
    reader = answered(batch(4, 1) + batch(2, 2) + batch(5, 1), 6, start=4)

    assert offsets(reader) == [4]
    assert reader.offset == 5


def test_the_position_is_behind_all_records_before_the_later_ones_are_decoded() -> None:
    reader = answered(batch(0, 600) + batch(600, 600), 1200)

    chunks = outcome(reader.read_chunks(ReadLimits(), batches.stored_records))

    assert reader.offset == 1200
    assert [len(chunk) for chunk in chunks] == [500, 100, 500, 100]
    assert reader.offset == 1200


def test_the_records_before_one_that_cannot_be_decoded_come_once() -> None:
    reader = answered(batch(0, 2) + half_readable(2, leader_epoch=1), 504)

    assert offsets(reader) == list(range(502))
    assert reader.position_at(reader.offset) == LogPosition(502, leader_epoch=1)
    with pytest.raises(UnreadableBatch, match="t-0 at offsets 2 to 503"):
        offsets(reader)
    assert reader.offset == 502


def test_a_damaged_batch_behind_others_keeps_none_of_them_back() -> None:
    damaged = bytearray(batch(3, 1))
    damaged[-1] ^= 1
    reader = answered(batch(0, 3) + damaged, 4)

    assert offsets(reader) == [0, 1, 2]
    with pytest.raises(CorruptBatch):
        offsets(reader)
    assert reader.offset == 3


def test_an_answer_that_begins_behind_the_position_moves_nothing() -> None:
    reader = answered(batch(4, 2), 6, start=3)

    with pytest.raises(OffsetOutOfRange):
        offsets(reader)
    assert reader.offset == 3


CONTRADICTIONS = {
    "it stands still": ([(10, 5)], 10),
    "it goes back": ([(10, 5)], 9),
    "it ends within the batch": ([(10, 5)], 14),
    "it jumps over offsets": ([(10, 5)], 16),
    "it jumps without batches": ([], 11),
    "it goes back without batches": ([], 9),
    "the batches end before the position": ([(5, 5)], 10),
}


@pytest.mark.parametrize("stored", [False, True], ids=["records", "stored batches"])
@pytest.mark.parametrize(("held", "stated"), CONTRADICTIONS.values(), ids=CONTRADICTIONS)
def test_a_next_offset_that_contradicts_the_batches_is_refused(
    held: list[tuple[int, int]], stated: int, stored: bool
) -> None:
    core = AnsweringCore(b"".join(batch(*one) for one in held), next_offset=stated)
    reader = FetchPosition(cast("ClientCore", core), "t", 0, 10)
    read = reader.read_stored if stored else reader.read
    with pytest.raises(ConnectionLost, match=f"says {stated} is the next one"):
        next(read(ReadLimits()))
    assert reader.offset == 10


@pytest.mark.parametrize("stored", [False, True], ids=["records", "stored batches"])
def test_batches_that_leave_out_offsets_are_refused(stored: bool) -> None:
    core = AnsweringCore(batch(10, 2) + batch(13, 2), next_offset=15)
    reader = FetchPosition(cast("ClientCore", core), "t", 0, 10)
    read = reader.read_stored if stored else reader.read
    with pytest.raises(CorruptBatch, match="offset 13 leaves out offset 12"):
        next(read(ReadLimits()))
    assert reader.offset == 10


def test_an_answer_without_batches_leaves_the_position() -> None:
    reader = FetchPosition(cast("ClientCore", AnsweringCore(b"", 10)), "t", 0, 10)
    assert outcome(reader.read(ReadLimits())) == []
    assert reader.offset == 10
