"""One data file: consecutive records of a partition as Parquet, compressed with zstd.

Its bytes depend only on the records and the version of pyarrow. Row groups are split by counts of
rows and bytes, however the records arrive, and the file contains no time or writer. So a range can
be written again at any time, and gives the same file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from leadline_client.wire import TopicPartition
from leadline_spark.archive.manifest import ManifestEntry, damaged
from leadline_spark.archive.naming import DataName, partition_folder
from leadline_spark.archive.storage import ArchiveStore
from leadline_spark.errors import LeadlineSparkError

ROW_GROUP_ROWS = 65_536
ROW_GROUP_BYTES = 16 << 20
"""A row group ends with the record that reaches either limit. A replay holds one in memory, and
publishes it as one batch."""

SCHEMA = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("timestampType", pa.int32(), nullable=False),
        pa.field("leaderEpoch", pa.int32(), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field(
            "headers",
            pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])),
        ),
    ]
)
"""All columns of a record, except topic and partition, which are in the path."""

_WRITER_OPTIONS: dict[str, Any] = {
    "compression": "zstd",
    "use_dictionary": ["key", "timestampType", "leaderEpoch"],
    "column_encoding": {"offset": "DELTA_BINARY_PACKED", "timestamp": "DELTA_BINARY_PACKED"},
    "write_page_checksum": True,
    "store_schema": False,
}


class _HashingFile:
    """A file that is written sequentially, and its SHA-256."""

    closed = False

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._digest = hashlib.sha256()
        self.size = 0

    def write(self, data: bytes) -> int:
        """Append data."""
        self._digest.update(data)
        self.size += len(data)
        self._file.write(data)
        return len(data)

    def tell(self) -> int:
        """Return the position."""
        return self.size

    def flush(self) -> None:
        """Do nothing: the caller that opened the file flushes it."""

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()


class RowGroups:
    """Splits a stream of records into tables, one for each row group."""

    def __init__(self, rows: int = ROW_GROUP_ROWS, size: int = ROW_GROUP_BYTES) -> None:
        self._max_rows = rows
        self._max_bytes = size
        self._waiting: list[pa.RecordBatch] = []
        self._rows = 0
        self._bytes = 0

    def add(self, batch: pa.RecordBatch) -> Iterator[pa.Table]:
        """Add records, and yield the row groups that they complete."""
        sizes = pc.cumulative_sum(row_bytes(batch))
        begin = taken = 0
        while begin < batch.num_rows:
            rows = self._rows_until_full(sizes, begin, taken)
            part = batch.slice(begin, rows)
            begin += part.num_rows
            total = sizes[begin - 1].as_py()
            self._waiting.append(part)
            self._rows += part.num_rows
            self._bytes += total - taken
            taken = total
            if self._rows >= self._max_rows or self._bytes >= self._max_bytes:
                yield from self.rest()

    def rest(self) -> Iterator[pa.Table]:
        """Yield the incomplete row group, if there is one."""
        if self._waiting:
            yield pa.Table.from_batches(self._waiting).combine_chunks()
        self._waiting, self._rows, self._bytes = [], 0, 0

    def _rows_until_full(self, sizes: pa.Array, begin: int, taken: int) -> int:
        """Return how many rows from `begin` on complete the row group; maybe more than exist."""
        by_rows = self._max_rows - self._rows
        full = pc.greater_equal(sizes.slice(begin), taken + self._max_bytes - self._bytes)
        by_bytes = pc.index(full, True).as_py()
        return by_rows if by_bytes < 0 else min(by_rows, int(by_bytes) + 1)


def row_bytes(batch: pa.RecordBatch) -> pa.Array:
    """Return the size of each record's key and value. Headers are small, and slow to measure."""
    lengths = (
        pc.fill_null(pc.cast(pc.binary_length(batch.column(name)), pa.int64()), 0)
        for name in ("key", "value")
    )
    return pc.add(*lengths)


