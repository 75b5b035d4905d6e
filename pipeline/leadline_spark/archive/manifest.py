"""Manifests, which define the content of an archive. Pure.

A manifest lists the files of one batch, or those of one compaction and the files that they replace.
It is written last, by one rename, so that all its files become part of the archive, or none does.
An archive consists of the files that its manifests list, without those that they replace.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from operator import attrgetter
from typing import Any

from leadline_client.wire import TopicPartition
from leadline_spark.archive.naming import DataName, data_name
from leadline_spark.errors import LeadlineSparkError
from leadline_spark.read.offsets import nested

VERSION = 1
_UNREADABLE = (
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    OverflowError,
    RecursionError,
)


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """One data file. Times are the least and greatest timestamp of its records (Unix ms).

    There are fewer `rows` than offsets if the log itself had gaps. `first_epoch` and `last_epoch`
    are the least and greatest leader epoch of the records.
    """

    path: str
    rows: int
    bytes: int
    sha256: str
    topic_id: str
    first_epoch: int
    last_epoch: int
    min_time_ms: int
    max_time_ms: int

    @property
    def name(self) -> DataName:
        """The parsed path. Raises LEADLINE_ARCHIVE_DAMAGED for a path of another kind."""
        name = data_name(self.path)
        if name is None:
            raise damaged(f"a manifest lists {self.path!r}, which is no name of a data file")
        return name

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition."""
        return self.name.topic_partition

    @property
    def missing(self) -> int:
        """The number of offsets in the range without a record."""
        return self.name.end - self.name.first - self.rows


@dataclass(frozen=True, slots=True)
class Manifest:
    """The files of a batch or compaction, by path.

    `replaces` has the paths of the files that a compaction merged. `ends` and `topic_ids` describe
    the whole archive after it, where each partition ends and the ids of topics, so that the next
    batch is checked against one manifest instead of all.
    """

    files: tuple[ManifestEntry, ...]
    ends: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, str]
    replaces: tuple[str, ...] = ()


def encode(manifest: Manifest) -> bytes:
    """Return the content of the file, indented JSON; the same for equal manifests."""
    document = {
        "version": VERSION,
        "files": [asdict(entry) for entry in manifest.files],
        "replaces": list(manifest.replaces),
        "ends": nested(manifest.ends),
        "topic_ids": dict(sorted(manifest.topic_ids.items())),
    }
    return (json.dumps(document, indent=1) + "\n").encode()


def decode(content: bytes, path: str) -> Manifest:
    """Parse a manifest; `path` is for the error. Raises LEADLINE_ARCHIVE_DAMAGED."""
    try:
        document = json.loads(content)
        if document["version"] != VERSION:
            raise damaged(f"{path} has version {document['version']}; this reads {VERSION}")
        return Manifest(
            tuple(_entry(row) for row in document["files"]),
            {
                TopicPartition(topic, int(partition)): int(end)
                for topic, ends in document["ends"].items()
                for partition, end in ends.items()
            },
            dict(document["topic_ids"]),
            tuple(document["replaces"]),
        )
    except _UNREADABLE as failure:
        raise damaged(f"{path} is no manifest: {type(failure).__name__}: {failure}") from failure


def _entry(row: Any) -> ManifestEntry:
    entry = ManifestEntry(**row)
    texts = {"path", "sha256", "topic_id"}
    if any(type(value) is not (str if name in texts else int) for name, value in row.items()):
        raise TypeError(f"wrong types in {row}")
    if data_name(entry.path) is None:
        raise ValueError(f"{entry.path!r} is no name of a data file")
    return entry


def listed(manifests: Iterable[Manifest]) -> list[ManifestEntry]:
    """Return the files of the archive, by topic, partition and first offset.

    The order of manifests does not matter: a replaced path never counts again, because the file
    that replaced it has the same records.
    """
    entries: dict[str, ManifestEntry] = {}
    replaced: set[str] = set()
    for manifest in manifests:
        replaced.update(manifest.replaces)
        entries.update((entry.path, entry) for entry in manifest.files)
    kept = (entry for path, entry in entries.items() if path not in replaced)
    return sorted(kept, key=attrgetter("name"))


