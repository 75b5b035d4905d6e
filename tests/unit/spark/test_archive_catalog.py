"""Batches and compactions of an archive, ended at every point and run again."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import pairwise
from pathlib import Path
from threading import Event
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leadline_spark.archive import catalog, checking, compaction
from leadline_spark.archive import manifest as manifests
from leadline_spark.archive.manifest import ManifestEntry
from leadline_spark.archive.naming import MANIFESTS, ManifestName
from leadline_spark.archive.parquet import SCHEMA, read_row_groups
from leadline_spark.archive.storage import LOCK, ArchiveStore, LocalStore, Pending, sweep, write
from leadline_spark.errors import LeadlineSparkError
from leadline_spark.jobs.compact import compact, tidy
from tests.unit.spark.archives import TOPIC_ID, data_file, records

IDS = {"t": TOPIC_ID}
END = 60


class Died(Exception):
    """The process was killed here."""


class MortalStore:
    """A store whose user dies with a given step; a step is what others can see."""

    def __init__(self, store: ArchiveStore, steps: int, *, after: bool) -> None:
        self._store = store
        self._left = steps
        self._after = after

    def paths(self, folder: str = "") -> list[str]:
        return self._store.paths(folder)

    def size(self, path: str) -> int | None:
        return self._store.size(path)

    def idle_s(self, path: str) -> float | None:
        return self._store.idle_s(path)

    def open(self, path: str) -> BinaryIO:
        return self._store.open(path)

    def delete(self, path: str) -> None:
        with self.step():
            self._store.delete(path)

    def begin(self, folder: str) -> Pending:
        return _MortalPending(self, self._store.begin(folder))

    def lock(self) -> AbstractContextManager[object]:
        return self._store.lock()

    @contextmanager
    def step(self) -> Iterator[None]:
        self._left -= 1
        if self._left == 0 and not self._after:
            raise Died
        yield
        if self._left == 0:
            raise Died


class _MortalPending:
    def __init__(self, store: MortalStore, pending: Pending) -> None:
        self._store = store
        self._pending = pending
        self.file = pending.file

    def finish(self, path: str) -> None:
        with self._store.step():
            self._pending.finish(path)

    def discard(self) -> None:
        """A killed process tidies nothing up, but this one must close its file."""
        self.file.close()


def _batch(
    store: ArchiveStore, run: int, number: int, first: int, end: int, cuts: set[int]
) -> None:
    """Archive [first, end) of one partition as a batch, in files that end at the cuts."""
    edges = [first, *sorted(cut for cut in cuts if first < cut < end), end]
    written = [data_file(store, one, two - 1) for one, two in pairwise(edges)]
    catalog.add_batch(store, run, number, written, IDS)


def _holds(store: ArchiveStore, first: int, end: int) -> None:
    """Check that an archive holds exactly these records, in files that manifests list."""
    found = checking.check(store)
    assert found.problems == ()
    assert [note.kind for note in found.notes if note.kind != "unfinished"] == []
    assert catalog.unlisted(store) == []
    rows = [row for entry in found.entries for row in _rows(store, entry)]
    assert rows == records(range(first, end)).to_pylist()


def _rows(store: ArchiveStore, entry: ManifestEntry) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = pa.concat_tables(read_row_groups(store, entry.path)).to_pylist()
    return rows


CUTS = st.sets(st.integers(1, END - 1), max_size=4)


@settings(max_examples=30, deadline=None)
@given(
    ends=st.sets(st.integers(1, END - 1), max_size=3),
    attempts=st.lists(st.tuples(CUTS, st.integers(1, 12), st.booleans()), max_size=6),
    last=CUTS,
    target=st.integers(1, 40_000),
)
def test_whatever_ends_a_job_nothing_is_lost_or_doubled(
    tmp_path_factory: pytest.TempPathFactory,
    ends: set[int],
    attempts: list[tuple[set[int], int, bool]],
    last: set[int],
    target: int,
) -> None:
    """Batches archived, then compacted; attempts die at some step, and split ranges otherwise."""
    store = LocalStore(tmp_path_factory.mktemp("archive"))
    run, _ = catalog.begin_run(store)
    batches = list(pairwise([0, *sorted(ends), END]))
    done = 0
    for cuts, steps, after in [*attempts, (last, 0, False)]:
        mortal = MortalStore(store, steps, after=after)
        try:
            for number, (first, end) in list(enumerate(batches))[done:]:
                # A driver that dies after the commit does not know that it was one.
                _batch(mortal, run, number, first, end, cuts)
                done = number + 1
            _merge(mortal, target)
        except Died:
            pass
    _holds(store, 0, END)
    assert sweep(store, older_than_s=0) >= 0
    _holds(store, 0, END)


def _merge(store: ArchiveStore, target: int) -> None:
    number = 1 + sum(name.run == catalog.COMPACTIONS for name in catalog.names(store))
    groups = compaction.plan(catalog.holdings(store), target)
    tidy(store)
    if groups:
        compact(store, groups, lambda all_: [compaction.merge(store, one) for one in all_], number)


def test_a_batch_that_runs_again_after_its_files_were_merged_changes_nothing(
    tmp_path: Path,
) -> None:
    store = LocalStore(tmp_path)
    run, _ = catalog.begin_run(store)
    _batch(store, run, 0, 0, 20, {10})
    _merge(store, 1 << 20)
    assert [entry.name[2:] for entry in catalog.holdings(store)] == [(0, 19)]
    _batch(store, run, 0, 0, 20, {10})
    _holds(store, 0, 20)
    _batch(store, run, 0, 0, 20, {5})
    _holds(store, 0, 20)
    _batch(store, run, 1, 20, 30, set())
    _holds(store, 0, 30)


def _merged(store: ArchiveStore) -> tuple[tuple[ManifestEntry, ...], tuple[str, ...]]:
    """Merge everything as a compaction does before its commit; return what it would commit."""
    groups = compaction.plan(catalog.holdings(store), 1 << 20)
    parts = tuple(entry.path for group in groups for entry in group.entries)
    return tuple(compaction.merge(store, group) for group in groups), parts


def _three_batches(store: ArchiveStore) -> int:
    run, _ = catalog.begin_run(store)
    for number, (first, end) in enumerate(pairwise((0, 10, 20, 30))):
        _batch(store, run, number, first, end, set())
    return run


def test_of_two_compactions_at_once_one_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    run = _three_batches(store)
    earlier = _merged(store)
    _batch(store, run, 3, 30, 40, set())
    later = _merged(store)

    catalog.add_compaction(store, 1, *later)
    with pytest.raises(LeadlineSparkError, match="came in between") as refused:
        catalog.add_compaction(store, 2, *earlier)

    assert refused.value.code == "LEADLINE_ARCHIVE_CONFLICT"
    _holds(store, 0, 40)


def test_two_compactions_of_the_same_files_leave_one_merged_file(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    _three_batches(store)
    one, other = _merged(store), _merged(store)
    assert one == other

    catalog.add_compaction(store, 1, *one)
    with pytest.raises(LeadlineSparkError, match="came in between"):
        catalog.add_compaction(store, 2, *other)

    _holds(store, 0, 30)


@pytest.mark.parametrize("by", ["another compaction", "a batch that runs again"])
def test_merged_files_that_were_deleted_before_they_counted_replace_nothing(
    tmp_path: Path, by: str
) -> None:
    store = LocalStore(tmp_path)
    run = _three_batches(store)
    merged = _merged(store)
    if by == "another compaction":
        assert tidy(store) == [merged[0][0].path]
    else:
        _batch(store, run, 2, 20, 30, set())

    with pytest.raises(LeadlineSparkError, match="came in between"):
        catalog.add_compaction(store, 1, *merged)

    _holds(store, 0, 30)


def test_a_part_that_is_gone_while_it_is_merged_is_a_conflict(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    _three_batches(store)
    [group] = compaction.plan(catalog.holdings(store), 1 << 20)
    store.delete(group.entries[1].path)

    with pytest.raises(LeadlineSparkError, match="LEADLINE_ARCHIVE_CONFLICT"):
        compaction.merge(store, group)


class WatchedStore(LocalStore):
    """Notes of each manifest and deletion whether anybody could commit something meanwhile."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.open_to_others: list[bool] = []

    def begin(self, folder: str) -> Pending:
        if folder.startswith(MANIFESTS):
            self.open_to_others.append(_is_free(self))
        return super().begin(folder)

    def delete(self, path: str) -> None:
        self.open_to_others.append(_is_free(self))
        super().delete(path)


