"""Ranges become tasks, limits are shared: the arithmetic of a read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline_client.wire import TopicPartition
from leadline_spark.read.admission import available, holds_back, share, share_bytes
from leadline_spark.read.planning import Range, split


def topic_partition(number: int) -> TopicPartition:
    return TopicPartition("t", number)


def ranges_of(sizes: list[int]) -> list[Range]:
    return [
        Range(topic_partition(n), "id", 10 * n, 10 * n + size, 4) for n, size in enumerate(sizes)
    ]


SIZES = st.lists(st.integers(0, 500), max_size=8)
AMOUNTS = st.dictionaries(
    st.integers(0, 20).map(topic_partition), st.integers(1, 10**12), min_size=1
)


@given(SIZES, st.none() | st.integers(1, 40), st.none() | st.integers(1, 60))
def test_pieces_cover_each_range_in_order_and_nothing_twice(
    sizes: list[int], least: int | None, most: int | None
) -> None:
    ranges = ranges_of(sizes)

    pieces = split(ranges, least, most)

    offsets = [
        (one.topic_partition, offset) for one in pieces for offset in range(one.start, one.end)
    ]
    assert offsets == [
        (one.topic_partition, o) for one in ranges for o in range(one.start, one.end)
    ]
    assert all(one.size > 0 and one.end_epoch == 4 for one in pieces)
    assert most is None or all(one.size <= most for one in pieces)
    assert len(pieces) >= min(least or 0, sum(sizes))


@given(SIZES, st.integers(1, 40))
def test_the_same_ranges_are_always_cut_alike(sizes: list[int], least: int) -> None:
    ranges = ranges_of(sizes)

    assert split(ranges, least) == split(list(reversed(ranges)), least)


def test_only_the_large_are_cut_to_reach_a_number_of_tasks() -> None:
    pieces = split(ranges_of([1_000, 10, 10]), min_partitions=6)

    assert [one.size for one in pieces] == [250, 250, 250, 250, 10, 10]


def test_enough_ranges_are_left_whole() -> None:
    assert split(ranges_of([7, 8]), min_partitions=2) == ranges_of([7, 8])


@given(AMOUNTS, st.integers(1, 10**12))
def test_shares_use_the_limit_up_and_starve_nobody(
    amounts: dict[TopicPartition, int], most: int
) -> None:
    shares = share(amounts, most)

    assert shares.keys() == amounts.keys()
    assert all(1 <= shares[one] <= amounts[one] for one in amounts)
    assert sum(shares.values()) == min(max(most, len(amounts)), sum(amounts.values()))


def test_shares_are_in_proportion_to_what_waits() -> None:
    assert share({topic_partition(0): 900, topic_partition(1): 100}, 100) == {
        topic_partition(0): 90,
        topic_partition(1): 10,
    }
    assert share({topic_partition(0): 90, topic_partition(1): 60}, 60) == {
        topic_partition(0): 36,
        topic_partition(1): 24,
    }
    assert share({topic_partition(0): 10**9, topic_partition(1): 1}, 100) == {
        topic_partition(0): 99,
        topic_partition(1): 1,
    }


def test_bytes_are_shared_by_the_mean_size_of_records() -> None:
    counts = {topic_partition(0): 1_000, topic_partition(1): 1_000, topic_partition(2): 50}
    means = {topic_partition(0): 100.0, topic_partition(1): 1_000.0}

    shared = share_bytes(counts, 110_000, means)

    assert shared == {topic_partition(0): 100, topic_partition(1): 100, topic_partition(2): 50}


def test_a_record_larger_than_the_limit_is_read_all_the_same() -> None:
    assert share_bytes({topic_partition(0): 5}, 10, {topic_partition(0): 1e6}) == {
        topic_partition(0): 1
    }


def test_only_what_is_beyond_the_start_waits() -> None:
    starts = {topic_partition(0): 5, topic_partition(1): 5, topic_partition(2): 5}

    assert available(
        starts, {topic_partition(0): 9, topic_partition(1): 5, topic_partition(2): 3}
    ) == {topic_partition(0): 4}


@pytest.mark.parametrize(
    ("least", "elapsed_ms", "held"),
    [
        (None, 0.0, False),
        (11, 0.0, True),
        (11, 999.9, True),
        (11, 1_000.0, False),
        (10, 0.0, False),
        (11, None, False),
    ],
)
def test_few_offsets_wait_for_more_but_not_for_ever(
    least: int | None, elapsed_ms: float | None, held: bool
) -> None:
    assert holds_back({topic_partition(0): 10}, least, elapsed_ms, 1_000) is held


def test_what_the_smallest_take_comes_from_all_others_alike() -> None:
    few = {topic_partition(0): 1_000, topic_partition(1): 999}
    amounts = few | {topic_partition(n): 1 for n in range(2, 100)}

    shares = share(amounts, 150)

    # Not all from the very largest, which would then be the slowest to shrink.
    assert {n: shares[topic_partition(n)] for n in (0, 1)} == {0: 26, 1: 26}
    assert {shares[topic_partition(n)] for n in range(2, 100)} == {1}


@given(
    st.dictionaries(st.integers(0, 5).map(topic_partition), st.integers(1, 10**9), min_size=1),
    st.floats(0.01, 1e6),
)
def test_bytes_that_are_enough_leave_nothing_over(
    counts: dict[TopicPartition, int], mean: float
) -> None:
    assert share_bytes(counts, 10**18, dict.fromkeys(counts, mean)) == counts
