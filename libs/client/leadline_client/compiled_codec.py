"""Kafka's RecordBatch v2 by aiokafka's compiled codec; the only module that imports it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, TypeVar

import google_crc32c
from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import (
    DefaultRecord,
    DefaultRecordBatch,
    DefaultRecordBatchBuilder,
)

from leadline_client.batch_header import (
    APPEND_TIME_BIT,
    COMPRESSION_MASK,
    HEADER_BYTES,
    LAYOUT,
    MAGIC,
)
from leadline_client.decompression import decompress
from leadline_client.plain_codec import chunks_in, require_room
from leadline_client.unreadable import MOST_HEADERS, UnreadableRecords
from leadline_client.wire import SupportsRecord

T = TypeVar("T")
_NO_LIMIT: Final = 1 << 30
_PADDING: Final = bytes(128)
_PIECE_BYTES: Final = 1 << 16


def crc32c(data: bytes | memoryview) -> int:
    """Return the CRC32C of `data`."""
    view, crc = memoryview(data), 0
    # The library takes only bytes. A copy of a whole batch would take longer than the checksum.
    for start in range(0, len(view), _PIECE_BYTES):
        crc = google_crc32c.extend(crc, bytes(view[start : start + _PIECE_BYTES]))
    return int(crc)


def encode_batch(
    records: Sequence[SupportsRecord],
    *,
    now_ms: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    compression: int,
) -> bytes:
    """Build one batch of `records` (at least one), with offsets from 0."""
    builder = DefaultRecordBatchBuilder(
        MAGIC, compression, 0, producer_id, producer_epoch, base_sequence, _NO_LIMIT
    )
    for index, record in enumerate(records):
        timestamp = now_ms if record.timestamp is None else record.timestamp
        builder.append(index, timestamp, record.key, record.value, list(record.headers))
    return bytes(builder.build())


def record_chunks(
    batch: bytes | memoryview, limit: int, read: Callable[[DefaultRecord], T]
) -> Iterator[list[T]]:
    """Yield in lists what `read` returns for each record of one whole batch, with offsets from 0.

    It is for batches that are not accepted yet: no record may have more than `MOST_HEADERS`.

    Raises:
        DecompressedTooLarge: they decompress to more than `limit` bytes.
        TooManyHeaders: a record has too many.
        UnreadableRecords: a record is invalid, or bytes are left behind the last one.

    """
    fields = LAYOUT.unpack_from(batch)

    def as_list(records: Iterable[DefaultRecord]) -> list[T]:
        return list(map(read, records))

    return _chunks(batch, (0, *fields[1:]), limit, as_list, MOST_HEADERS)


def decode_chunks(
    batch: bytes | memoryview, limit: int, read: Callable[[Iterable[DefaultRecord]], list[T]]
) -> Iterator[list[T]]:
    """Yield what `read` makes of some records of one whole batch, and then of the next ones.

    For errors see `record_chunks`; any number of headers is decoded.
    """
    return _chunks(batch, LAYOUT.unpack_from(batch), limit, read, None)


def _chunks(
    batch: bytes | memoryview,
    fields: tuple[Any, ...],
    limit: int,
    read: Callable[[Iterable[DefaultRecord]], list[T]],
    most_headers: int | None,
) -> Iterator[list[T]]:
    section = _plain(batch, fields, limit)
    require_room(fields[12], len(section))
    parts = memoryview(section)
    try:
        for start, end, count in chunks_in(section, fields[12], most_headers):
            # A batch of its own: a hostile record cannot have the codec read on behind the chunk.
            records = DefaultRecordBatch(_padded(fields, parts[start:end], count))
            yield read(islice(records, count))
    except (CorruptRecordException, ValueError, OverflowError, MemoryError) as error:
        if isinstance(error, UnreadableRecords):
            raise
        # The codec asks for the memory before it compares an absurd length with the bytes.
        raise UnreadableRecords("a record is malformed") from error


def _plain(batch: bytes | memoryview, fields: tuple[Any, ...], limit: int) -> bytes:
    """Return the records of a batch, decompressed."""
    section = memoryview(batch)[HEADER_BYTES:]
    compression = fields[5] & COMPRESSION_MASK
    return bytes(decompress(section, compression, limit) if compression else section)


def _padded(fields: tuple[Any, ...], section: memoryview, count: int) -> bytes:
    """Return a batch of uncompressed records with zeros behind them.

    The compiled codec does not compare every number with the end of its buffer, so a hostile last
    record could have it read beyond. It reads a few numbers too many at most, and zeros end them.
    """
    attributes = fields[5] & APPEND_TIME_BIT
    head = LAYOUT.pack(*fields[:4], 0, attributes, *fields[6:12], count)
    return b"".join((head, section, _PADDING))
