"""Put neighbouring small files together, under new names, at one stroke for readers of manifests.

A merged file is written whole beside the files that it is made of; then one manifest lets it count
in their place; then they are deleted. Whatever ends this in between, the archive holds the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from leadline_spark.archive import manifest as manifests
from leadline_spark.archive.manifest import ManifestEntry
from leadline_spark.archive.parquet import SCHEMA, FileWriter, read_row_groups
from leadline_spark.archive.storage import ArchiveStore
from leadline_spark.errors import LeadlineSparkError


class MergeGroup(NamedTuple):
    """Neighbours of one partition that become one file: two at least."""

    entries: tuple[ManifestEntry, ...]


def plan(entries: Iterable[ManifestEntry], target_bytes: int) -> list[MergeGroup]:
    """Return what to merge: runs of neighbours that stay together below the target.

    A file that has reached half the target is let alone: merging it would save few files, and
    copy much. Pure.
    """
    groups: list[MergeGroup] = []
    for files in manifests.by_partition(entries).values():
        groups += [MergeGroup(tuple(run)) for run in _runs(files, target_bytes) if len(run) > 1]
    return groups


def merge(store: ArchiveStore, group: MergeGroup) -> ManifestEntry:
    """Write the file that holds all records of a group, and describe it.

    Raises LEADLINE_ARCHIVE_DAMAGED where a file is not what its manifest says, and
    LEADLINE_ARCHIVE_CONFLICT where it is gone: another compaction has merged it, if all is well.
    """
    first, last = group.entries[0], group.entries[-1]
    writer = FileWriter(store, *first.topic_partition, first.topic_id)
    rows, wanted = 0, sum(entry.rows for entry in group.entries)
    try:
        for entry in group.entries:
            for table in read_row_groups(store, entry.path):
                rows += table.num_rows
                for batch in table.cast(SCHEMA).to_batches():
                    writer.add(batch)
        # Before it appears: under another name, it could be in place of one that counts.
        if (rows, writer.end) != (wanted, last.name.end):
            message = (
                f"{first.path} to {last.path} have {rows} rows, not {wanted}, up to {writer.end}"
            )
            raise manifests.damaged(message)
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