def by_partition(entries: Iterable[ManifestEntry]) -> dict[TopicPartition, list[ManifestEntry]]:
    """Return the entries of each partition, by offset."""
    files: dict[TopicPartition, list[ManifestEntry]] = defaultdict(list)
    for entry in sorted(entries, key=attrgetter("name")):
        files[entry.topic_partition].append(entry)
    return dict(files)


def ends_of(entries: Iterable[ManifestEntry]) -> dict[TopicPartition, int]:
    """Return where each partition ends."""
    return {tp: files[-1].name.end for tp, files in by_partition(entries).items()}


def next_manifest(entries: Iterable[ManifestEntry], before: Manifest) -> Manifest:
    """Return the manifest of a batch that continues at the ends of `before`.

    Raises LEADLINE_ARCHIVE_GAP if a partition's files skip offsets, and LEADLINE_ARCHIVE_CONFLICT
    if they repeat some, or are of another topic of that name.
    """
    files = by_partition(entries)
    ends, ids = dict(before.ends), dict(before.topic_ids)
    for topic_partition, rows in files.items():
        end = ends.get(topic_partition, rows[0].name.first)
        for row in rows:
            _expect(row, end, ids.setdefault(row.name.topic, row.topic_id))
            end = row.name.end
        ends[topic_partition] = end
    return Manifest(tuple(row for rows in files.values() for row in rows), ends, ids)


def _expect(row: ManifestEntry, end: int, topic_id: str) -> None:
    topic, partition, first, last = row.name
    if row.topic_id != topic_id:
        raise LeadlineSparkError(
            "LEADLINE_ARCHIVE_CONFLICT",
            f"{topic} has the id {row.topic_id}, and is archived here with the id {topic_id}: it "
            "was deleted and recreated. Archive it into another directory",
        )
    message = (
        f"{topic}-{partition}: the archive ends before offset {end}, the next file holds "
        f"{first} to {last}"
    )
    if first > end:
        raise LeadlineSparkError("LEADLINE_ARCHIVE_GAP", f"{message}: {first - end} are missing")
    if first < end:
        raise LeadlineSparkError(
            "LEADLINE_ARCHIVE_CONFLICT", f"{message}, some for the second time"
        )


def repeated_manifest(entries: Iterable[ManifestEntry], before: Manifest) -> Manifest:
    """Return the manifest of a repeated batch: the files of the first attempt.

    The repetition may have split the ranges differently; its other files are deleted. A file with
    the same name has the same records, and gets the entry of the repetition.

    Raises LEADLINE_ARCHIVE_CONFLICT for other ranges: then it is another batch.
    """
    again = tuple(entries)
    if spans(again) != spans(before.files):
        raise LeadlineSparkError(
            "LEADLINE_ARCHIVE_CONFLICT",
            f"the batch was archived as {_shown(before.files)}, and is now {_shown(again)}: its "
            "checkpoint is not the one that this archive was written with",
        )
    written = {entry.path: entry for entry in again}
    files = tuple(written.get(entry.path, entry) for entry in before.files)
    return Manifest(files, before.ends, before.topic_ids, before.replaces)


def spans(entries: Iterable[ManifestEntry]) -> dict[TopicPartition, list[tuple[int, int]]]:
    """Return the ranges [first, end) that files cover; adjacent ranges are merged."""
    covered: dict[TopicPartition, list[tuple[int, int]]] = {}
    for topic_partition, files in by_partition(entries).items():
        ranges: list[tuple[int, int]] = []
        for _, _, first, last in (entry.name for entry in files):
            if ranges and first <= ranges[-1][1]:
                ranges[-1] = (ranges[-1][0], max(ranges[-1][1], last + 1))
            else:
                ranges.append((first, last + 1))
        covered[topic_partition] = ranges
    return covered


def covers(held: Mapping[TopicPartition, list[tuple[int, int]]], name: DataName) -> bool:
    """Return whether the ranges `held` (see `spans`) contain all offsets of a file."""
    ranges = held.get(name.topic_partition, [])
    return any(first <= name.first and name.end <= end for first, end in ranges)


def damaged(what: str) -> LeadlineSparkError:
    """Return the error for an archive that differs from its manifests."""
    return LeadlineSparkError("LEADLINE_ARCHIVE_DAMAGED", what)


def _shown(entries: Iterable[ManifestEntry]) -> str:
    return ", ".join(
        f"{topic_partition} [{first}, {end})"
        for topic_partition, ranges in spans(entries).items()
        for first, end in ranges
    )
