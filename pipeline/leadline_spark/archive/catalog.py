"""The manifests in an archive's directory, and how batches and compactions are added.

Manifests are grouped in runs. A run has everything that was written with one checkpoint: manifest 0
has the ends at its start, manifest n + 1 is Spark's batch n. A job without a checkpoint begins a
new run at the end of the archive, and the former run can write no more. Run 0 has the compactions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from leadline_spark.archive import manifest as manifests
from leadline_spark.archive.manifest import Manifest, ManifestEntry
from leadline_spark.archive.naming import (
    MANIFESTS,
    DataName,
    ManifestName,
    data_name,
    manifest_name,
    partition_folder,
    run_folder,
)
from leadline_spark.archive.storage import ArchiveStore, read, write
from leadline_spark.errors import LeadlineSparkError

COMPACTIONS = 0
START = 0


def names(store: ArchiveStore, folder: str = MANIFESTS) -> list[ManifestName]:
    """Return the names of all manifests, or of those in one folder, in order."""
    found = (manifest_name(path) for path in store.paths(folder))
    return sorted(name for name in found if name is not None)


def load(store: ArchiveStore) -> list[Manifest]:
    """Return all manifests. Raises LEADLINE_ARCHIVE_DAMAGED."""
    return [load_one(store, name) for name in names(store)]


def load_one(store: ArchiveStore, name: ManifestName) -> Manifest:
    """Return one manifest. Raises LEADLINE_ARCHIVE_DAMAGED."""
    return manifests.decode(read(store, name.path), name.path)


def holdings(store: ArchiveStore) -> list[ManifestEntry]:
    """Return the files of the archive, by topic, partition and offset."""
    return manifests.listed(load(store))


def begin_run(store: ArchiveStore) -> tuple[int, Manifest]:
    """Begin a run at the end of the archive; return its number and its manifest 0.

    Jobs that begin at the same time take turns, or two of them would have one run: each would take
    the files of the other for its own, and delete them when it is refused.
    """
    with store.lock():
        return _begin_run(store)


def _begin_run(store: ArchiveStore) -> tuple[int, Manifest]:
    run = max((name.run for name in names(store)), default=0) + 1
    start = _where_it_ends(store)
    while True:
        write(store, ManifestName(run, START).path, manifests.encode(start))
        # The former run can commit nothing from now on, but may have committed before.
        found = _where_it_ends(store)
        if found == start:
            return run, start
        start = found


def _where_it_ends(store: ArchiveStore) -> Manifest:
    entries = holdings(store)
    ids = {entry.name.topic: entry.topic_id for entry in entries}
    return Manifest((), manifests.ends_of(entries), ids)


def check_run(store: ArchiveStore, run: int) -> None:
    """Raise LEADLINE_ARCHIVE_CONFLICT unless this is the latest run."""
    if store.size(ManifestName(run, START).path) is None:
        message = f"the archive has no run {run}: the checkpoint was made for another directory"
        raise LeadlineSparkError("LEADLINE_ARCHIVE_CONFLICT", message)
    if store.size(ManifestName(run + 1, START).path) is not None:
        message = (
            f"run {run + 1} has taken over from run {run}: two jobs archive into one directory, "
            "or an old checkpoint was put back"
        )
        raise LeadlineSparkError("LEADLINE_ARCHIVE_CONFLICT", message)


def add_batch(
    store: ArchiveStore,
    run: int,
    batch: int,
    written: Iterable[ManifestEntry],
    topic_ids: Mapping[str, str],
) -> Manifest:
    """Add the files of a batch, and delete what an earlier attempt left in their ranges.

    A repeated batch with the same ranges changes nothing. Raises LEADLINE_ARCHIVE_GAP and
    LEADLINE_ARCHIVE_CONFLICT, and then deletes those files of the batch that no other run can be
    about to add.
    """
    entries = [
        replace(entry, topic_id=topic_ids.get(entry.name.topic, entry.topic_id))
        for entry in written
    ]
    with store.lock():
        return _add_batch(store, run, batch, entries)


def _add_batch(store: ArchiveStore, run: int, batch: int, entries: list[ManifestEntry]) -> Manifest:
    name = ManifestName(run, batch + 1)
    again = store.size(name.path) is not None
    try:
        check_run(store, run)
    except LeadlineSparkError:
        _delete_unlisted(store, _within(store, entries))
        raise
    try:
        manifest = _next(store, name, entries)
    except LeadlineSparkError:
        _delete_unlisted(store, entries)
        raise
    content = manifests.encode(manifest)
    if not again or read(store, name.path) != content:
        write(store, name.path, content)
    # A repeated batch may have rewritten files that a compaction has merged since.
    _delete_unlisted(store, [*_others(store, manifest), *(entries if again else ())])
    return manifest


def add_compaction(
    store: ArchiveStore, number: int, merged: tuple[ManifestEntry, ...], replaces: tuple[str, ...]
) -> None:
    """Replace files of the archive by a merged one, and delete them.

    `number` is any number that no other compaction has. Raises LEADLINE_ARCHIVE_CONFLICT, and
    changes nothing, if the archive has changed since the files were merged.
    """
    compaction = Manifest(merged, {}, {}, replaces)
    with store.lock():
        _check_unchanged(store, compaction)
        write(store, ManifestName(COMPACTIONS, number).path, manifests.encode(compaction))
        for path in replaces:
            store.delete(path)


def _check_unchanged(store: ArchiveStore, compaction: Manifest) -> None:
    """Check that the parts are still in the archive, and that the merged files exist.

    Another compaction, or a repeated batch, may have merged the same parts, or deleted the merged
    files, which no manifest lists yet.
    """
    listed = {entry.path for entry in holdings(store)}
    gone = [path for path in compaction.replaces if path not in listed]
    gone += [one.path for one in compaction.files if store.size(one.path) != one.bytes]
    if gone:
        _delete_unlisted(store, compaction.files)
        message = (
            f"{gone[0]} is gone: another compaction, or a batch that ran again, came in between"
        )
        message += ". The archive holds what it held; compact it again"
        raise LeadlineSparkError("LEADLINE_ARCHIVE_CONFLICT", message)


def unlisted(store: ArchiveStore) -> list[DataName]:
    """Return the data files that no manifest lists: of a batch in progress, or left behind."""
    found = [name for name in map(data_name, store.paths()) if name is not None]
    listed = {entry.path for entry in holdings(store)} if found else set()
    return [name for name in found if name.path not in listed]


def _next(store: ArchiveStore, name: ManifestName, entries: list[ManifestEntry]) -> Manifest:
    if store.size(name.path) is not None:
        return manifests.repeated_manifest(entries, load_one(store, name))
    last = [one for one in names(store, run_folder(name.run)) if one < name][-1]
    before = load_one(store, last)
    if last.number == START:
        _check_start(store, before)
    return manifests.next_manifest(entries, before)


def _check_start(store: ArchiveStore, start: Manifest) -> None:
    """Raise LEADLINE_ARCHIVE_CONFLICT if a run did not begin at the end of the archive."""
    ends = _where_it_ends(store).ends
    if ends != start.ends:
        message = (
            "another job has archived into this directory after this one began: see that it is "
            "over, and start this one without its checkpoint, to begin where the archive ends"
        )
        raise LeadlineSparkError("LEADLINE_ARCHIVE_CONFLICT", message)


def _others(store: ArchiveStore, manifest: Manifest) -> list[DataName]:
    """Return the other files that have offsets of a manifest's files."""
    listed = {entry.path for entry in manifest.files}
    return [
        name
        for topic_partition, ranges in manifests.spans(manifest.files).items()
        for name in map(data_name, store.paths(partition_folder(*topic_partition)))
        if name is not None and name.path not in listed
        if any(name.first < end and first < name.end for first, end in ranges)
    ]


def _within(store: ArchiveStore, entries: Iterable[ManifestEntry]) -> list[ManifestEntry]:
    """Return the files before the archive's end; beyond it, another run may write the same."""
    if not names(store):
        return list(entries)
    ends = manifests.ends_of(holdings(store))
    return [entry for entry in entries if entry.name.first < ends.get(entry.topic_partition, 0)]


def _delete_unlisted(store: ArchiveStore, files: Iterable[ManifestEntry | DataName]) -> None:
    """Delete files, except those that a manifest lists."""
    paths = {file.path for file in files}
    if paths:
        for path in paths - {entry.path for entry in holdings(store)}:
            store.delete(path)
