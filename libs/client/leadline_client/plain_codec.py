"""Kafka's RecordBatch v2 in pure Python, for installations without the compiled codec.

It writes the same bytes as `compiled_codec.py`, but is much slower. Of the compressions it knows
gzip, which the standard library has.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, TypeVar

from leadline_client import gzip_members
from leadline_client.batch_header import (
    APPEND_TIME_BIT,
    COMPRESSION_MASK,
    CRC_POSITION,
    CRC_RANGE_START,
    HEADER_BYTES,
    LAYOUT,
    MAGIC,
    SIZE_PREFIX,
)
from leadline_client.extras import MissingExtra
from leadline_client.unreadable import (
    MOST_HEADERS,
    TooManyHeaders,
    UnreadableRecords,
)
from leadline_client.wire import Record, SupportsRecord

T = TypeVar("T")
_WORD: Final = (1 << 64) - 1
CHUNK_RECORDS: Final = 500
"""How many records are decoded at a time, at most."""
_CHUNK_BYTES: Final = 64 * 1024
_LEAST_RECORD_BYTES: Final = 7
_UNSET_EPOCH: Final = -1
_NULL: Final = -1
_NONE: Final = 0
_GZIP: Final = 1
_POLYNOMIAL: Final = 0x82F63B78


class Chunk(NamedTuple):
    """Records that are decoded together: from where to where they are, and how many."""

    start: int
    end: int
    records: int


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


def crc32c(data: bytes | memoryview) -> int:
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
    header = LAYOUT.pack(
        0,
        HEADER_BYTES - SIZE_PREFIX + len(body),
        _UNSET_EPOCH,
        MAGIC,
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
    struct.pack_into(">I", batch, CRC_POSITION, crc32c(bytes(batch[CRC_RANGE_START:])))
    return bytes(batch)


def record_chunks(
    batch: bytes | memoryview, limit: int, read: Callable[[Record], T]
) -> Iterator[list[T]]:
    """Yield in lists what `read` returns for each record of one whole batch, with offsets from 0.

    It is for batches that are not accepted yet: no record may have more than `MOST_HEADERS`.

    Raises:
        DecompressedTooLarge: they decompress to more than `limit` bytes.
        TooManyHeaders: a record has too many.
        UnreadableRecords: a record is invalid, or bytes are left behind the last one.
        MissingExtra: the compression needs a package that is not installed.

    """
    return _chunks(batch, limit, read, MOST_HEADERS)


def _chunks(
    batch: bytes | memoryview, limit: int, read: Callable[[Record], T], most_headers: int | None
) -> Iterator[list[T]]:
    fields = LAYOUT.unpack_from(batch)
    attributes, count = fields[5], fields[12]
    section = bytes(memoryview(batch)[HEADER_BYTES:])
    if compression := attributes & COMPRESSION_MASK:
        _require_gzip(compression)
        section = gzip_members.unpack(section, limit)
    require_room(count, len(section))
    chunks = chunks_in(section, count, most_headers)
    times = fields[7], fields[8] if attributes & APPEND_TIME_BIT else None
    position = 0
    for part in chunks:
        chunk: list[T] = []
        for _ in range(part.records):
            record, position = _record_at(section, position, *times)
            chunk.append(read(record))
        yield chunk


def decode_chunks(
    batch: bytes | memoryview, limit: int, read: Callable[[Iterable[Record]], list[T]]
) -> Iterator[list[T]]:
    """Yield what `read` makes of some records of one whole batch, and then of the next ones.

    For errors see `record_chunks`; any number of headers is decoded.
    """
    (base_offset,) = struct.unpack_from(">q", batch)

    def stored(record: Record) -> Record:
        return record._replace(offset=base_offset + record.offset)

    return map(read, _chunks(batch, limit, stored, None))


def require_room(count: int, size: int) -> None:
    """Raise UnreadableRecords unless so many records can be in so many bytes."""
    if not 0 <= count <= size // _LEAST_RECORD_BYTES:
        raise UnreadableRecords(f"{count} records cannot be in {size} bytes")


def chunks_in(data: bytes, count: int, most_headers: int | None = None) -> list[Chunk]:
    """Return which records to decode at a time, by their lengths, which must lead to the end.

    Nothing else runs in the interpreter while the compiled codec decodes a chunk, and it compares
    the number of a record's headers with nothing. So the records of a chunk have 64 KiB at most,
    or there is one.

    The attributes of a record are one byte without a meaning. Some codecs, the compiled one too,
    read them as a number of several bytes: if they were, two readers would see two records.

    Raises:
        TooManyHeaders: a record says that it has more than `most_headers`.
        UnreadableRecords: the lengths lead elsewhere, or a record has attributes.

    """
    # In the form of the lengths, which are twice as large; a header has two bytes or more.
    suspicious = len(data) << 1 if most_headers is None else most_headers << 2
    chunks = []
    position = start = first = 0
    try:
        for number in range(count):
            begin = position
            size = data[position]
            if size < 0x80:
                position += 1
            elif (high := data[position + 1]) < 0x80:
                size, position = high << 7 | size & 0x7F, position + 2
            else:
                size, position = _length(data, position)
            if data[position] >= 0x80:
                raise UnreadableRecords("a record has unknown attributes")
            if size > suspicious and _header_count(data, position) > (most_headers or 0):
                raise TooManyHeaders
            position += size >> 1
            if (position - start > _CHUNK_BYTES or number - first == CHUNK_RECORDS) and (
                begin > start
            ):
                chunks.append(Chunk(start, begin, number - first))
                start, first = begin, number
    except IndexError:
        raise UnreadableRecords("a record is longer than the batch") from None
    if position != len(data):
        raise UnreadableRecords("the records do not end where the batch ends")
    return [*chunks, Chunk(start, position, count - first)]


def _length(data: bytes, position: int) -> tuple[int, int]:
    """Return twice a record's length, and the position after it."""
    size, position = varint_at(data, position)
    if size < 0:
        raise UnreadableRecords("a record has a negative length")
    return size << 1, position


