"""The replay of one archived partition into a new topic: every record as it was, exactly once.

Each row group is staged with the leader and published under its number. The log has the numbers, so
an attempt after any failure sees how far the former one got, and publishes nothing twice. Offsets
begin at 0 and have no gaps.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from leadline_client.columnar.encode import Records, append_time, encode
from leadline_client.errors import LeadlineError, UnknownStaged
from leadline_client.transport import OCTETS
from leadline_client.wire import TopicPartition
from leadline_spark.archive.manifest import ManifestEntry, damaged
from leadline_spark.archive.parquet import read_row_group, row_group_rows
from leadline_spark.archive.storage import ArchiveStore, open_store
from leadline_spark.cluster.cluster_client import ClusterClient, Connection, document
from leadline_spark.cluster.leader_client import LeaderClient
from leadline_spark.codec.columns import HEADERS
from leadline_spark.codec.stored_batches import stored_headers
from leadline_spark.errors import LeadlineSparkError
from leadline_spark.read.offset_fetcher import OffsetFetcher
from leadline_spark.read.subscription import SourceSubscription
from leadline_spark.write.partition_writers import post

BATCH_BYTES = 512 << 10
UPLOAD_BYTES = 4 << 20
COMPRESSION = "zstd"
_PUBLISHER = 1 << 62
_MAX_ATTEMPTS = 20


@dataclass(frozen=True, slots=True)
class PartitionReplay:
    """The work of one task: the files of a partition, in order, into a partition of a topic.

    `app` is the application under which the log keeps the numbers of row groups.
    """

    location: str
    entries: tuple[ManifestEntry, ...]
    target: TopicPartition
    app: str
    connection: Connection
    deadline_s: float = 60.0


class Chunk(NamedTuple):
    """One row group: its number in the partition, and its offsets [start, end) in the new topic."""

    number: int
    path: str
    row_group: int
    start: int
    end: int


def replay_partition(replay: PartitionReplay) -> int:
    """Publish the records that are not published yet, and return their number.

    Raises LeadlineSparkError: LEADLINE_REPLAY_CONFLICT if the partition has other records,
    LEADLINE_ARCHIVE_DAMAGED, LEADLINE_LEADER_UNREACHABLE, LEADLINE_REFUSED.
    """
    cluster = ClusterClient(replay.connection)
    client = LeaderClient(cluster, replay.target, deadline_s=replay.deadline_s)
    chunks = row_group_chunks(replay)
    end = _end_of_target(replay)
    if end:
        _check_resumed(client, replay, chunks, end)
    left = [chunk for chunk in chunks if chunk.end > end]
    for chunk in left:
        _publish(client, replay, chunk)
    return sum(chunk.end - max(chunk.start, end) for chunk in left)


def row_group_chunks(replay: PartitionReplay) -> list[Chunk]:
    """Return the row groups of all files, with their offsets in the new topic.

    Raises LEADLINE_ARCHIVE_DAMAGED if a file is not what its manifest says.
    """
    store = open_store(replay.location)
    rows = [
        (entry.path, number, count)
        for entry in replay.entries
        for number, count in enumerate(_counted(store, entry))
    ]
    ends = accumulate(count for _, _, count in rows)
    return [
        Chunk(chunk, path, number, end - count, end)
        for chunk, ((path, number, count), end) in enumerate(zip(rows, ends, strict=True))
    ]


def _counted(store: ArchiveStore, entry: ManifestEntry) -> list[int]:
    """Return the records in each row group of a file: all that its manifest counts."""
    try:
        counts = row_group_rows(store, entry.path)
    except FileNotFoundError as gone:
        message = f"{entry.path} is gone: a compaction may have merged it, then replay again"
        raise damaged(message) from gone
    if sum(counts) != entry.rows:
        message = f"{entry.path} has {sum(counts)} records, not {entry.rows}"
        raise damaged(message)
    return counts


def _end_of_target(replay: PartitionReplay) -> int:
    """Return the present end of the target, and check that it begins at 0."""
    subscription = SourceSubscription(assigned=(replay.target,))
    cluster = ClusterClient(replay.connection)
    fetcher = OffsetFetcher(cluster, subscription, replay.deadline_s)
    offsets = fetcher.offsets([replay.target])[replay.target]
    if offsets.start:
        raise _conflict(replay, f"begins at offset {offsets.start}")
    return offsets.end


def _check_resumed(
    client: LeaderClient, replay: PartitionReplay, chunks: list[Chunk], end: int
) -> None:
    """Check that an earlier attempt at the same replay published the last record of the target.

    The record may be within a chunk, if a leader died while it appended. Publishing the chunk again
    completes it.
    """
    if end > (chunks[-1].end if chunks else 0):
        raise _conflict(replay, f"ends before {end}, beyond what the archive holds")
    chunk = next(chunk for chunk in chunks if chunk.end >= end)
    last = {"offset": end - 1}
    response = client.request("GET", "records", params=last, headers={"Accept": OCTETS})
    found = next(
        (header for header in stored_headers(response.body) if header.last_offset >= end - 1), None
    )
    publisher = (found.producer_id, found.base_sequence) if found else None
    if publisher != (publisher_id(replay.app), chunk.number):
        raise _conflict(replay, f"holds {end} records that this did not put there")


def publisher_id(app: str) -> int:
    """Return the producer id that leaders write into the batches that an application publishes."""
    digest = hashlib.blake2b(app.encode(), digest_size=8).digest()
    return _PUBLISHER | (int.from_bytes(digest, "big") & (_PUBLISHER - 1))


def _publish(client: LeaderClient, replay: PartitionReplay, chunk: Chunk) -> None:
    """Stage and publish a chunk; start again if the staged records are lost with their leader."""
    for _ in range(_MAX_ATTEMPTS):
        staged = []
        for upload in uploads(replay.location, chunk):
            try:
                response = post(client, "staged", upload)
            except LeadlineError as error:
                raise client.refused(error) from error
            staged.append(document(response)["staged_id"])
        published = _publish_staged(client, replay, chunk.number, staged)
        if published is not None:
            if published["base_offset"] not in (chunk.start, None):
                found = f"got records {chunk.start} and on at offset {published['base_offset']}"
                raise _conflict(replay, f"{found}: somebody else writes to it")
            return
    lost = f"what was staged was lost {_MAX_ATTEMPTS} times, with one leader each time"
    raise LeadlineSparkError("LEADLINE_STAGED_LOST", f"{replay.target}: {lost}")


def _publish_staged(
    client: LeaderClient, replay: PartitionReplay, number: int, staged: list[str]
) -> Any | None:
    """Publish, and return the answer; None if the leader does not have the staged records."""
    body = {"app": replay.app, "batch": number, "staged": staged}
    try:
        return document(post(client, "publish", body))
    except UnknownStaged:
        return None
    except LeadlineError as error:
        raise client.refused(error, "LEADLINE_REPLAY_CONFLICT") from error


def uploads(location: str, chunk: Chunk) -> Iterator[bytes]:
    """Yield a chunk's records as batches, some MiB at a time: the same bytes at every attempt."""
    table = read_row_group(open_store(location), chunk.path, chunk.row_group)
    waiting: list[bytes] = []
    size = 0
    for batch in batches(table.combine_chunks().to_batches()[0]):
        if waiting and size + len(batch) > UPLOAD_BYTES:
            yield b"".join(waiting)
            waiting, size = [], 0
        waiting.append(batch)
        size += len(batch)
    if waiting:
        yield b"".join(waiting)


