"""Headers of record batches (Kafka's RecordBatch, format v2): 61 bytes before the records.

Positions and sizes are in bytes. Nothing here reads the records or their checksum.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from leadline_client.errors import CorruptBatch

Buffer = bytes | bytearray | memoryview

HEADER_BYTES: Final = 61
LAYOUT: Final = struct.Struct(">qiibIhiqqqhii")
"""Base offset, length, leader epoch, magic, and the rest in the order of `BatchHeader`."""
SIZE_PREFIX: Final = 12
"""How many bytes of the batch its length does not count."""
MAGIC: Final = 2
LEADER_EPOCH_POSITION: Final = 12
CRC_POSITION: Final = 17
ATTRIBUTES_POSITION: Final = 21
PRODUCER_POSITION: Final = 43
CRC_RANGE_START: Final = ATTRIBUTES_POSITION
"""The CRC covers the batch from here on."""
COMPRESSION_MASK: Final = 0x07
APPEND_TIME_BIT: Final = 0x08
_CONTROL_BIT: Final = 0x20


class BatchHeader(NamedTuple):
    """The header of one batch, and the position and size of the batch in its buffer (bytes)."""

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
        """The offset of the last record, inclusive."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset after the last record."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def crc_range(self) -> slice:
        """Which bytes of the buffer the CRC covers."""
        return slice(self.position + CRC_RANGE_START, self.position + self.size)

    @property
    def compression(self) -> int:
        """The number of the compression, 0 for none."""
        return self.attributes & COMPRESSION_MASK

    @property
    def has_append_time(self) -> bool:
        """Whether the timestamp type is LogAppendTime: all records then have `max_timestamp`."""
        return bool(self.attributes & APPEND_TIME_BIT)

    @property
    def is_control(self) -> bool:
        """Whether it is a control batch, which holds no records for consumers."""
        return bool(self.attributes & _CONTROL_BIT)


def header_at(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Read the header of the batch at `position`.

    Raises:
        CorruptBatch: the batch is truncated, or not in the v2 format.

    """
    left = len(buffer) - position
    if left < HEADER_BYTES:
        raise CorruptBatch(f"{left} bytes are too few for a batch header")
    base_offset, length, leader_epoch, magic, *rest = LAYOUT.unpack_from(buffer, position)
    size = length + SIZE_PREFIX
    if magic != MAGIC:
        raise CorruptBatch(f"batch format {magic} is not supported, only {MAGIC}")
    if size < HEADER_BYTES or size > left:
        raise CorruptBatch(f"a batch of {size} bytes does not fit into {left}")
    return BatchHeader(position, size, base_offset, leader_epoch, *rest)


def parse_headers(buffer: Buffer) -> Iterator[BatchHeader]:
    """Yield the header of every batch in `buffer`, which must hold whole batches.

    Raises:
        CorruptBatch: the buffer does not end at the end of a batch; see also `header_at`.

    """
    position = 0
    while position < len(buffer):
        header = header_at(buffer, position)
        yield header
        position += header.size


def stored_headers(buffer: Buffer) -> Iterator[BatchHeader]:
    """Yield the header of every batch in `buffer`, as a broker stores them.

    Raises:
        CorruptBatch: offsets go back; see also `parse_headers`.

    """
    least_offset = 0
    for header in parse_headers(buffer):
        if header.base_offset < least_offset or header.last_offset_delta < 0:
            raise CorruptBatch(f"the batch at offset {header.base_offset} goes back")
        least_offset = header.next_offset
        yield header
