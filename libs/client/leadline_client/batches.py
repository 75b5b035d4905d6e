"""Record batches in Kafka's RecordBatch v2 format: encode, decode, stamp, validate.

A codec encodes and decodes the records (`codec.py`). The header is also read in place
(`batch_header.py`), because a broker moves batches without decoding them. The CRC does not cover
the base offset and the leader epoch, so a leader writes both without a new CRC.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from operator import attrgetter
from typing import TypeVar

from leadline_client.batch_header import (
    COMPRESSION_MASK,
    CRC_POSITION,
    LEADER_EPOCH_POSITION,
    PRODUCER_POSITION,
    BatchHeader,
    Buffer,
    header_at,
    parse_headers,
    stored_headers,
)
from leadline_client.codec import CODEC, SupportsPlace, SupportsStored
from leadline_client.errors import CorruptBatch, UnreadableBatch
from leadline_client.unreadable import MOST_DECOMPRESSED_BYTES, UnreadableRecords
from leadline_client.wire import Record, SupportsRecord, record_of

R = TypeVar("R", bound=SupportsPlace)

NO_PRODUCER_ID = -1
NO_SEQUENCE = -1
LATEST_TIMESTAMP = (2**63 - 1) // 1000
"""In ms: 64 bits hold its microseconds. Readers with such clocks, as Spark, could not read a later
one, nor what follows it."""

_UNSET_EPOCH = -1
_STAMP_OFFSET = struct.Struct(">q")
_STAMP_EPOCH = struct.Struct(">i")
_STAMP_PRODUCER = struct.Struct(">qhi")
_STAMP_CRC = struct.Struct(">I")
_offset_of = attrgetter("offset")

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
"""Compression names and their numbers in a batch's attributes."""


def crc_matches(buffer: Buffer, header: BatchHeader) -> bool:
    """Tell whether the CRC32C in the header matches the batch."""
    return CODEC.crc32c(memoryview(buffer)[header.crc_range]) == header.crc


def stamp(buffer: bytearray, header: BatchHeader, base_offset: int, leader_epoch: int) -> None:
    """Write base offset and leader epoch into the batch; the CRC stays valid."""
    _STAMP_OFFSET.pack_into(buffer, header.position, base_offset)
    _STAMP_EPOCH.pack_into(buffer, header.position + LEADER_EPOCH_POSITION, leader_epoch)


def stamp_producer(
    buffer: bytearray,
    header: BatchHeader,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
) -> None:
    """Write the producer fields into the batch, and a new CRC, which covers them."""
    fields = producer_id, producer_epoch, base_sequence
    _STAMP_PRODUCER.pack_into(buffer, header.position + PRODUCER_POSITION, *fields)
    crc = CODEC.crc32c(memoryview(buffer)[header.crc_range])
    _STAMP_CRC.pack_into(buffer, header.position + CRC_POSITION, crc)


def encode(
    records: Sequence[SupportsRecord],
    *,
    now_ms: int,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = NO_SEQUENCE,
    compression: str = "none",
) -> bytes:
    """Build one batch of `records` (at least one), with offsets from 0.

    Records without a timestamp get `now_ms`.
    """
    if not records:
        raise CorruptBatch("a batch needs at least one record")
    batch = bytearray(
        CODEC.encode_batch(
            records,
            now_ms=now_ms,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            compression=CODECS[compression],
        )
    )
    stamp(batch, header_at(batch), 0, _UNSET_EPOCH)
    return bytes(batch)


def decode(buffer: Buffer, limit: int = MOST_DECOMPRESSED_BYTES) -> Iterator[Record]:
    """Yield the records of every batch in `buffer`, and check each CRC; see `decode_chunks`."""
    return chain.from_iterable(decode_chunks(buffer, stored_records, limit))


def stored_records(stored: Iterable[SupportsStored]) -> list[Record]:
    """Return the records that a codec has read."""
    return [
        record_of((one.offset, one.timestamp, one.key, one.value, tuple(one.headers)))
        for one in stored
    ]


def decode_chunks(
    buffer: Buffer,
    read: Callable[[Iterable[SupportsStored]], list[R]],
    limit: int = MOST_DECOMPRESSED_BYTES,
) -> Iterator[list[R]]:
    """Yield what `read` makes of some records of the batches, and then of the next ones.

    They are decoded when they are asked for. A batch's CRC is checked before its first record.

    Raises:
        UnreadableBatch: a batch is whole, but its records are malformed, or decompress to more
            than `limit` bytes, or do not have its offsets one by one. It names the offsets of the
            batch, which a reader can skip.
        CorruptBatch: a header or a CRC is invalid, or offsets go back.

    """
    for header in stored_headers(buffer):
        if not crc_matches(buffer, header):
            raise CorruptBatch(f"CRC mismatch in the batch at offset {header.base_offset}")
        batch = memoryview(buffer)[header.position : header.position + header.size]
        try:
            yield from _consecutive(header, CODEC.decode_chunks(batch, limit, read))
        except UnreadableRecords as error:
            raise UnreadableBatch.at(header.base_offset, header.next_offset, str(error)) from error


def _consecutive(header: BatchHeader, chunks: Iterator[list[R]]) -> Iterator[list[R]]:
    """Yield the records of a batch in which each of its offsets has one: nothing compacts logs."""
    if header.record_count != header.last_offset_delta + 1:
        raise UnreadableRecords("it does not have as many records as offsets")
    offset = header.base_offset
    for chunk in chunks:
        if list(map(_offset_of, chunk)) != list(range(offset, offset + len(chunk))):
            raise UnreadableRecords("offsets inside the batch are not consecutive")
        offset += len(chunk)
        yield chunk


def validate(buffer: Buffer) -> list[BatchHeader]:
    """Check the headers and CRCs of batches as a producer sent them, and return the headers.

    The number of records must be that of the offsets, so that the leader can assign offsets by the
    header alone. `record_checks` checks the records too.

    Raises:
        CorruptBatch: the message says what is invalid.

    """
    headers = list(parse_headers(buffer))
    if not headers:
        raise CorruptBatch("no record batch in the body")
    for header in headers:
        if not crc_matches(buffer, header):
            raise CorruptBatch("the CRC of the batch does not match its content")
        if defect := _defect_of(header):
            raise CorruptBatch(defect)
    return headers


def _defect_of(header: BatchHeader) -> str | None:
    """Return what is wrong with the header of a batch that a producer sent, or None."""
    if header.record_count < 1 or header.last_offset_delta != header.record_count - 1:
        return "offsets inside the batch are not consecutive"
    if header.compression not in CODECS.values():
        return "unknown compression"
    if header.attributes & ~COMPRESSION_MASK:
        return (
            f"the attributes {header.attributes & 0xFFFF:#06x} are not supported: a producer sets "
            "the compression, and no timestamp type, transaction or control bits"
        )
    if not 0 <= header.first_timestamp <= header.max_timestamp <= LATEST_TIMESTAMP:
        return (
            f"timestamps from {header.first_timestamp} to {header.max_timestamp}: the first one "
            f"must be 0 or more and at most the latest, and that at most {LATEST_TIMESTAMP}"
        )
    producer = header.producer_id, header.producer_epoch, header.base_sequence
    if producer != (NO_PRODUCER_ID, -1, NO_SEQUENCE) and min(producer) < 0:
        return (
            "producer id, epoch and sequence must be 0 or more, or all of them -1 for a producer "
            "that is not idempotent"
        )
    return None