def _is_free(store: LocalStore) -> bool:
    with store.open(LOCK) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def test_commits_take_turns(tmp_path: Path) -> None:
    _three_batches(LocalStore(tmp_path))
    store = WatchedStore(tmp_path)
    data_file(store, 5, 9)
    _batch(store, 1, 3, 30, 40, set())
    _merge(store, 1 << 20)

    # Two manifests; a file that nobody counts, and four that were merged.
    assert store.open_to_others == [False] * (2 + 1 + 4)
    assert _is_free(store)
    _holds(store, 0, 40)


def test_two_jobs_that_begin_at_once_have_runs_of_their_own(tmp_path: Path) -> None:
    went_on = Event()

    class Second(LocalStore):
        def lock(self) -> AbstractContextManager[object]:
            went_on.set()
            return super().lock()

    def second() -> int:
        try:
            return catalog.begin_run(Second(tmp_path))[0]
        finally:
            went_on.set()

    class First(LocalStore):
        def begin(self, folder: str) -> Pending:
            if not begun:
                begun.append(pool.submit(second))
                assert went_on.wait(60)
            return super().begin(folder)

    begun: list[Future[int]] = []
    with ThreadPoolExecutor(1) as pool:
        run, _ = catalog.begin_run(First(tmp_path))
    assert (run, begun[0].result()) == (1, 2)


