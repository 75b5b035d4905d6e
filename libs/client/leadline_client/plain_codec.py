"""Kafka's RecordBatch v2 in pure Python, for installations without the compiled codec.

It writes the same bytes as `compiled_codec.py`, but is much slower. Of the compressions it knows
gzip, which the standard library has.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import Final

from leadline_client.extras import MissingExtra
from leadline_client.wire import Record, SupportsRecord

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_CRC_RANGE_START: Final = 21
_CRC_POSITION: Final = 17
_SIZE_PREFIX: Final = 12
_MAGIC: Final = 2
_UNSET_EPOCH: Final = -1
_COMPRESSION_MASK: Final = 0x07
_NONE: Final = 0
_GZIP: Final = 1
_GZIP_WINDOW: Final = 31
_POLYNOMIAL: Final = 0x82F63B78


def _table() -> tuple[int, ...]:
    """Return the CRC of each byte (Castagnoli's polynomial, reflected)."""
    found = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ (_POLYNOMIAL if crc & 1 else 0)
        found.append(crc)
    return tuple(found)


_TABLE: Final = _table()


def crc32c(data: bytes) -> int:
    """Return the CRC32C of `data`."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def encode_batch(
    records: Sequence[SupportsRecord],
    *,
    now_ms: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    compression: int,
) -> bytes:
    """Build one batch of `records` (at least one), with offsets from 0.

    Raises:
        MissingExtra: the compression needs a package that is not installed.

    """
    times = [now_ms if record.timestamp is None else record.timestamp for record in records]
    encoded = bytearray()
    for index, (record, time) in enumerate(zip(records, times, strict=True)):
        _put_record(encoded, index, time - times[0], record)
    body = _compressed(bytes(encoded), compression)
    count = len(records)
    header = _HEADER.pack(
        0,
        _HEADER.size - _SIZE_PREFIX + len(body),
        _UNSET_EPOCH,
        _MAGIC,
        0,
        compression,
        count - 1,
        times[0],
        max(times),
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    )
    batch = bytearray(header + body)
    struct.pack_into(">I", batch, _CRC_POSITION, crc32c(bytes(batch[_CRC_RANGE_START:])))
    return bytes(batch)


def decode_batch(batch: bytes) -> Iterator[Record]:
    """Yield the records of one whole batch.

    Raises:
        ValueError, IndexError: a record is invalid.
        MissingExtra: the compression needs a package that is not installed.

    """
    fields = _HEADER.unpack_from(batch)
    base_offset, attributes, first_timestamp, count = fields[0], fields[5], fields[7], fields[12]
    data = _decompressed(batch[_HEADER.size :], attributes & _COMPRESSION_MASK)
    position = 0
    for _ in range(count):
        size, position = _varint(data, position)
        end = position + size
        record = _record(data, position, end, base_offset, first_timestamp)
        position = end
        yield record
    if position != len(data):
        raise ValueError("bytes are left behind the last record")


def _put_record(
    encoded: bytearray, index: int, timestamp_delta: int, record: SupportsRecord
) -> None:
    body = bytearray(b"\0")
    _put_varint(body, timestamp_delta)
    _put_varint(body, index)
    _put_bytes(body, record.key)
    _put_bytes(body, record.value)
    _put_varint(body, len(record.headers))
    for name, value in record.headers:
        _put_bytes(body, name.encode())
        _put_bytes(body, value)
    _put_varint(encoded, len(body))
    encoded += body


def _record(data: bytes, position: int, end: int, base_offset: int, first_timestamp: int) -> Record:
    timestamp_delta, position = _varint(data, position + 1)
    offset_delta, position = _varint(data, position)
    key, position = _bytes(data, position)
    value, position = _bytes(data, position)
    count, position = _varint(data, position)
    headers = []
    for _ in range(count):
        name, position = _bytes(data, position)
        content, position = _bytes(data, position)
        headers.append(((name or b"").decode(), content))
    if position != end or count < 0:
        raise ValueError("a record does not end where its length says")
    offset, timestamp = base_offset + offset_delta, first_timestamp + timestamp_delta
    return Record(offset, timestamp, key, value, tuple(headers))


def _put_varint(into: bytearray, number: int) -> None:
    """Append a number in zigzag form, 7 bits to the byte, the lowest first."""
    rest = (number << 1) ^ (number >> 63)
    while rest > 0x7F:
        into.append(rest & 0x7F | 0x80)
        rest >>= 7
    into.append(rest)


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """Return a number and the position after it."""
    found = shift = 0
    while True:
        byte = data[position]
        position += 1
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (found >> 1) ^ -(found & 1), position
        shift += 7
        if shift > 63:
            raise ValueError("a number has more than 64 bits")


def _put_bytes(into: bytearray, data: bytes | None) -> None:
    if data is None:
        _put_varint(into, -1)
        return
    _put_varint(into, len(data))
    into += data


def _bytes(data: bytes, position: int) -> tuple[bytes | None, int]:
    size, position = _varint(data, position)
    if size < 0:
        return None, position
    end = position + size
    if end > len(data):
        raise ValueError("a length reaches beyond the end of the batch")
    return data[position:end], end


def _compressed(data: bytes, compression: int) -> bytes:
    if compression == _NONE:
        return data
    _require_gzip(compression)
    packer = zlib.compressobj(wbits=_GZIP_WINDOW)
    return packer.compress(data) + packer.flush()


def _decompressed(data: bytes, compression: int) -> bytes:
    if compression == _NONE:
        return data
    _require_gzip(compression)
    try:
        return zlib.decompress(data, wbits=_GZIP_WINDOW)
    except zlib.error as error:
        raise ValueError("the compressed records are damaged") from error


def _require_gzip(compression: int) -> None:
    if compression != _GZIP:
        raise MissingExtra("records", "record batches with a compression other than gzip")
