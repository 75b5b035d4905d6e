"""Stored record batches as Spark reads them: in its columns, with the errors of the source."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from leadline_client import batch_header
from leadline_client.batch_header import BatchHeader, Buffer
from leadline_client.columnar import decode as columnar
from leadline_client.columnar.checksum import COMPILED, Checksum, crc32c, folded_crc32c
from leadline_client.columnar.layout import Layout
from leadline_client.errors import CorruptBatch, UnreadableBatch
from leadline_spark.codec.columns import Columns, schema
from leadline_spark.errors import LeadlineSparkError

MOST_ROWS = 10_000
MOST_BYTES = 3 << 20
"""The largest Arrow batch for Spark, in rows and bytes; a single record may be larger."""


def decode(
    data: Buffer,
    start: int,
    end: int,
    wanted: Columns,
    topic: str,
    partition: int,
    crc: Checksum = crc32c,
) -> Iterator[pa.RecordBatch]:
    """Yield the records with `start <= offset < end` of whole batches, and verify checksums.

    Control batches yield no records; `stored_headers` tells which offsets the batches cover. Names
    of headers that are not valid UTF-8 are decoded with replacement characters, as in Kafka.

    Raises LeadlineSparkError: LEADLINE_BATCH_CORRUPT for any malformed bytes.
    """
    # As large as Spark takes Arrow batches best.
    layout = Layout(schema(wanted), topic, partition, crc, "replace", MOST_ROWS, MOST_BYTES)
    with _named():
        yield from columnar.decode(data, start, end, layout)


def stored_headers(data: Buffer) -> Iterator[BatchHeader]:
    """Yield the header of every batch in `data`, which holds whole batches. Verifies no checksum.

    Raises LeadlineSparkError: LEADLINE_BATCH_CORRUPT.
    """
    with _named():
        yield from batch_header.stored_headers(data)


def checksum(decoder: str) -> Checksum:
    """Return the function for the option `decoder`: `fast`, `python`, or `auto` for the best.

    Raises LeadlineSparkError: LEADLINE_OPTION_INVALID if `fast` is not installed.
    """
    if decoder == "fast" and not COMPILED:
        advice = "pip install 'leadline-spark[fast]'"
        message = f"decoder is fast, but google-crc32c is not here: {advice}"
        raise LeadlineSparkError("LEADLINE_OPTION_INVALID", message)
    return folded_crc32c if decoder == "python" else crc32c


@contextmanager
def _named() -> Iterator[None]:
    """Raise the source's error for bytes that are no valid batches."""
    try:
        yield
    except UnreadableBatch as error:
        message = (
            f"the records of the batch at offset {error.offset} cannot be read: "
            f"{error.details['reason']}; start from offset {error.next_offset} to skip it"
        )
        raise LeadlineSparkError("LEADLINE_BATCH_CORRUPT", message) from error
    except CorruptBatch as error:
        raise LeadlineSparkError("LEADLINE_BATCH_CORRUPT", error.message) from error