def _header_count(data: bytes, position: int) -> int:
    """Return how many headers a record says it has; its attributes are at `position`."""
    _, position = varint_at(data, position + 1)
    _, position = varint_at(data, position)
    for _ in ("key", "value"):
        size, position = varint_at(data, position)
        if size < _NULL:
            raise UnreadableRecords("a record has a negative length")
        position += max(0, size)
    return varint_at(data, position)[0]


def _put_record(
    encoded: bytearray, index: int, timestamp_delta: int, record: SupportsRecord
) -> None:
    body = bytearray(b"\0")
    put_varint(body, timestamp_delta)
    put_varint(body, index)
    _put_bytes(body, record.key)
    _put_bytes(body, record.value)
    put_varint(body, len(record.headers))
    for name, value in record.headers:
        _put_bytes(body, name.encode())
        _put_bytes(body, value)
    put_varint(encoded, len(body))
    encoded += body


def _record_at(
    data: bytes, position: int, first_timestamp: int, append_time: int | None
) -> tuple[Record, int]:
    """Return the record at a position, and the position after it."""
    try:
        size, position = varint_at(data, position)
        end = position + size
        record = _record(data, position, end, first_timestamp, append_time)
    except (IndexError, UnicodeDecodeError) as error:
        raise UnreadableRecords("a record is malformed") from error
    return record, end


def _record(
    data: bytes, position: int, end: int, first_timestamp: int, append_time: int | None
) -> Record:
    timestamp_delta, position = varint_at(data, position + 1)
    offset, position = varint_at(data, position)
    key, position = _bytes(data, position)
    value, position = _bytes(data, position)
    count, position = varint_at(data, position)
    if not 0 <= count <= end - position:
        raise UnreadableRecords(f"a record has {count} headers")
    headers = []
    for _ in range(count):
        name, position = _bytes(data, position)
        content, position = _bytes(data, position)
        if name is None:
            raise UnreadableRecords("a header has no name")
        headers.append((name.decode(), content))
    if position != end:
        raise UnreadableRecords("a record does not end where its length says")
    timestamp = first_timestamp + timestamp_delta if append_time is None else append_time
    return Record(offset, timestamp, key, value, tuple(headers))


def put_varint(into: bytearray, number: int) -> None:
    """Append a number in zigzag form, 7 bits to the byte, the lowest first."""
    rest = (number << 1) ^ (number >> 63)
    while rest > 0x7F:
        into.append(rest & 0x7F | 0x80)
        rest >>= 7
    into.append(rest)


def varint_at(data: bytes, position: int) -> tuple[int, int]:
    """Return the number at `position`, and the position after it.

    Of the last of ten bytes one bit counts, as for the compiled codec: two readers of a batch must
    not see two records.

    Raises UnreadableRecords and IndexError.
    """
    found = shift = 0
    while True:
        byte = data[position]
        position += 1
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            found &= _WORD
            return (found >> 1) ^ -(found & 1), position
        shift += 7
        if shift > 63:
            raise UnreadableRecords("a number has more than 64 bits")


def _put_bytes(into: bytearray, data: bytes | None) -> None:
    if data is None:
        put_varint(into, -1)
        return
    put_varint(into, len(data))
    into += data


def _bytes(data: bytes, position: int) -> tuple[bytes | None, int]:
    size, position = varint_at(data, position)
    if size < 0:
        return None, position
    end = position + size
    if end > len(data):
        raise UnreadableRecords("a length reaches beyond the end of the batch")
    return data[position:end], end


def _compressed(data: bytes, compression: int) -> bytes:
    if compression == _NONE:
        return data
    _require_gzip(compression)
    packer = zlib.compressobj(wbits=gzip_members.WINDOW)
    return packer.compress(data) + packer.flush()


def _require_gzip(compression: int) -> None:
    if compression != _GZIP:
        raise MissingExtra("records", "record batches with a compression other than gzip")
