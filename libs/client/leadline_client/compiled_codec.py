"""Kafka's RecordBatch v2 by aiokafka's compiled codec; the only module that imports it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, Final, TypeVar

import google_crc32c
from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import (
    DefaultRecord,
    DefaultRecordBatch,
    DefaultRecordBatchBuilder,
)

from leadline_client.decompression import decompress
from leadline_client.plain_codec import (
    APPEND_TIME_BIT,
    CHUNK_RECORDS,
    COMPRESSION_MASK,
    HEADER,
    require_lengths,
    require_room,
)
from leadline_client.unreadable import UnreadableRecords
from leadline_client.wire import SupportsRecord

T = TypeVar("T")
_MAGIC: Final = 2
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
        _MAGIC, compression, 0, producer_id, producer_epoch, base_sequence, _NO_LIMIT
    )
    for index, record in enumerate(records):
        timestamp = now_ms if record.timestamp is None else record.timestamp
        builder.append(index, timestamp, record.key, record.value, list(record.headers))
    return bytes(builder.build())


def record_chunks(
    batch: bytes | memoryview, limit: int, read: Callable[[DefaultRecord], T]
) -> Iterator[list[T]]:
    """Yield in lists what `read` returns for each record of one whole batch, with offsets from 0.

    Raises:
        DecompressedTooLarge: they decompress to more than `limit` bytes.
        UnreadableRecords: a record is invalid, or bytes are left behind the last one.

    """
    fields = HEADER.unpack_from(batch)
    return _chunks(batch, (0, *fields[1:]), limit, lambda records: list(map(read, records)))


def decode_chunks(
    batch: bytes | memoryview, limit: int, read: Callable[[Iterable[DefaultRecord]], list[T]]
) -> Iterator[list[T]]:
    """Yield what `read` makes of some records of one whole batch, and then of the next ones.

    For errors see `record_chunks`.
    """
    return _chunks(batch, HEADER.unpack_from(batch), limit, read)


def _chunks(
    batch: bytes | memoryview,
    fields: tuple[Any, ...],
    limit: int,
    read: Callable[[Iterable[DefaultRecord]], list[T]],
) -> Iterator[list[T]]:
    count = fields[12]
    # The codec's own iterator cannot be continued after a slice of it.
    records = chain(DefaultRecordBatch(_plain(batch, fields, limit)))
    try:
        for position in range(0, count, CHUNK_RECORDS):
            yield read(islice(records, min(CHUNK_RECORDS, count - position)))
    except (CorruptRecordException, ValueError, OverflowError, MemoryError) as error:
        # The codec asks for the memory before it compares an absurd length with the bytes.
        raise UnreadableRecords("a record is malformed") from error


def _plain(batch: bytes | memoryview, fields: tuple[Any, ...], limit: int) -> bytes:
    """Return a batch of uncompressed records whose lengths are right; see `_padded`."""
    attributes, count = fields[5], fields[12]
    section = memoryview(batch)[HEADER.size :]
    if compression := attributes & COMPRESSION_MASK:
        section = memoryview(decompress(section, compression, limit))
    require_room(count, len(section))
    plain = _padded(fields, section)
    require_lengths(plain, HEADER.size, HEADER.size + len(section), count)
    return plain


def _padded(fields: tuple[Any, ...], section: memoryview) -> bytes:
    """Return a batch of uncompressed records with zeros behind them.

    The compiled codec does not compare every number with the end of its buffer, so a hostile last
    record could have it read beyond. It reads a few numbers too many at most, and zeros end them.
    """
    attributes = fields[5] & APPEND_TIME_BIT
    head = HEADER.pack(*fields[:4], 0, attributes, *fields[6:])
    return b"".join((head, section, _PADDING))
