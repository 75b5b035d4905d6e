"""Checks of whole record batches before they are accepted: headers, CRCs and every record.

Pure. A check of many records takes long, so it is a generator of steps: the caller decides where
it runs, and what else runs between two steps.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from operator import attrgetter
from typing import Final, TypeAlias

from leadline_client.batch_header import BatchHeader, Buffer, parse_headers
from leadline_client.batches import validate
from leadline_client.codec import CODEC
from leadline_client.errors import BodyTooLarge, CorruptBatch, InvalidRequest
from leadline_client.unreadable import (
    MOST_HEADERS,
    DecompressedTooLarge,
    TooManyHeaders,
    UnreadableRecords,
)

MOST_BATCHES: Final = 0x4000
"""How many batches one request may contain; an application can publish as many at a time."""

MOST_RECORDS: Final = 200_000
"""How many records a batch may have: whoever wants one of them decodes all before it."""

_place: Final = attrgetter("offset", "timestamp")

Steps: TypeAlias = Generator[None, None, list[BatchHeader]]
"""A check; each step decodes one chunk of records (`plain_codec.chunks_in`)."""


def check_batches(data: Buffer, max_batch_bytes: int, max_decompressed_bytes: int) -> Steps:
    """Check batches as a producer sent them; return the headers after the last step.

    Each batch has at most `max_batch_bytes`, and decompresses to at most `max_decompressed_bytes`.

    Raises:
        CorruptBatch: the message says what is invalid.
        BodyTooLarge: a batch is too large, as it is or decompressed.
        InvalidRequest: there are too many batches, or records in one of them, or headers in one of
            its records.

    """
    for number, header in enumerate(parse_headers(data)):
        if number == MOST_BATCHES:
            raise InvalidRequest(f"a request may contain at most {MOST_BATCHES} record batches")
        if header.size > max_batch_bytes:
            raise BodyTooLarge(
                f"a batch of {header.size} bytes; at most {max_batch_bytes} are allowed",
                limit=max_batch_bytes,
            )
    headers = validate(data)
    for header in headers:
        if header.record_count > MOST_RECORDS:
            raise InvalidRequest(
                f"a batch of {header.record_count} records; at most {MOST_RECORDS} are allowed: "
                "send smaller batches"
            )
        try:
            yield from _check_records(data, header, max_decompressed_bytes)
        except DecompressedTooLarge as error:
            raise BodyTooLarge(
                f"a batch decompresses to more than {error.limit} bytes: send fewer records in a "
                "batch, or raise message.max.decompressed.bytes",
                limit=error.limit,
            ) from error
        except TooManyHeaders as error:
            raise InvalidRequest(
                f"a record with more than {MOST_HEADERS} headers; no more are allowed"
            ) from error
        except UnreadableRecords as error:
            raise CorruptBatch(f"the records of a batch cannot be read: {error}") from error
    return headers


def finish(steps: Steps, between: Callable[[], None] | None = None) -> list[BatchHeader]:
    """Take all steps of a check, with a call of `between` after each; see `check_batches`."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            headers: list[BatchHeader] = end.value
            return headers
        if between is not None:
            between()


def _check_records(
    data: Buffer, header: BatchHeader, max_decompressed_bytes: int
) -> Generator[None, None, None]:
    """Check that offsets count from 0, and that the header's timestamps are those of the records.

    Readers and lookups rely on both without decoding the batch.
    """
    batch = memoryview(data)[header.position : header.position + header.size]
    expected, latest = 0, -1
    for chunk in CODEC.record_chunks(batch, max_decompressed_bytes, _place):
        offsets, times = zip(*chunk, strict=True)
        if offsets != tuple(range(expected, expected + len(chunk))):
            raise CorruptBatch("offsets inside the batch are not consecutive")
        if min(times) < 0 or (expected == 0 and times[0] != header.first_timestamp):
            raise CorruptBatch(
                "a timestamp is negative or too large, or the first one is not that of the header"
            )
        expected += len(chunk)
        latest = max(latest, *times)
        yield
    if latest != header.max_timestamp:
        raise CorruptBatch(
            f"the latest timestamp is {latest}, but the header says {header.max_timestamp}"
        )
