"""Put neighbouring small files together, under new names, at one stroke for readers of manifests.

A merged file is written whole beside the files that it is made of; then one manifest lets it count
in their place; then they are deleted. Whatever ends this in between, the archive holds the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from leadline_spark.archive import manifest as manifests
from leadline_spark.archive.manifest import Entry
from leadline_spark.archive.parquet import SCHEMA, FileWriter, read_row_groups
from leadline_spark.archive.storage import Store
from leadline_spark.errors import LeadlineSparkError


class Group(NamedTuple):
    """Neighbours of one partition that become one file: two at least."""

    entries: tuple[Entry, ...]


def plan(entries: Iterable[Entry], target_bytes: int) -> list[Group]:
    """Return what to merge: runs of neighbours that stay together below the target.

    A file that has reached half the target is let alone: merging it would save few files, and
    copy much. Pure.
    """
    groups: list[Group] = []
    for files in manifests.by_place(entries).values():
        groups += [Group(tuple(run)) for run in _runs(files, target_bytes) if len(run) > 1]
    return groups


def merge(store: Store, group: Group) -> Entry:
    """Write the file that holds all records of a group, and describe it.

    Raises LEADLINE_ARCHIVE_DAMAGED where a file is not what its manifest says, and
    LEADLINE_ARCHIVE_CONFLICT where it is gone: another compaction has merged it, if all is well.
    """
    first, last = group.entries[0], group.entries[-1]
    writer = FileWriter(store, *first.place, first.topic_id)
    rows, wanted = 0, sum(entry.rows for entry in group.entries)
    try:
        for entry in group.entries:
            for table in read_row_groups(store, entry.path):
                rows += table.num_rows
                for batch in table.cast(SCHEMA).to_batches():
                    writer.add(batch)
        # Before it appears: under another name, it could be in the place of one that counts.
        if (rows, writer.end) != (wanted, last.name.end):
            told = f"{first.path} to {last.path} have {rows} rows, not {wanted}, up to {writer.end}"
            raise manifests.damaged(told)
        return writer.finish()
    except FileNotFoundError as gone:
        told = f"a file from {first.path} to {last.path} is gone while they are merged: see "
        told += "whether another compaction is at work, and what `verify` says"
        raise LeadlineSparkError("LEADLINE_ARCHIVE_CONFLICT", told) from gone
    finally:
        writer.discard()


def _runs(files: list[Entry], target_bytes: int) -> Iterator[list[Entry]]:
    run: list[Entry] = []
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