class FileWriter:
    """Writes one file of consecutive records. Its name is known when the last one is written.

    `discard` deletes the file, unless `finish` was called.
    """

    def __init__(self, store: ArchiveStore, topic: str, partition: int, topic_id: str) -> None:
        self._topic_partition = TopicPartition(topic, partition)
        self._topic_id = topic_id
        self._groups = RowGroups()
        self._spans: list[_Span] = []
        self._pending = store.begin(partition_folder(topic, partition))
        self._file = _HashingFile(self._pending.file)
        self._parquet = pq.ParquetWriter(pa.PythonFile(self._file, "w"), SCHEMA, **_WRITER_OPTIONS)

    @property
    def end(self) -> int:
        """The offset after the last record."""
        return self._spans[-1].last + 1 if self._spans else 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Add records in the columns of SCHEMA.

        Raises LEADLINE_ARCHIVE_CONFLICT if offsets do not ascend, because the query shuffles rows.
        """
        if not batch.num_rows:
            return
        span = _span_of(batch)
        offsets = batch.column("offset")
        ascending = pc.all(pc.greater(offsets.slice(1), offsets.slice(0, batch.num_rows - 1)))
        if span.first < self.end or ascending.as_py() is False:
            raise LeadlineSparkError(
                "LEADLINE_ARCHIVE_CONFLICT",
                f"{self._topic_partition}: offsets {span.first} to {span.last} come after offset "
                f"{self.end - 1}, or out of order: nothing may stand between source and archive",
            )
        self._spans.append(span)
        for table in self._groups.add(batch):
            self._write(table)

    def finish(self) -> ManifestEntry:
        """Make the file visible, and return its entry. It must have a record."""
        for table in self._groups.rest():
            self._write(table)
        self._parquet.close()
        name = DataName(*self._topic_partition, self._spans[0].first, self._spans[-1].last)
        self._pending.finish(name.path)
        spans = self._spans
        return ManifestEntry(
            path=name.path,
            rows=sum(span.rows for span in spans),
            bytes=self._file.size,
            sha256=self._file.sha256,
            topic_id=self._topic_id,
            first_epoch=min(span.first_epoch for span in spans),
            last_epoch=max(span.last_epoch for span in spans),
            min_time_ms=min(span.min_time_ms for span in spans),
            max_time_ms=max(span.max_time_ms for span in spans),
        )

    def discard(self) -> None:
        """Delete the file, unless it is finished."""
        with suppress(OSError, pa.lib.ArrowException):
            self._parquet.close()
        self._pending.discard()

    def _write(self, table: pa.Table) -> None:
        self._parquet.write_table(table, row_group_size=table.num_rows)


class _Span(NamedTuple):
    """The bounds of the records of a batch."""

    rows: int
    first: int
    last: int
    first_epoch: int
    last_epoch: int
    min_time_ms: int
    max_time_ms: int


def _span_of(batch: pa.RecordBatch) -> _Span:
    offsets = batch.column("offset")
    epochs = pc.min_max(batch.column("leaderEpoch")).as_py()
    times = pc.min_max(pc.cast(batch.column("timestamp"), pa.int64())).as_py()
    return _Span(
        batch.num_rows,
        offsets[0].as_py(),
        offsets[-1].as_py(),
        epochs["min"],
        epochs["max"],
        times["min"] // 1_000,
        times["max"] // 1_000,
    )


def read_row_groups(store: ArchiveStore, path: str) -> Iterator[pa.Table]:
    """Yield the row groups of a file, in the columns of SCHEMA.

    Raises LEADLINE_ARCHIVE_DAMAGED if it cannot be decoded, as after a change of a byte, and
    FileNotFoundError.
    """
    with _opened(store, path) as parquet:
        for number in range(parquet.num_row_groups):
            yield parquet.read_row_group(number, use_threads=False).cast(SCHEMA)


def read_row_group(store: ArchiveStore, path: str, number: int) -> pa.Table:
    """Return one row group, in the columns of SCHEMA. Raises as `read_row_groups` does."""
    with _opened(store, path) as parquet:
        return parquet.read_row_group(number, use_threads=False).cast(SCHEMA)


def row_group_rows(store: ArchiveStore, path: str) -> list[int]:
    """Return the number of records in each row group. Raises as `read_row_groups` does."""
    with _opened(store, path) as parquet:
        metadata = parquet.metadata
        return [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]


@contextmanager
def _opened(store: ArchiveStore, path: str) -> Iterator[pq.ParquetFile]:
    try:
        with (
            store.open(path) as file,
            pq.ParquetFile(file, page_checksum_verification=True) as parquet,
        ):
            yield parquet
    except (ValueError, pa.ArrowException, OSError) as failure:
        if isinstance(failure, OSError) and failure.errno is not None:
            raise  # It is the system's: pyarrow's, for what it cannot decode, have no number.
        raise damaged(f"{path} cannot be read: {failure}") from failure
