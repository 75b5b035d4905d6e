"""Kafka's RecordBatch v2 by aiokafka's compiled codec; the only module that imports it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import google_crc32c
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from leadline_client.wire import Record, SupportsRecord

_MAGIC: Final = 2
_NO_LIMIT: Final = 1 << 30


def crc32c(data: bytes) -> int:
    """Return the CRC32C of `data`."""
    return int(google_crc32c.value(data))


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


def decode_batch(batch: bytes) -> Iterator[Record]:
    """Yield the records of one whole batch; raises ValueError or IndexError for invalid ones."""
    for record in DefaultRecordBatch(batch):
        yield Record(
            record.offset, record.timestamp, record.key, record.value, tuple(record.headers)
        )
