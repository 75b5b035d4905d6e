"""Data files: their bytes follow from the records; they appear whole or not at all."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import fs

from leadline_spark.archive import parquet, storage
from leadline_spark.archive.naming import MANIFESTS
from leadline_spark.archive.parquet import FileWriter, RowGroups, read_row_groups, row_group_rows
from leadline_spark.archive.storage import (
    ArchiveStore,
    LocalStore,
    RemoteStore,
    open_store,
    read,
    sweep,
    write,
)
from leadline_spark.errors import LeadlineSparkError
from tests.unit.spark.archives import TOPIC_ID, data_file, records


@pytest.fixture(params=["local", "remote"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ArchiveStore:
    if request.param == "local":
        return LocalStore(tmp_path)
    return RemoteStore(fs.LocalFileSystem(), str(tmp_path))


def test_a_file_appears_whole_or_not_at_all(store: ArchiveStore) -> None:
    pending = store.begin("a/b")
    pending.file.write(b"half")
    assert [path for path in store.paths() if not path.endswith(".tmp")] == []
    pending.finish("a/b/c")
    pending.discard()
    assert store.paths() == store.paths("a") == ["a/b/c"]
    assert (read(store, "a/b/c"), store.size("a/b/c")) == (b"half", 4)

    lost = store.begin("a/b")
    lost.file.write(b"nothing")
    lost.discard()
    assert store.paths() == ["a/b/c"]
    write(store, "a/b/c", b"again")
    assert read(store, "a/b/c") == b"again"
    store.delete("a/b/c")
    store.delete("a/b/c")
    assert (store.paths(), store.size("a/b/c"), store.paths("none")) == ([], None, [])
    with pytest.raises(FileNotFoundError):
        read(store, "a/b/c")


def test_a_file_is_discarded_though_a_full_disk_does_not_take_the_rest(store: ArchiveStore) -> None:
    pending = store.begin("a")
    pending.file.close()
    pending.file = Path("/dev/full").open("wb")  # noqa: SIM115 - `discard` closes it
    pending.file.write(b"buffered")

    pending.discard()

    assert store.paths() == []


def test_what_a_writer_left_unfinished_is_swept(store: ArchiveStore) -> None:
    pending = store.begin("topic=t/partition=0")
    kept = store.begin("_checkpoint/offsets")
    write(store, "topic=t/x", b"kept")
    assert sweep(store, older_than_s=0) == 1
    left = store.paths()
    assert left[-1] == "topic=t/x"
    assert [path.rpartition("/")[0] for path in left] == ["_checkpoint/offsets", "topic=t"]
    pending.discard()
    kept.discard()


def test_what_somebody_else_is_writing_is_not_swept(store: ArchiveStore) -> None:
    """An archiving job may start while a compaction merges."""
    pending = store.begin("topic=t/partition=0")
    pending.file.write(b"whole")
    assert sweep(store) == 0
    pending.finish("topic=t/partition=0/merged")
    assert store.size("topic=t/partition=0/merged") == len(b"whole")
    assert store.idle_s("topic=t/partition=0/nothing") is None


def test_a_clock_that_is_hours_ahead_sweeps_nothing_that_is_being_written(
    store: ArchiveStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files of a network mount have the time of its server."""
    pending = store.begin("topic=t/partition=0")
    ahead = SimpleNamespace(time=lambda: time.time() + 7_200)
    monkeypatch.setattr(storage, "time", ahead)
    assert sweep(store) == 0
    assert len(store.paths("topic=t")) == 1
    assert store.paths(MANIFESTS) == []
    pending.discard()


def test_places_are_directories_or_what_pyarrow_knows(tmp_path: Path) -> None:
    assert isinstance(open_store(str(tmp_path)), LocalStore)
    assert isinstance(open_store(tmp_path.as_uri()), LocalStore)
    assert isinstance(open_store("mock:///archive"), RemoteStore)
    with pytest.raises(ValueError, match="nowhere"):
        open_store("nowhere://archive")


def test_what_is_written_is_read(store: ArchiveStore) -> None:
    written = data_file(store, 10, 299)
    assert written.name == ("t", 0, 10, 299)
    assert (written.rows, written.missing, written.bytes) == (290, 0, store.size(written.path))
    assert (written.first_epoch, written.last_epoch) == (0, 2)
    assert (written.min_time_ms, written.max_time_ms) == (1_700_000_000_070, 1_700_000_002_093)
    table = pa.concat_tables(read_row_groups(store, written.path))
    assert table.combine_chunks().to_batches() == [records(range(10, 300))]


