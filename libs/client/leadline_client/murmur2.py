"""MurmurHash2 with Kafka's seed, and the partition that it gives a key. Pure.

Kafka's clients choose the partition of a record with a key by the same rule, so that all writers
of a topic agree.
"""

from __future__ import annotations

from typing import Final

SEED: Final = 0x9747B28C
MULTIPLIER: Final = 0x5BD1E995
POSITIVE: Final = 0x7FFFFFFF
"""The bits of a hash that count for the partition: Kafka drops the sign."""

_WORD: Final = 0xFFFFFFFF


def murmur2(key: bytes) -> int:
    """Return the 32-bit hash of `key`, unsigned."""
    size = len(key)
    state = (SEED ^ size) & _WORD
    whole = size & ~3
    for start in range(0, whole, 4):
        word = (int.from_bytes(key[start : start + 4], "little") * MULTIPLIER) & _WORD
        word = ((word ^ (word >> 24)) * MULTIPLIER) & _WORD
        state = ((state * MULTIPLIER) & _WORD) ^ word
    if whole < size:
        state ^= int.from_bytes(key[whole:], "little")
        state = (state * MULTIPLIER) & _WORD
    state = ((state ^ (state >> 13)) * MULTIPLIER) & _WORD
    return state ^ (state >> 15)


def partition_for_key(key: bytes, partition_count: int) -> int:
    """Return the partition that records with `key` go to."""
    return (murmur2(key) & POSITIVE) % partition_count
