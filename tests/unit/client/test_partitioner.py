"""Which partition records go to, with and without a key."""

from __future__ import annotations

from leadline_client.murmur2 import partition_for_key
from leadline_client.partitioner import StickyPartitioner


def test_a_key_decides_the_partition_whatever_batch_is_open() -> None:
    partitioner = StickyPartitioner()
    partitioner.batch_closed(0, 3)
    assert partitioner.choose(b"abc", 3) == partition_for_key(b"abc", 3)


def test_records_without_a_key_stay_together_until_a_batch_is_closed() -> None:
    partitioner = StickyPartitioner()
    assert [partitioner.choose(None, 3) for _ in range(3)] == [0, 0, 0]
    partitioner.batch_closed(0, 3)
    assert partitioner.choose(None, 3) == 1
    partitioner.batch_closed(0, 3)
    assert partitioner.choose(None, 3) == 1
