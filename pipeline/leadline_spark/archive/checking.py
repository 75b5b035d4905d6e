"""The check of an archive, alone or against the cluster. Needs neither Spark nor pyarrow.

A problem is an error: records that are missing, duplicated, or differ from what was written. A note
is for information: a batch in progress, or gaps that the log itself has.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from leadline_client.wire import Metadata, TopicPartition
from leadline_spark.archive import catalog
from leadline_spark.archive import manifest as manifests
from leadline_spark.archive.manifest import Manifest, ManifestEntry
from leadline_spark.archive.naming import (
    MANIFESTS,
    ManifestName,
    data_name,
    is_temporary,
    manifest_name,
)
from leadline_spark.archive.storage import ArchiveStore
from leadline_spark.cluster.cluster_client import (
    LeaderOffsets,
    OffsetsAnswer,
    OffsetsUnavailable,
)
from leadline_spark.errors import LeadlineSparkError


@dataclass(frozen=True, slots=True)
class ArchiveFinding:
    """A problem or a note. `kind` is stable, for scripts; `about` is a path or a partition."""

    kind: str
    about: str
    message: str


@dataclass(frozen=True, slots=True)
class ArchiveFindings:
    """The result of a check: the entries, the problems, and the notes."""

    entries: tuple[ManifestEntry, ...]
    problems: tuple[ArchiveFinding, ...]
    notes: tuple[ArchiveFinding, ...]


def check(store: ArchiveStore) -> ArchiveFindings:
    """Check the names, the manifests and the checksums of all files of an archive.

    A compaction may run meanwhile. If it deletes files before they are read, what replaces them is
    read too.
    """
    sound: set[ManifestEntry] = set()
    while True:
        found = _check_once(store, sound)
        gone = {problem.about for problem in found.problems if problem.kind == "missing"}
        if not gone - {entry.path for entry in manifests.listed(_readable(store))}:
            return found


def _check_once(store: ArchiveStore, sound: set[ManifestEntry]) -> ArchiveFindings:
    """Check an archive, except the files that are known as sound; add to these."""
    read, problems = _manifests(store)
    entries = manifests.listed(filter(None, read.values()))
    problems += [*_missing(read), *check_ranges(entries), *_cut_short(read.values(), entries)]
    for entry in entries:
        if entry not in sound:
            damage = list(_check_file(store, entry))
            sound.update([] if damage else [entry])
            problems += damage
    more, notes = _check_unlisted(store, entries)
    for entry in entries:
        if entry.missing:
            message = f"{entry.missing} offsets without a record, as in the log"
            notes.append(ArchiveFinding("holes", entry.path, message))
    return ArchiveFindings(tuple(entries), (*problems, *more), tuple(notes))


def check_ranges(entries: Iterable[ManifestEntry]) -> list[ArchiveFinding]:
    """Find gaps, overlaps and different topic ids between the files of each partition."""
    found = []
    for topic_partition, files in manifests.by_partition(entries).items():
        about = str(topic_partition)
        for before, after in pairwise(files):
            first, end = after.name.first, before.name.end
            between = f"between {before.path} and {after.path}"
            if first > end:
                message = f"offsets {end} to {first - 1} are missing {between}"
                found.append(ArchiveFinding("gap", about, message))
            if first < end:
                last = min(end, after.name.end) - 1
                message = f"offsets {first} to {last} are twice there, {between}"
                found.append(ArchiveFinding("overlap", about, message))
            if before.topic_id != after.topic_id:
                message = f"the topic's id is {before.topic_id} and {after.topic_id}, {between}"
                found.append(ArchiveFinding("topic_id", about, message))
    return found


def check_cluster(
    entries: Iterable[ManifestEntry], metadata: Metadata, offsets: OffsetsAnswer
) -> tuple[list[ArchiveFinding], list[ArchiveFinding]]:
    """Compare an archive with the log; return problems and notes.

    If the log begins after the archive's end, the records in between are lost. An archive that is
    behind the log, or begins later, is only worth a note.
    """
    problems: list[ArchiveFinding] = []
    notes: list[ArchiveFinding] = []
    for topic_partition, files in manifests.by_partition(entries).items():
        about = str(topic_partition)
        topic = metadata.topics.get(topic_partition.topic)
        if topic is None or topic.topic_id != files[-1].topic_id:
            now = "is not there" if topic is None else f"has the id {topic.topic_id}"
            message = f"the topic {now}; archived was {files[-1].topic_id}"
            notes.append(ArchiveFinding("other_topic", about, message))
            continue
        unknown = OffsetsUnavailable(0, "the cluster says nothing of it")
        answer = offsets.get(topic_partition, unknown)
        if isinstance(answer, OffsetsUnavailable):
            problems.append(ArchiveFinding("unknown", about, f"the log's ends: {answer.message}"))
            continue
        for kind, message in _against_log(files, answer):
            findings = notes if kind in {"behind", "begins_later"} else problems
            findings.append(ArchiveFinding(kind, about, message))
    topics = {entry.name.topic for entry in entries}
    archived = set(manifests.ends_of(entries))
    for topic_partition, answer in offsets.items():
        empty = isinstance(answer, OffsetsUnavailable) or answer.start == answer.end
        if topic_partition.topic in topics and topic_partition not in archived and not empty:
            message = "nothing of this partition is archived"
            notes.append(ArchiveFinding("behind", str(topic_partition), message))
    return problems, notes


def partition_rows(entries: Iterable[ManifestEntry]) -> Iterator[dict[str, object]]:
    """Yield the offsets, files, rows and bytes of each partition."""
    for (topic, partition), files in manifests.by_partition(entries).items():
        yield {
            "topic": topic,
            "partition": partition,
            "first": files[0].name.first,
            "end": files[-1].name.end,
            "files": len(files),
            "rows": sum(entry.rows for entry in files),
            "bytes": sum(entry.bytes for entry in files),
        }


def _against_log(files: list[ManifestEntry], log: LeaderOffsets) -> Iterator[tuple[str, str]]:
    """Yield the kind and the message of each difference between a partition and its log."""
    first, end = files[0].name.first, files[-1].name.end
    ends = f"the archive ends before {end}"
    if log.start > end:
        gone = "the records between were deleted before they were archived"
        yield "gap", f"{ends}, the log begins at {log.start}: {gone}"
    if log.end < end:
        yield "ahead", f"{ends}, the log before {log.end}: the log has lost records"
    if log.end > end:
        yield "behind", f"{log.end - max(end, log.start)} records to be archived"
    if log.start < first:
        yield "begins_later", f"the log begins at {log.start}, this at {first}"


def _manifests(
    store: ArchiveStore,
) -> tuple[dict[ManifestName, Manifest | None], list[ArchiveFinding]]:
    """Return the manifests, None for unreadable ones, and a problem for each of these."""
    found: dict[ManifestName, Manifest | None] = {}
    problems = []
    for name in catalog.names(store):
        try:
            found[name] = catalog.load_one(store, name)
        except LeadlineSparkError as failure:
            found[name] = None
            problems.append(ArchiveFinding("manifest", name.path, failure.message))
        except OSError as failure:
            found[name] = None
            problems.append(ArchiveFinding("manifest", name.path, _unreadable(failure)))
    if not found:
        problems.append(ArchiveFinding("no_archive", MANIFESTS, "there is no manifest: no archive"))
    return found, problems


def _readable(store: ArchiveStore) -> Iterator[Manifest]:
    return filter(None, _manifests(store)[0].values())


def _missing(names: Iterable[ManifestName]) -> Iterator[ArchiveFinding]:
    """Find missing manifests: a run has one for each batch, and runs are numbered from 1."""
    last: dict[int, int] = {}
    held = {name for name in names if name.run != catalog.COMPACTIONS}
    for run, number in held:
        last[run] = max(number, last.get(run, 0))
    for run in range(1, max(last, default=0) + 1):
        for number in range(last.get(run, 0) + 1):
            name = ManifestName(run, number)
            if name not in held:
                message = "there was one; what it listed is not known"
                yield ArchiveFinding("manifest", name.path, message)


def _cut_short(
    read: Iterable[Manifest | None], entries: Iterable[ManifestEntry]
) -> Iterator[ArchiveFinding]:
    """Find partitions whose files end before the end in a manifest."""
    held, ends = manifests.ends_of(entries), dict[TopicPartition, int]()
    for manifest in filter(None, read):
        for topic_partition, end in manifest.ends.items():
            ends[topic_partition] = max(end, ends.get(topic_partition, end))
    for topic_partition, end in sorted(ends.items()):
        if held.get(topic_partition, 0) < end:
            message = f"it was archived up to {end - 1}, and no file that counts goes so far"
            yield ArchiveFinding("gap", str(topic_partition), message)


def _check_file(store: ArchiveStore, entry: ManifestEntry) -> Iterator[ArchiveFinding]:
    try:
        yield from _damage(store, entry)
    except OSError as failure:
        yield ArchiveFinding("content", entry.path, _unreadable(failure))


def _unreadable(failure: OSError) -> str:
    return f"it cannot be read: {failure.strerror or failure}"


def _damage(store: ArchiveStore, entry: ManifestEntry) -> Iterator[ArchiveFinding]:
    size = store.size(entry.path)
    if size is None:
        yield ArchiveFinding("missing", entry.path, "listed by a manifest, and not there")
        return
    if size != entry.bytes:
        yield ArchiveFinding("size", entry.path, f"{size} bytes, written were {entry.bytes}")
        return
    try:
        if _sha256(store, entry.path) != entry.sha256:
            message = "its SHA-256 is not that of what was written"
            yield ArchiveFinding("content", entry.path, message)
    except FileNotFoundError:
        yield ArchiveFinding("missing", entry.path, "it was deleted while it was checked")


def _sha256(store: ArchiveStore, path: str) -> str:
    digest = hashlib.sha256()
    with store.open(path) as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def _check_unlisted(
    store: ArchiveStore, entries: Iterable[ManifestEntry]
) -> tuple[list[ArchiveFinding], list[ArchiveFinding]]:
    """Check the files that no manifest lists; return problems and notes.

    A file beyond a partition's end may be of a batch in progress. One before it would give
    duplicates to readers that ignore the manifests.
    """
    listed = {entry.path for entry in entries}
    ends, held = manifests.ends_of(entries), manifests.spans(entries)
    problems: list[ArchiveFinding] = []
    notes: list[ArchiveFinding] = []
    for path in store.paths():
        name = data_name(path)
        if path in listed or not path.startswith(("topic=", MANIFESTS)):
            continue
        if name is not None and name.first < ends.get(name.topic_partition, 0):
            message = "no manifest lists it, and "
            if manifests.covers(held, name):
                message += "its offsets are in other files; `compact` deletes such files"
            else:
                message += "no other file has all of its offsets: was a manifest lost?"
            problems.append(ArchiveFinding("unlisted", path, message))
        elif name is not None:
            message = "not listed yet: a batch is under way, or was"
            notes.append(ArchiveFinding("under_way", path, message))
        elif is_temporary(path):
            message = "being written, or left by a dead writer"
            notes.append(ArchiveFinding("unfinished", path, message))
        elif manifest_name(path) is None:
            problems.append(ArchiveFinding("stranger", path, "not a file of an archive"))
    return problems, notes
