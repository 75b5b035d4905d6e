"""Fill one partition of a new topic from an archive: record by record as it was, exactly once.

Row group by row group is staged with the leader and published under its number. The log itself
remembers the numbers, so whoever comes later, after whatever has died, sees how far it got, and
nothing is published twice. Offsets begin at 0 and leave out what the archived log left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from leadline_spark.archive.manifest import Entry
from leadline_spark.archive.parquet import read_row_group, row_group_rows
from leadline_spark.archive.storage import open_store
from leadline_spark.cluster import Cluster, Connection
from leadline_spark.codec.append_time import append_time
from leadline_spark.codec.columns import HEADERS
from leadline_spark.codec.encode import Records, encode
from leadline_spark.errors import LeadlineSparkError
from leadline_spark.heads import Heads
from leadline_spark.offsets import TopicPartition
from leadline_spark.outlets import Door
from leadline_spark.subscription import Subscription
from leadline_spark.transport import Refusal

BATCH_BYTES = 512 << 10
UPLOAD_BYTES = 4 << 20
COMPRESSION = "zstd"
UNKNOWN_STAGED = 40452
_NEVER_STAGED = "0" * 32
_TRIES = 20


@dataclass(frozen=True, slots=True)
class Filling:
    """What one task does: the files of a partition, in order, into a partition of a topic."""

    location: str
    entries: tuple[Entry, ...]
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


def fill(filling: Filling) -> int:
    """Publish what is still to be published, and return how many records that was.

    Raises LeadlineSparkError: LEADLINE_REPLAY_CONFLICT where the partition holds something else,
    LEADLINE_LEADER_UNREACHABLE, LEADLINE_REFUSED.
    """
    door = Door(filling.connection, filling.target, None, filling.deadline_s)
    chunks = chunks_of(filling)
    end = _end(filling)
    done = [chunk for chunk in chunks if chunk.end <= end]
    if end:
        _check_resumed(door, filling, chunks, done, end)
    for chunk in chunks[len(done) :]:
        _publish(door, filling, chunk)
    return sum(chunk.end - chunk.start for chunk in chunks[len(done) :])


def chunks_of(filling: Filling) -> list[Chunk]:
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


def _end(filling: Filling) -> int:
    """Return where the partition ends now. It has to begin at 0."""
    places = Subscription(places=(filling.target,))
    heads = Heads(Cluster(filling.connection), places, filling.deadline_s)
    found = heads.ends([filling.target])[filling.target]
    if found.start:
        raise _conflict(filling, f"begins at offset {found.start}")
    return found.end


def _check_resumed(
    door: Door, filling: Filling, chunks: list[Chunk], done: list[Chunk], end: int
) -> None:
    """Check that what is there was published by an earlier attempt at the same.

    An end within a chunk is that of a leader that died while it appended; what comes next completes
    it, or is refused.
    """
    if end > (chunks[-1].end if chunks else 0):
        raise _conflict(filling, f"ends before {end}, beyond what the archive holds")
    if done and _published(door, filling, done[-1].number, [_NEVER_STAGED]) is None:
        raise _conflict(filling, f"holds {end} records that this did not put there")


def _publish(door: Door, filling: Filling, chunk: Chunk) -> None:
    """Stage and publish; again from the beginning where a leader is gone with what it was sent."""
    for _ in range(_TRIES):
        staged = []
        for upload in uploads(filling.location, chunk):
            try:
                answer = door.ask("POST", "staged", upload)
            except Refusal as refusal:
                raise door.refused(refusal) from refusal
            staged.append(answer.json()["staged_id"])
        base = _published(door, filling, chunk.number, staged)
        if base is not None:
            if base not in (chunk.start, _UNTOLD):
                told = f"got records {chunk.start} to {chunk.end - 1} at offset {base}"
                raise _conflict(filling, f"{told}: somebody else writes to it")
            return
    told = f"{filling.target}: what was staged was lost {_TRIES} times, with one leader each time"
    raise LeadlineSparkError("LEADLINE_STAGED_LOST", told)


_UNTOLD = -1


def _published(door: Door, filling: Filling, number: int, staged: list[str]) -> int | None:
    """Publish, and return the base offset; None where the leader does not have what was staged."""
    body = {"app": filling.app, "batch": number, "staged": staged}
    try:
        answer = door.ask("POST", "publish", body).json()
    except Refusal as refusal:
        if refusal.error_code == UNKNOWN_STAGED:
            return None
        raise door.refused(refusal, "LEADLINE_REPLAY_CONFLICT") from refusal
    base = answer["base_offset"]
    return _UNTOLD if base is None else int(base)


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


def _conflict(filling: Filling, what: str) -> LeadlineSparkError:
    told = f"{filling.target} {what}. Replay into a topic that is new, and that nobody writes to"
    return LeadlineSparkError("LEADLINE_REPLAY_CONFLICT", told)
