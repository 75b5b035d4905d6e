"""Which partition records go to, with and without a key."""

from __future__ import annotations

from leadline_client.murmur2 import partition_for_key
from leadline_client.partitioner import StickyPartitioner


def test_a_key_decides_the_partition_whatever_batch_is_open() -> None:
    partitioner = StickyPartitioner(random=lambda: 0.0)
    partitioner.batch_closed(0, 3)
    assert partitioner.choose(b"abc", 3) == partition_for_key(b"abc", 3)


def test_records_without_a_key_stay_together_until_a_batch_is_closed() -> None:
    partitioner = StickyPartitioner(random=lambda: 0.0)
    assert [partitioner.choose(None, 3) for _ in range(3)] == [0, 0, 0]
    partitioner.batch_closed(0, 3)
    assert partitioner.choose(None, 3) == 1
    partitioner.batch_closed(0, 3)
    assert partitioner.choose(None, 3) == 1


def test_defect_19_records_without_a_key_begin_at_a_random_partition() -> None:
    draws = iter([0.0, 0.3, 0.4, 0.6, 0.7, 0.99])
    starts = [StickyPartitioner(random=lambda: next(draws)).choose(None, 3) for _ in range(6)]
    assert starts == [0, 0, 1, 1, 2, 2]


def test_defect_19_the_start_is_drawn_once_and_survives_added_partitions() -> None:
    draws = iter([0.9])
    partitioner = StickyPartitioner(random=lambda: next(draws))
    assert [partitioner.choose(None, 3) for _ in range(3)] == [2, 2, 2]
    partitioner.batch_closed(2, 3)
    assert partitioner.choose(None, 4) == 0
