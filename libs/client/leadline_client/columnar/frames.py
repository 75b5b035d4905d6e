"""Headers of record batches (Kafka's RecordBatch, format v2): 61 bytes before the records.

Positions and sizes are in bytes. This module reads the records only to verify the checksum.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from leadline_client.columnar.checksum import Buffer, Checksum
from leadline_client.errors import CorruptBatch

HEADER_BYTES = 61
CRC_POSITION = 17
CRC_RANGE_START = 21
HEADER = struct.Struct(">qiibIhiqqqhii")
MAGIC = 2
SIZE_PREFIX = 12
CODEC_BITS = 0x07
APPEND_TIME_BIT = 0x08
CONTROL_BIT = 0x20


class Frame(NamedTuple):
    """The header of a batch, and the `position` and `size` of the batch in the fetched bytes."""

    position: int
    size: int
    base_offset: int
    leader_epoch: int
    crc: int
    attributes: int
    last_offset_delta: int
    first_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def last_offset(self) -> int:
        """The offset of the last record."""
        return self.base_offset + self.last_offset_delta

    @property
    def has_append_time(self) -> bool:
        """Whether the timestamp type is LogAppendTime: all records then have `max_timestamp`."""
        return bool(self.attributes & APPEND_TIME_BIT)

    @property
    def is_control(self) -> bool:
        """Whether it is a control batch, which holds no records for consumers."""
        return bool(self.attributes & CONTROL_BIT)


def frames(data: Buffer) -> Iterator[Frame]:
    """Yield the header of every batch in `data`, which holds whole batches. Verifies no CRC.

    Raises CorruptBatch: the bytes do not hold whole batches of format v2, or offsets go back.
    """
    view = memoryview(data).cast("B")
    position = least_offset = 0
    while position < len(view):
        frame = _frame_at(view, position)
        if frame.base_offset < least_offset:
            raise CorruptBatch(f"the batch at offset {frame.base_offset} goes back")
        least_offset = frame.last_offset + 1
        yield frame
        position += frame.size


def verify(view: memoryview, frame: Frame, crc: Checksum) -> None:
    """Raise CorruptBatch unless the checksum of the batch is correct."""
    found = crc(view[frame.position + CRC_RANGE_START : frame.position + frame.size])
    if found != frame.crc:
        raise CorruptBatch(
            f"the batch at offset {frame.base_offset} has the checksum {found:#010x}, its header "
            f"says {frame.crc:#010x}"
        )


def _frame_at(view: memoryview, position: int) -> Frame:
    left = len(view) - position
    if left < HEADER_BYTES:
        raise CorruptBatch(f"{left} bytes are too few for the header of a batch")
    base_offset, length, leader_epoch, magic, *rest = HEADER.unpack_from(view, position)
    frame = Frame(position, length + SIZE_PREFIX, base_offset, leader_epoch, *rest)
    if magic != MAGIC:
        raise CorruptBatch(f"the batch at offset {base_offset} has format {magic}, not {MAGIC}")
    if not HEADER_BYTES <= frame.size <= left:
        raise CorruptBatch(
            f"a batch of {frame.size} bytes is not in the {left} bytes that are left"
        )
    if frame.record_count < 0 or frame.last_offset_delta < 0:
        raise CorruptBatch(f"the batch at offset {base_offset} counts {frame.record_count} records")
    return frame
