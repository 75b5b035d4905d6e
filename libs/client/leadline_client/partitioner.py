"""Which partition a record goes to: Kafka's rule, so that the two agree on keys.

A key goes to murmur2(key) mod the partition count. Without a key a producer
stays with one partition until its batch is full, then takes the next: full
batches matter more than an even spread of single records (KIP-480). Pure.
"""

from __future__ import annotations

_SEED = 0x9747B28C
_MIX = 0x5BD1E995
_SHIFT = 24
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Return the 32-bit MurmurHash2 of `data`, unsigned, with Kafka's seed."""
    length = len(data)
    state = (_SEED ^ length) & _MASK
    whole = length & ~3
    for start in range(0, whole, 4):
        word = int.from_bytes(data[start : start + 4], "little")
        word = (word * _MIX) & _MASK
        word = ((word ^ (word >> _SHIFT)) * _MIX) & _MASK
        state = ((state * _MIX) & _MASK) ^ word
    if whole < length:
        state ^= int.from_bytes(data[whole:], "little")
        state = (state * _MIX) & _MASK
    state = ((state ^ (state >> 13)) * _MIX) & _MASK
    return state ^ (state >> 15)


def partition_for_key(key: bytes, partition_count: int) -> int:
    """Return the partition that records with `key` go to."""
    return (murmur2(key) & 0x7FFFFFFF) % partition_count


class StickyPartitioner:
    """Chooses partitions for one topic's records."""

    def __init__(self) -> None:
        self._current = 0

    def choose(self, key: bytes | None, partition_count: int) -> int:
        """Return the partition of the next record."""
        if key is not None:
            return partition_for_key(key, partition_count)
        return self._current % partition_count

    def batch_closed(self, partition: int, partition_count: int) -> None:
        """Move on: the batch that keyless records went into is complete."""
        if partition == self._current % partition_count:
            self._current = (partition + 1) % partition_count
