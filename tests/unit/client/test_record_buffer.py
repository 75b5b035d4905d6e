"""A buffer of records gives them in order, and decodes no list before its turn."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline_client.record_buffer import RecordBuffer
from leadline_client.wire import Record


def lists(sizes: list[int], made: list[int]) -> Iterator[list[Record]]:
    """Yield lists of records with offsets from 0, and note the size of each in `made`."""
    first = 0
    for size in sizes:
        made.append(size)
        yield [Record(offset, 0, None, b"v") for offset in range(first, first + size)]
        first += size


def filled(sizes: list[int]) -> tuple[RecordBuffer[Record], list[int]]:
    made: list[int] = []
    buffer: RecordBuffer[Record] = RecordBuffer()
    buffer.fill(lists(sizes, made))
    return buffer, made


@given(st.lists(st.integers(1, 5), max_size=6), st.lists(st.integers(1, 7), min_size=40))
def test_every_record_comes_once_and_in_order(sizes: list[int], limits: list[int]) -> None:
    buffer, made = filled(sizes)
    found: list[int] = []
    for limit in limits:
        if not buffer:
            break
        assert buffer.first.offset == len(found)
        some = buffer.some(limit)
        assert 1 <= len(some) <= limit
        found += [record.offset for record in some]
        buffer.drop(len(some))
        assert sum(made) <= len(found) + max(sizes)
    assert not buffer
    assert found == list(range(sum(sizes)))


def test_a_list_is_decoded_only_once_the_one_before_it_is_delivered() -> None:
    buffer, made = filled([2, 3, 4])
    buffer.drop(len(buffer.some(1)))
    assert made == [2]
    buffer.drop(len(buffer.some(9)))
    assert made == [2, 3]


def test_records_that_are_not_dropped_stay() -> None:
    buffer, _ = filled([3])
    assert buffer.some(3) == buffer.some(3)
    buffer.drop(0)
    assert buffer.first.offset == 0


def test_a_cleared_buffer_decodes_nothing_more() -> None:
    buffer, made = filled([1, 1])
    buffer.clear()
    assert not buffer
    assert buffer.some(9) == []
    assert made == [1]
    with pytest.raises(IndexError):
        _ = buffer.first
