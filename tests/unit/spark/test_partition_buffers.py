"""Records gather in lanes and leave in batches: in order, in bounds, and with their failures."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leadline_spark.codec.encode import RECORD_OVERHEAD, Records
from leadline_spark.read.offsets import TopicPartition
from leadline_spark.write.partition_buffers import Lanes


class Notes:
    """An outlet that writes down what it is given."""

    def __init__(self) -> None:
        self.sent: list[list[int]] = []
        self.failure: Exception | None = None
        self._busy = threading.Lock()

    def encode(self, records: Records) -> bytes:
        return b",".join(records.value.to_pylist())

    def send(self, batch: bytes) -> None:
        assert self._busy.acquire(blocking=False), "two requests of one lane at a time"
        try:
            if self.failure is not None:
                raise self.failure
            self.sent.append([int(value) for value in batch.split(b",")])
        finally:
            self._busy.release()


def records(values: list[int]) -> Records:
    texts = [b"%d" % value for value in values]
    return Records(pa.nulls(len(texts), pa.binary()), pa.array(texts, pa.binary()))


PIECES = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 30)), max_size=20)


@settings(deadline=None)
@given(PIECES, st.integers(1, 400), st.integers(1, 2_000))
def test_each_lane_sends_all_it_was_given_in_order(
    pieces: list[tuple[int, int]], batch_bytes: int, buffer_bytes: int
) -> None:
    outlets = {number: Notes() for number in range(4)}
    given_: dict[int, list[int]] = {number: [] for number in range(4)}
    with Lanes(
        lambda place: outlets[place.partition], batch_bytes=batch_bytes, buffer_bytes=buffer_bytes
    ) as lanes:
        for number, count in pieces:
            start = len(given_[number])
            values = list(range(start, start + count))
            given_[number] += values
            lanes.add(TopicPartition("t", number), records(values))
        lanes.finish()
    for number, outlet in outlets.items():
        assert [value for batch in outlet.sent for value in batch] == given_[number]
        for batch in outlet.sent:
            size = sum(RECORD_OVERHEAD + len(str(value)) for value in batch)
            assert len(batch) == 1 or size <= batch_bytes


def test_what_fails_in_a_lane_fails_the_task() -> None:
    outlet = Notes()
    outlet.failure = RuntimeError("the disk is full")
    with Lanes(lambda _: outlet, batch_bytes=10, buffer_bytes=1_000) as lanes:
        lanes.add(TopicPartition("t", 0), records([1]))
        with pytest.raises(RuntimeError, match="disk is full"):
            lanes.finish()


def test_lanes_that_are_not_full_are_emptied_when_all_together_hold_too_much() -> None:
    outlets = {number: Notes() for number in range(4)}
    with Lanes(
        lambda place: outlets[place.partition], batch_bytes=1_000, buffer_bytes=100
    ) as lanes:
        for number in range(4):
            lanes.add(TopicPartition("t", number), records([1, 2]))
        lanes.finish()
        assert all(outlet.sent == [[1, 2]] for outlet in outlets.values())
