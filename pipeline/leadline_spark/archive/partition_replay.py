"""Fill one partition of a new topic from an archive: record by record as it was, exactly once.

Row group by row group is staged with the leader and published under its number. The log itself
remembers the numbers, so whoever comes later, after whatever has died, sees how far it got, and
nothing is published twice. Offsets begin at 0 and leave out what the archived log left out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from leadline_client.wire import TopicPartition
from leadline_spark.archive.manifest import ManifestEntry
from leadline_spark.archive.parquet import read_row_group, row_group_rows
from leadline_spark.archive.storage import open_store
from leadline_spark.cluster.cluster_client import ClusterClient, Connection
from leadline_spark.cluster.transport import OCTETS, Refusal
from leadline_spark.codec.columns import HEADERS
from leadline_spark.codec.encode import Records, append_time, encode
from leadline_spark.codec.frames import frames
from leadline_spark.errors import LeadlineSparkError
from leadline_spark.read.offset_fetcher import OffsetFetcher
from leadline_spark.read.subscription import SourceSubscription
from leadline_spark.write.partition_writers import LeaderClient

BATCH_BYTES = 512 << 10
UPLOAD_BYTES = 4 << 20
COMPRESSION = "zstd"
UNKNOWN_STAGED = 40452
_OCTETS = {"Accept": OCTETS}
_PUBLISHER = 1 << 62
_TRIES = 20


@dataclass(frozen=True, slots=True)
class PartitionReplay:
    """What one task does: the files of a partition, in order, into a partition of a topic."""

    location: str
    entries: tuple[ManifestEntry, ...]
    target: TopicPartition
    app: str
    connection: Connection
    deadline_s: float = 60.0


class Chunk(NamedTuple):
    """One row group: its number in the partition, and the offsets [start, end) that it becomes."""

    number: int
    path: str
    row_group: int
    start: int
    end: int


def fill(filling: PartitionReplay) -> int:
    """Publish what is still to be published, and return how many records that was.

    Raises LeadlineSparkError: LEADLINE_REPLAY_CONFLICT where the partition holds something else,
    LEADLINE_LEADER_UNREACHABLE, LEADLINE_REFUSED.
    """
    leader_client = LeaderClient(filling.connection, filling.target, None, filling.deadline_s)
    chunks = row_group_chunks(filling)
    end = _end(filling)
    if end:
        _check_resumed(leader_client, filling, chunks, end)
    left = [chunk for chunk in chunks if chunk.end > end]
    for chunk in left:
        _publish(leader_client, filling, chunk)
    return sum(chunk.end - max(chunk.start, end) for chunk in left)


def row_group_chunks(filling: PartitionReplay) -> list[Chunk]:
    """Return the row groups of all files, and which offsets they become."""
    store = open_store(filling.location)
    rows = [
        (entry.path, number, count)
        for entry in filling.entries
        for number, count in enumerate(row_group_rows(store, entry.path))
    ]
    ends = accumulate(count for _, _, count in rows)
    return [
        Chunk(at, path, number, end - count, end)
        for at, ((path, number, count), end) in enumerate(zip(rows, ends, strict=True))
    ]


def _end(filling: PartitionReplay) -> int:
    """Return where the partition ends now. It has to begin at 0."""
    topic_partitions = SourceSubscription(topic_partitions=(filling.target,))
    fetcher = OffsetFetcher(ClusterClient(filling.connection), topic_partitions, filling.deadline_s)
    found = fetcher.ends([filling.target])[filling.target]
    if found.start:
        raise _conflict(filling, f"begins at offset {found.start}")
    return found.end


def _check_resumed(
    leader_client: LeaderClient, filling: PartitionReplay, chunks: list[Chunk], end: int
) -> None:
    """Check that the last record that is there was published by an earlier attempt at the same.

    It need not be the last of its chunk: a leader may have died while it appended, and publishing
    the chunk again completes it.
    """
    if end > (chunks[-1].end if chunks else 0):
        raise _conflict(filling, f"ends before {end}, beyond what the archive holds")
    chunk = next(chunk for chunk in chunks if chunk.end >= end)
    topic_partition = filling.target
    path = f"/v1/topics/{topic_partition.topic}/partitions/{topic_partition.partition}/records"
    last = {"offset": end - 1}
    answer = leader_client.route.ask(
        lambda url: leader_client.cluster.call("GET", url, path, last, headers=_OCTETS)
    )
    found = next((frame for frame in frames(answer.body) if frame.last_offset >= end - 1), None)
    by = (found.producer_id, found.base_sequence) if found else None
    if by != (publisher_id(filling.app), chunk.number):
        raise _conflict(filling, f"holds {end} records that this did not put there")


def publisher_id(app: str) -> int:
    """Return the producer id that leaders write into what an application publishes."""
    digest = hashlib.blake2b(app.encode(), digest_size=8).digest()
    return _PUBLISHER | (int.from_bytes(digest, "big") & (_PUBLISHER - 1))


def _publish(leader_client: LeaderClient, filling: PartitionReplay, chunk: Chunk) -> None:
    """Stage and publish; again from the beginning where a leader is gone with what it was sent."""
    for _ in range(_TRIES):
        staged = []
        for upload in uploads(filling.location, chunk):
            try:
                answer = leader_client.ask("POST", "staged", upload)
            except Refusal as refusal:
                raise leader_client.refused(refusal) from refusal
            staged.append(answer.json()["staged_id"])
        published = _published(leader_client, filling, chunk.number, staged)
        if published is not None:
            if published["base_offset"] not in (chunk.start, None):
                message = f"got records {chunk.start} and on at offset {published['base_offset']}"
                raise _conflict(filling, f"{message}: somebody else writes to it")
            return
    message = (
        f"{filling.target}: what was staged was lost {_TRIES} times, with one leader each time"
    )
    raise LeadlineSparkError("LEADLINE_STAGED_LOST", message)


def _published(
    leader_client: LeaderClient, filling: PartitionReplay, number: int, staged: list[str]
) -> Any | None:
    """Publish, and return the answer; None where the leader does not have what was staged."""
    body = {"app": filling.app, "batch": number, "staged": staged}
    try:
        return leader_client.ask("POST", "publish", body).json()
    except Refusal as refusal:
        if refusal.error_code == UNKNOWN_STAGED:
            return None
        raise leader_client.refused(refusal, "LEADLINE_REPLAY_CONFLICT") from refusal


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
    """Encode rows of an archive as record batches, with the timestamps and their type."""
    times = pc.cast(rows.column("timestamp"), pa.timestamp("ms", "UTC")).cast(pa.int64())
    records = Records(
        rows.column("key"), rows.column("value"), rows.column("headers").cast(HEADERS), times
    )
    appended = rows.column("timestampType")
    for start, count in _alike(appended, times):
        by_leader = bool(appended[start].as_py())
        for part in records.slice(start, count).split(BATCH_BYTES):
            encoded = encode(part, now_ms=0, codec=COMPRESSION)
            yield append_time(encoded) if by_leader else encoded


def _alike(kinds: pa.Array, times: pa.Array) -> Iterator[tuple[int, int]]:
    """Yield the stretches (start, count) that one batch can hold.

    A batch has one type of timestamp; where that is the time of appending, one timestamp, too.
    """
    changes = pc.if_else(pc.equal(kinds, 0), pa.scalar(None, pa.int64()), times)
    runs = pc.run_end_encode(changes)
    start = 0
    for end in runs.run_ends.to_pylist():
        yield start, end - start
        start = end


def _conflict(filling: PartitionReplay, what: str) -> LeadlineSparkError:
    message = f"{filling.target} {what}. Replay into a topic that is new, and that nobody writes to"
    return LeadlineSparkError("LEADLINE_REPLAY_CONFLICT", message)
