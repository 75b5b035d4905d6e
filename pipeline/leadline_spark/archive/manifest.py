"""What an archive holds: manifests, and the arithmetic on them. Pure.

A manifest lists the files of one batch, or of one compaction and which files those replace. It
is the last thing that is written of either, under its name by one rename, so that files count
together or not at all. What the archive holds is what its manifests list less what they replace.
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

VERSION = 1


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """One file. Times are in ms since 1970, over the records; None where there is no file of them.

    `rows` is less than the range is long where the log itself had holes. `first_epoch` and
    `last_epoch` are the least and greatest leader epoch of the records.
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
        """The range, as the path says it. Raises LEADLINE_ARCHIVE_DAMAGED for another path."""
        name = data_name(self.path)
        if name is None:
            raise damaged(f"a manifest lists {self.path!r}, which is no name of a data file")
        return name

    @property
    def topic_partition(self) -> TopicPartition:
        """The topic and partition."""
        return self.name.topic_partition

    @property
    def missing(self) -> int:
        """How many offsets of the range have no record."""
        return self.name.end - self.name.first - self.rows


@dataclass(frozen=True, slots=True)
class Manifest:
    """The files of a batch or compaction, by path.

    `replaces` names the paths that a compaction put together into its files. `ends` is where each
    partition ends after it, and `topic_ids` names the topics that were archived until then: so the
    next batch is checked against one manifest, not against all.
    """

    files: tuple[ManifestEntry, ...]
    ends: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, str]
    replaces: tuple[str, ...] = ()


def encode(manifest: Manifest) -> bytes:
    """Return the file's content: the same for equal manifests, readable by people."""
    ends: dict[str, dict[str, int]] = defaultdict(dict)
    for (topic, partition), end in sorted(manifest.ends.items()):
        ends[topic][str(partition)] = end
    document = {
        "version": VERSION,
        "files": [asdict(entry) for entry in manifest.files],
        "replaces": list(manifest.replaces),
        "ends": ends,
        "topic_ids": dict(sorted(manifest.topic_ids.items())),
    }
    return (json.dumps(document, indent=1) + "\n").encode()


def decode(content: bytes, path: str) -> Manifest:
    """Read a manifest; `path` is for the error. Raises LEADLINE_ARCHIVE_DAMAGED."""
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
    except (ValueError, KeyError, TypeError, AttributeError) as failure:
        raise damaged(f"{path} is no manifest: {type(failure).__name__}: {failure}") from failure


def _entry(row: Any) -> ManifestEntry:
    entry = ManifestEntry(**row)
    texts = (entry.path, entry.sha256, entry.topic_id)
    numbers = (entry.rows, entry.bytes, entry.first_epoch, entry.last_epoch)
    times = (entry.min_time_ms, entry.max_time_ms)
    if not all(isinstance(one, str) for one in texts) or not all(
        type(one) is int for one in (*numbers, *times)
    ):
        raise TypeError(f"wrong types in {row}")
    if data_name(entry.path) is None:
        raise ValueError(f"{entry.path!r} is no name of a data file")
    return entry


def listed(manifests: Iterable[Manifest]) -> list[ManifestEntry]:
    """Return what the archive holds, by topic, partition and first offset.

    The order of the manifests does not matter: a path that was replaced never counts again, as the
    file that replaced it has the same records.
    """
    entries: dict[str, ManifestEntry] = {}
    replaced: set[str] = set()
    for manifest in manifests:
        replaced.update(manifest.replaces)
        entries.update((entry.path, entry) for entry in manifest.files)
    kept = (entry for path, entry in entries.items() if path not in replaced)
    return sorted(kept, key=attrgetter("name"))


EMPTY = Manifest((), {}, {})
"""What there is before the first batch."""


def by_partition(entries: Iterable[ManifestEntry]) -> dict[TopicPartition, list[ManifestEntry]]:
    """Return the entries of each partition, in the order of their offsets."""
    topic_partitions: dict[TopicPartition, list[ManifestEntry]] = defaultdict(list)
    for entry in sorted(entries, key=attrgetter("name")):
        topic_partitions[entry.topic_partition].append(entry)
    return dict(topic_partitions)


def ends_of(entries: Iterable[ManifestEntry]) -> dict[TopicPartition, int]:
    """Return where each partition ends."""
    return {
        topic_partition: files[-1].name.end
        for topic_partition, files in by_partition(entries).items()
    }


def next_manifest(entries: Iterable[ManifestEntry], before: Manifest) -> Manifest:
    """Return the manifest of a batch that goes on where `before` ends.

    Raises LEADLINE_ARCHIVE_GAP where a partition's files leave offsets out, and
    LEADLINE_ARCHIVE_CONFLICT where they hold some again, or are of another topic of that name.
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
            "was deleted and made again. Archive it into another directory",
        )
    message = f"{topic}-{partition}: the archive ends before offset {end}, the next file holds "
    message += f"{first} to {last}"
    if first > end:
        raise LeadlineSparkError("LEADLINE_ARCHIVE_GAP", f"{message}: {first - end} are missing")
    if first < end:
        raise LeadlineSparkError(
            "LEADLINE_ARCHIVE_CONFLICT", f"{message}, some for the second time"
        )


def repeated_manifest(entries: Iterable[ManifestEntry], before: Manifest) -> Manifest:
    """Return the manifest of a batch that ran again: the files of the first time.

    The second time may have split the ranges otherwise; then its files go. What it has written
    under the same names has the same records, and is described as it lies there now.

    Raises LEADLINE_ARCHIVE_CONFLICT where it held other ranges: then it is another batch.
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
    """Return the ranges [first, end) that files cover, those that touch put together."""
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
    """Tell whether the ranges `held`, see `spans`, have all offsets of a file."""
    ranges = held.get(name.topic_partition, [])
    return any(first <= name.first and name.end <= end for first, end in ranges)


def damaged(what: str) -> LeadlineSparkError:
    """Return the error for an archive that is not as its manifests say."""
    return LeadlineSparkError("LEADLINE_ARCHIVE_DAMAGED", what)


def _shown(entries: Iterable[ManifestEntry]) -> str:
    return ", ".join(
        f"{topic}-{partition} [{first}, {end})"
        for (topic, partition), ranges in spans(entries).items()
        for first, end in ranges
    )