@settings(max_examples=25, deadline=None)
@given(cuts=st.sets(st.integers(1, 900), max_size=12), rows=st.integers(50, 400))
def test_the_bytes_follow_from_the_records(
    tmp_path_factory: pytest.TempPathFactory, cuts: set[int], rows: int
) -> None:
    store = LocalStore(tmp_path_factory.mktemp("archive"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RowGroups.__init__, "__defaults__", (rows, 4_000))
        whole = data_file(store, 0, 899)
        pieces = data_file(store, 0, 899, cuts=sorted(cuts))
        groups = row_group_rows(store, whole.path)
    assert pieces == whole
    assert len(groups) > 1
    assert max(groups) <= rows


def test_a_row_group_ends_with_the_record_that_fills_it() -> None:
    batch = records(range(60))
    by_rows = RowGroups(rows=25, size=1 << 30)
    assert [one.num_rows for one in by_rows.add(batch)] == [25, 25]
    assert [one.num_rows for one in by_rows.rest()] == [10]
    by_bytes = RowGroups(rows=1 << 30, size=100)
    sizes = [parquet.row_bytes(one.to_batches()[0]) for one in by_bytes.add(batch)]
    assert len(sizes) > 3
    assert all(sum(size.to_pylist()) >= 100 for size in sizes)
    assert all(sum(size.to_pylist()[:-1]) < 100 for size in sizes)


def test_holes_of_the_log_are_counted(store: ArchiveStore) -> None:
    writer = FileWriter(store, "t", 0, TOPIC_ID)
    writer.add(records([3, 4, 9]))
    writer.add(records([]))
    writer.add(records([12]))
    written = writer.finish()
    assert (written.name.first, written.name.last, written.rows, written.missing) == (3, 12, 4, 6)


@pytest.mark.parametrize("second", [[4, 3], [3, 3], [2], [1, 5]])
def test_offsets_out_of_order_are_refused(store: ArchiveStore, second: list[int]) -> None:
    writer = FileWriter(store, "t", 0, TOPIC_ID)
    writer.add(records([1, 2]))
    with pytest.raises(LeadlineSparkError) as refused:
        writer.add(records(second))
    writer.discard()
    assert refused.value.code == "LEADLINE_ARCHIVE_CONFLICT"
    assert store.paths() == []


def test_a_changed_byte_is_noticed_when_it_is_read(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    written = data_file(store, 0, 5_000)
    file = tmp_path / written.path
    content = bytearray(file.read_bytes())
    content[len(content) // 3] ^= 1
    file.write_bytes(content)
    with pytest.raises(LeadlineSparkError, match=r"(?i)crc|decompress|corrupt") as raised:
        list(read_row_groups(store, written.path))
    assert raised.value.code == "LEADLINE_ARCHIVE_DAMAGED"
    assert written.path in raised.value.message


@pytest.mark.parametrize("kept", [0, 3, 100, -1])
def test_a_file_that_was_cut_off_is_damaged(tmp_path: Path, kept: int) -> None:
    store = LocalStore(tmp_path)
    written = data_file(store, 0, 99)
    file = tmp_path / written.path
    file.write_bytes(file.read_bytes()[:kept])
    for look_at in (row_group_rows, lambda *where: list(read_row_groups(*where))):
        with pytest.raises(LeadlineSparkError) as raised:
            look_at(store, written.path)
        assert raised.value.code == "LEADLINE_ARCHIVE_DAMAGED"


def test_a_file_with_other_columns_is_damaged(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    written = data_file(store, 0, 99)
    pq.write_table(pa.table({"offset": [1]}), tmp_path / written.path)
    with pytest.raises(LeadlineSparkError) as raised:
        list(read_row_groups(store, written.path))
    assert raised.value.code == "LEADLINE_ARCHIVE_DAMAGED"


def test_files_are_plain_parquet(tmp_path: Path) -> None:
    written = data_file(LocalStore(tmp_path), 0, 99)
    metadata = pq.read_metadata(tmp_path / written.path)
    assert metadata.row_group(0).column(5).compression == "ZSTD"
    assert pq.read_schema(tmp_path / written.path).names == parquet.SCHEMA.names
