"""Batches whose timestamps are the leader's time of appending: one bit, and one time for all."""

from __future__ import annotations

from leadline_spark.codec.checksum import crc32c
from leadline_spark.codec.frames import APPEND_TIME_BIT, CRC_POSITION, CRC_RANGE_START

_ATTRIBUTES_POSITION = 21


def append_time(batch: bytes) -> bytes:
    """Return the batch marked so: its latest timestamp is then that of all its records."""
    marked = bytearray(batch)
    marked[_ATTRIBUTES_POSITION + 1] |= APPEND_TIME_BIT
    crc = crc32c(memoryview(marked)[CRC_RANGE_START:])
    marked[CRC_POSITION : CRC_POSITION + 4] = crc.to_bytes(4, "big")
    return bytes(marked)