def batches(rows: pa.RecordBatch) -> Iterator[bytes]:
    """Encode rows of an archive as record batches, with their timestamps and timestamp types."""
    times = pc.cast(rows.column("timestamp"), pa.timestamp("ms", "UTC")).cast(pa.int64())
    records = Records(
        rows.column("key"), rows.column("value"), rows.column("headers").cast(HEADERS), times
    )
    types = rows.column("timestampType")
    for start, count in _timestamp_runs(types, times):
        has_append_time = bool(types[start].as_py())
        for part in records.slice(start, count).split(BATCH_BYTES):
            encoded = encode(part, now_ms=0, codec=COMPRESSION)
            yield append_time(encoded) if has_append_time else encoded


def _timestamp_runs(types: pa.Array, times: pa.Array) -> Iterator[tuple[int, int]]:
    """Yield the runs of rows (start, count) that one batch can contain.

    A batch has one timestamp type and, with LogAppendTime, one timestamp.
    """
    changes = pc.if_else(pc.equal(types, 0), pa.scalar(None, pa.int64()), times)
    runs = pc.run_end_encode(changes)
    start = 0
    for end in runs.run_ends.to_pylist():
        yield start, end - start
        start = end


def _conflict(replay: PartitionReplay, what: str) -> LeadlineSparkError:
    message = f"{replay.target} {what}. Replay into a topic that is new, and that nobody writes to"
    return LeadlineSparkError("LEADLINE_REPLAY_CONFLICT", message)