def test_a_new_run_begins_where_the_archive_ends_and_fences_the_old_one(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    first, start = catalog.begin_run(store)
    assert (first, start.ends) == (1, {})
    _batch(store, first, 0, 5, 20, set())
    second, start = catalog.begin_run(store)
    assert (second, start.ends, start.topic_ids) == (2, {("t", 0): 20}, IDS)
    _batch(store, second, 0, 20, 25, set())
    for number in (0, 1):
        with pytest.raises(LeadlineSparkError, match="taken over") as refused:
            _batch(store, first, number, 20, 25, {21})
        assert refused.value.code == "LEADLINE_ARCHIVE_CONFLICT"
    _holds(store, 5, 25)


def test_a_run_that_was_followed_does_not_delete_what_its_successor_is_writing(
    tmp_path: Path,
) -> None:
    store = LocalStore(tmp_path)
    first, _ = catalog.begin_run(store)
    _batch(store, first, 0, 0, 20, set())
    second, _ = catalog.begin_run(store)
    under_way = data_file(store, 20, 24)
    with pytest.raises(LeadlineSparkError, match="taken over"):
        _batch(store, first, 1, 20, 25, set())
    catalog.add_batch(store, second, 0, [under_way], IDS)
    _holds(store, 0, 25)


class CommittingStore(LocalStore):
    """Another job commits a batch while a run begins: after it looked, before it says so.

    Only a store without locks, such as an object store, lets it.
    """

    commits: Sequence[Callable[[], None]] = ()

    def lock(self) -> AbstractContextManager[object]:
        return nullcontext()

    def begin(self, folder: str) -> Pending:
        commits, self.commits = self.commits, ()
        for commit in commits:
            commit()
        return super().begin(folder)


def test_a_run_begins_behind_what_was_committed_meanwhile(tmp_path: Path) -> None:
    store = CommittingStore(tmp_path)
    first, _ = catalog.begin_run(store)
    _batch(store, first, 0, 0, 20, set())
    store.commits = [lambda: _batch(LocalStore(tmp_path), first, 1, 20, 30, set())]
    second, start = catalog.begin_run(store)
    assert (
        start.ends
        == catalog.load_one(store, ManifestName(second, catalog.START)).ends
        == {("t", 0): 30}
    )


def test_a_run_that_begins_before_the_end_of_the_archive_is_refused(tmp_path: Path) -> None:
    """Who was about to commit when it began was not to be stopped any more."""
    store = LocalStore(tmp_path)
    first, _ = catalog.begin_run(store)
    _batch(store, first, 0, 0, 20, set())
    second, _ = catalog.begin_run(store)
    late = manifests.next_manifest(
        [data_file(store, 20, 29)], catalog.load_one(store, ManifestName(first, 1))
    )
    write(store, ManifestName(first, 2).path, manifests.encode(late))
    with pytest.raises(LeadlineSparkError, match="without its checkpoint"):
        _batch(store, second, 0, 20, 40, {30})
    _holds(store, 0, 30)


def test_files_whose_manifest_was_lost_are_not_tidied_away(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    run, _ = catalog.begin_run(store)
    for number, (first, end) in enumerate(pairwise((0, 10, 20, 30))):
        _batch(store, run, number, first, end, set())
    (lost,) = catalog.load_one(store, ManifestName(run, 2)).files
    store.delete(ManifestName(run, 2).path)
    doubled = data_file(store, 5, 9)
    assert tidy(store) == [doubled.path]
    assert store.size(lost.path) == lost.bytes


@pytest.mark.parametrize(
    ("first", "end", "number", "code"),
    [
        (21, 25, 1, "LEADLINE_ARCHIVE_GAP"),
        (19, 25, 1, "LEADLINE_ARCHIVE_CONFLICT"),
        (10, 20, 1, "LEADLINE_ARCHIVE_CONFLICT"),
        (0, 15, 0, "LEADLINE_ARCHIVE_CONFLICT"),
        (20, 25, 0, "LEADLINE_ARCHIVE_CONFLICT"),
    ],
)
def test_a_batch_that_is_refused_leaves_nothing_behind(
    tmp_path: Path, first: int, end: int, number: int, code: str
) -> None:
    store = LocalStore(tmp_path)
    run, _ = catalog.begin_run(store)
    _batch(store, run, 0, 0, 20, set())
    with pytest.raises(LeadlineSparkError) as refused:
        _batch(store, run, number, first, end, set())
    assert refused.value.code == code
    _holds(store, 0, 20)


def test_a_checkpoint_of_another_archive_is_refused(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    with pytest.raises(LeadlineSparkError, match="another directory"):
        _batch(store, 1, 0, 0, 20, set())
    assert store.paths() == [LOCK]


@pytest.mark.parametrize(
    ("sizes", "target", "merged"),
    [
        ([10, 10, 10], 100, [3]),
        ([10, 10, 10], 25, [2]),
        ([10, 60, 10, 10], 100, [2]),
        ([10, 45, 45, 10], 100, [3]),
        ([10], 100, []),
        ([50, 50], 100, []),
    ],
)
def test_small_neighbours_are_merged(sizes: Sequence[int], target: int, merged: list[int]) -> None:
    from tests.unit.spark.archives import entry  # noqa: PLC0415 - used here alone

    files = [entry(10 * at, 10 * at + 9, bytes=size) for at, size in enumerate(sizes)]
    files += [entry(0, 9, partition=1)]
    groups = compaction.plan(files, target)
    assert [len(group.entries) for group in groups] == merged


def test_a_merge_that_lacks_records_deletes_none(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    whole, emptied = data_file(store, 0, 9), data_file(store, 10, 19)
    pq.write_table(SCHEMA.empty_table(), tmp_path / emptied.path)
    with pytest.raises(LeadlineSparkError, match=r"LEADLINE_ARCHIVE_DAMAGED.*10 rows, not 20"):
        compaction.merge(store, compaction.MergeGroup((whole, emptied)))
    assert store.paths() == sorted([whole.path, emptied.path])


def test_files_with_a_gap_between_them_are_not_merged(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    files = [data_file(store, 0, 9), data_file(store, 11, 19), data_file(store, 20, 29)]
    groups = compaction.plan(files, 1 << 20)
    assert [[one.name.first for one in group.entries] for group in groups] == [[11, 20]]
