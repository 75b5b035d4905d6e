"""Snapshots of the idempotent producers of a log, named after their offset.

They are checked when they are read. Most are derived from batches that the log still has, and need
not be durable. One is synced before the log may lose the batches: before its segment counts as one,
or if a leader has told what it says.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from leadline_broker.adapters.log.checked_files import fsync_path, read_checked, write_checked
from leadline_broker.adapters.log.errors import CorruptFile
from leadline_broker.adapters.log.layout import (
    DELETED_SUFFIX,
    SNAPSHOT_SUFFIX,
    offset_name,
    offsets_named,
)
from leadline_broker.domain.producers import ProducerRow, ProducerStates, UnreadRange
from leadline_broker.domain.publishes import PublishRow
from leadline_common.long_lived import collector_paused

_KIND = "producer-snapshot"


class _Snapshot(msgspec.Struct, frozen=True):
    """The content of a snapshot; earlier releases wrote only the list of producers.

    It lacks what `unread` batches tell, which were damaged.
    """

    producers: list[ProducerRow]
    publishes: list[PublishRow]
    unread: list[UnreadRange] = []


_snapshot: msgspec.json.Decoder[_Snapshot | list[ProducerRow]] = msgspec.json.Decoder(
    _Snapshot | list[ProducerRow]
)


def write_snapshot(
    directory: Path, offset: int, producers: ProducerStates, *, sync: bool = False
) -> None:
    """Write the state of the producers after all batches below `offset`."""
    with collector_paused():
        rows, publishes = producers.rows(), producers.publishes.rows()
        body = msgspec.json.encode(_Snapshot(rows, publishes, producers.unread))
    write_checked(directory / offset_name(offset, SNAPSHOT_SUFFIX), _KIND, body, sync=sync)


def sync_snapshot(segment: Path) -> None:
    """Make the snapshot at the beginning of a segment durable, before the segment is settled.

    Retention deletes what is before a segment that is settled, and nothing else tells of it then.
    """
    with suppress(FileNotFoundError):
        fsync_path(segment.with_suffix(SNAPSHOT_SUFFIX))


def begin_snapshots(directory: Path, offset: int, told: ProducerStates | None) -> None:
    """Let a log that has no segment begin at `offset`, with what its leader has told of before.

    Nobody tells it again once the segment is there, so that is durable before. A process that ended
    too early has left snapshots that are of another log.
    """
    remove_snapshots(directory, lambda _: False)
    if told is not None and told.knows_any:
        write_snapshot(directory, offset, told, sync=True)
        fsync_path(directory)


def latest_snapshot(directory: Path, at_most: int, default: int) -> tuple[int, ProducerStates]:
    """Return the latest valid snapshot at or below `at_most`, else an empty one at `default`."""
    for offset in reversed(offsets_named(directory, SNAPSHOT_SUFFIX)):
        if default <= offset <= at_most:
            try:
                return offset, _read(directory / offset_name(offset, SNAPSHOT_SUFFIX), offset)
            except (CorruptFile, msgspec.MsgspecError):
                continue
    return default, ProducerStates(as_of=default)


def _read(path: Path, offset: int) -> ProducerStates:
    with collector_paused():
        found = _snapshot.decode(read_checked(path, _KIND))
        if isinstance(found, list):
            return ProducerStates(found, as_of=offset)
        return ProducerStates(found.producers, found.publishes, offset, found.unread)


def set_aside_snapshot(directory: Path, offset: int) -> list[Path]:
    """Delete the snapshot of an offset, but only rename its file, which is returned, if any.

    One that cannot be renamed stays until the log is closed: it is of no use, and does no harm.
    """
    path = directory / offset_name(offset, SNAPSHOT_SUFFIX)
    with suppress(OSError):
        return [path.rename(path.with_name(path.name + DELETED_SUFFIX))]
    return []


def remove_snapshots(directory: Path, keep: Callable[[int], bool]) -> None:
    """Remove the snapshots for whose offset `keep` returns False."""
    for offset in offsets_named(directory, SNAPSHOT_SUFFIX):
        if not keep(offset):
            (directory / offset_name(offset, SNAPSHOT_SUFFIX)).unlink(missing_ok=True)
