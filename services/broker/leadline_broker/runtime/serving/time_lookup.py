"""Finding the first record at or after a time (KIP-79).

The log finds the batch, and its records are decoded beside the event loop unless they are few: a
small compressed batch can have so many records that everything else would wait for seconds.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from leadline_broker.runtime.ports import Log
from leadline_broker.runtime.serving.batch_checks import BatchChecks
from leadline_client.batch_header import header_at
from leadline_client.batches import decode
from leadline_client.errors import UnreadableBatch
from leadline_common.bulk_offsets import EARLIEST, LATEST

FEW_RECORDS: Final = 1_000


async def offset_for_timestamp(
    log: Log, high_watermark: int, timestamp_ms: int | None, checks: BatchChecks
) -> tuple[int | None, int | None]:
    """Return (offset, timestamp) of the first committed record at or after a time.

    `EARLIEST` and `LATEST` give an offset only, and None nothing. The log may change meanwhile:
    the caller checks that this broker still leads in the same epoch.

    Raises:
        StorageFailed: the log cannot be read.

    """
    if timestamp_ms is None:
        return None, None
    if timestamp_ms == EARLIEST:
        return log.log_start_offset, None
    if timestamp_ms == LATEST:
        return high_watermark, None
    return await _first_record_at(log, timestamp_ms, high_watermark, checks) or (None, None)


async def _first_record_at(
    log: Log, timestamp: int, high_watermark: int, checks: BatchChecks
) -> tuple[int, int] | None:
    for _ in iter(log.learn_timestamps, False):
        await asyncio.sleep(0)  # After a start each segment's index is read, and there are many.
    offset = log.log_start_offset
    while data := log.batch_for_timestamp(timestamp, offset):
        header = header_at(data)
        if header.base_offset >= high_watermark:
            return None
        search = partial(record_in, data, timestamp)
        few = header.record_count <= FEW_RECORDS and not header.attributes
        found = search() if few else await checks.read_in_worker(search)
        if found is not None:
            return found if found[0] < high_watermark else None
        offset = header.next_offset
    return None


def record_in(batch: bytes, timestamp: int) -> tuple[int, int] | None:
    """Return (offset, timestamp) of the first record at or after `timestamp` (ms) in a batch.

    Of a batch that cannot be decoded it is the first offset, with the latest timestamp, so that the
    lookup works and no record is skipped.
    """
    try:
        for record in decode(batch):
            if record.timestamp >= timestamp:
                return record.offset, record.timestamp
    except UnreadableBatch:
        header = header_at(batch)
        return header.base_offset, header.max_timestamp
    return None
