"""Records gather in buffers and leave in batches: in order, in bounds, and with their failures."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leadline_client.columnar.encode import RECORD_OVERHEAD, Records
from leadline_client.wire import TopicPartition
from leadline_spark.write.partition_buffers import PartitionBuffers


class Notes:
    """A writer that records what it is given."""

    def __init__(self) -> None:
        self.sent: list[list[int]] = []
        self.failure: Exception | None = None
        self._busy = threading.Lock()

    def encode(self, records: Records) -> bytes:
        return b",".join(records.value.to_pylist())

    def send(self, batch: bytes) -> None:
        assert self._busy.acquire(blocking=False), "two requests of one buffer at a time"
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
    writers = {number: Notes() for number in range(4)}
    given_: dict[int, list[int]] = {number: [] for number in range(4)}
    with PartitionBuffers(
        lambda topic_partition: writers[topic_partition.partition],
        batch_bytes=batch_bytes,
        buffer_bytes=buffer_bytes,
    ) as buffers:
        for number, count in pieces:
            start = len(given_[number])
            values = list(range(start, start + count))
            given_[number] += values
            buffers.add(TopicPartition("t", number), records(values))
        buffers.finish()
    for number, writer in writers.items():
        assert [value for batch in writer.sent for value in batch] == given_[number]
        for batch in writer.sent:
            size = sum(RECORD_OVERHEAD + len(str(value)) for value in batch)
            assert len(batch) == 1 or size <= batch_bytes


def test_what_fails_in_a_lane_fails_the_task() -> None:
    writer = Notes()
    writer.failure = RuntimeError("the disk is full")
    with PartitionBuffers(lambda _: writer, batch_bytes=10, buffer_bytes=1_000) as buffers:
        buffers.add(TopicPartition("t", 0), records([1]))
        with pytest.raises(RuntimeError, match="disk is full"):
            buffers.finish()


def test_lanes_that_are_not_full_are_emptied_when_all_together_hold_too_much() -> None:
    writers = {number: Notes() for number in range(4)}
    with PartitionBuffers(
        lambda topic_partition: writers[topic_partition.partition],
        batch_bytes=1_000,
        buffer_bytes=100,
    ) as buffers:
        for number in range(4):
            buffers.add(TopicPartition("t", number), records([1, 2]))
        buffers.finish()
        assert all(writer.sent == [[1, 2]] for writer in writers.values())
