"""Compaction: merge adjacent small files, atomically for readers of manifests.

A merged file is written beside its parts; then one manifest replaces the parts by it; then the
parts are deleted. Wherever this is interrupted, the archive has the same records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from leadline_spark.archive import manifest as manifests
from leadline_spark.archive.manifest import ManifestEntry
from leadline_spark.archive.parquet import FileWriter, read_row_groups
from leadline_spark.archive.storage import ArchiveStore
from leadline_spark.errors import LeadlineSparkError


class MergeGroup(NamedTuple):
    """Two or more adjacent files of one partition that become one file."""

    entries: tuple[ManifestEntry, ...]


def plan(entries: Iterable[ManifestEntry], target_bytes: int) -> list[MergeGroup]:
    """Return the groups to merge: adjacent files whose total size is at most the target. Pure.

    A file of at least half the target is never merged: that would save few files and copy much.
    """
    return [
        MergeGroup(tuple(run))
        for files in manifests.by_partition(entries).values()
        for run in _runs(files, target_bytes)
        if len(run) > 1
    ]


def merge(store: ArchiveStore, group: MergeGroup) -> ManifestEntry:
    """Write the file with all records of a group, and return its entry.

    Raises LEADLINE_ARCHIVE_DAMAGED if a file differs from its manifest, and
    LEADLINE_ARCHIVE_CONFLICT if it is gone, probably merged by another compaction.
    """
    first, last = group.entries[0], group.entries[-1]
    writer = FileWriter(store, *first.topic_partition, first.topic_id)
    rows, wanted = 0, sum(entry.rows for entry in group.entries)
    try:
        for entry in group.entries:
            for table in read_row_groups(store, entry.path):
                rows += table.num_rows
                for batch in table.to_batches():
                    writer.add(batch)
        # Check before the file is visible: its name could be that of a file of the archive.
        if (rows, writer.end) != (wanted, last.name.end):
            held = f"have {rows} rows, not {wanted}, up to {writer.end}"
            raise manifests.damaged(f"{first.path} to {last.path} {held}")
        return writer.finish()
    except FileNotFoundError as gone:
        message = f"a file from {first.path} to {last.path} is gone while they are merged: see "
        message += "whether another compaction is at work, and what `verify` says"
        raise LeadlineSparkError("LEADLINE_ARCHIVE_CONFLICT", message) from gone
    finally:
        writer.discard()


def _runs(files: list[ManifestEntry], target_bytes: int) -> Iterator[list[ManifestEntry]]:
    run: list[ManifestEntry] = []
    size = 0
    for entry in files:
        big = entry.bytes * 2 >= target_bytes
        apart = run and run[-1].name.end != entry.name.first
        if run and (big or apart or size + entry.bytes > target_bytes):
            yield run
            run, size = [], 0
        if not big:
            run.append(entry)
            size += entry.bytes
    if run:
        yield run
