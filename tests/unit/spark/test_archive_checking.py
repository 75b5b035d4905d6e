"""`verify` finds each damage that is planted, and nothing in an archive that is sound."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import pytest

from leadline_client.wire import BrokerInfo, Metadata, PartitionInfo, TopicInfo, TopicPartition
from leadline_spark.archive import catalog, checking, compaction
from leadline_spark.archive.checking import check_cluster
from leadline_spark.archive.manifest import ManifestEntry
from leadline_spark.archive.storage import LocalStore
from leadline_spark.cluster.cluster_client import (
    LeaderAndEpoch,
    LeaderOffsets,
    OffsetsAnswer,
    OffsetsUnavailable,
)
from leadline_spark.jobs import verify
from leadline_spark.jobs.compact import compact
from tests.unit.spark.archives import TOPIC_ID, data_file, entry


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """Two partitions, three batches."""
    store = LocalStore(tmp_path)
    run, _ = catalog.begin_run(store)
    for number in range(3):
        first = 100 * number
        files = [data_file(store, first, first + 99, partition) for partition in (0, 1)]
        catalog.add_batch(store, run, number, files, {"t": TOPIC_ID})
    return tmp_path


class CompactedStore(LocalStore):
    """A store that is compacted before the check looks at, or reads, its first file."""

    def __init__(self, root: Path, before: str) -> None:
        super().__init__(root)
        self._root_store = LocalStore(root)
        self._before = before

    def size(self, path: str) -> int | None:
        self._on("size", path)
        return super().size(path)

    def open(self, path: str) -> BinaryIO:
        self._on("open", path)
        return super().open(path)

    def _on(self, step: str, path: str) -> None:
        if step == self._before and path.startswith("topic="):
            self._before = ""
            store = self._root_store
            groups = compaction.plan(catalog.holdings(store), 1 << 20)
            compact(store, groups, lambda all_: [compaction.merge(store, one) for one in all_], 1)


@pytest.mark.parametrize("before", ["size", "open"])
def test_files_that_are_merged_while_they_are_checked_are_not_missing(
    archive: Path, before: str
) -> None:
    found = checking.check(CompactedStore(archive, before))
    assert found.problems == ()
    assert [entry.name.end for entry in found.entries] == [300, 300]


def _file(archive: Path, number: int = 1, partition: int = 0) -> Path:
    first = 100 * number
    return archive / f"topic=t/partition={partition}/{first:020}-{first + 99:020}.parquet"


def _kinds(archive: Path) -> list[str]:
    return [problem.kind for problem in checking.check(LocalStore(archive)).problems]


def _remove(archive: Path) -> None:
    _file(archive).unlink()


def _truncate(archive: Path) -> None:
    content = _file(archive).read_bytes()
    _file(archive).write_bytes(content[:-10])


def _change_byte(archive: Path) -> None:
    content = bytearray(_file(archive).read_bytes())
    content[40] ^= 0x01
    _file(archive).write_bytes(content)


def _overlap(archive: Path) -> None:
    copy = _file(archive).with_name(f"{150:020}-{220:020}.parquet")
    copy.write_bytes(_file(archive).read_bytes())


def _swap(archive: Path) -> None:
    one, two = _file(archive, partition=0), _file(archive, partition=1)
    content = one.read_bytes()
    one.write_bytes(two.read_bytes())
    two.write_bytes(content)


def _rename(archive: Path) -> None:
    _file(archive).rename(_file(archive).with_suffix(".bak"))


def _manifest(archive: Path, number: int = 2) -> Path:
    return archive / f"_manifests/0001/{number:020}.json"


def _lose_manifest(archive: Path) -> None:
    _manifest(archive).unlink()


def _lose_batch(archive: Path, number: int) -> None:
    """Lose a batch's manifest, and its files with it."""
    for row in json.loads(_manifest(archive, number).read_text())["files"]:
        (archive / row["path"]).unlink()
    _manifest(archive, number).unlink()


def _lose_first_batch(archive: Path) -> None:
    _lose_batch(archive, 1)


def _lose_end(archive: Path) -> None:
    """Lose what one partition's last batch was, while another partition goes on."""
    more = [data_file(LocalStore(archive), 300, 399)]
    catalog.add_batch(LocalStore(archive), 1, 3, more, {"t": TOPIC_ID})
    document = json.loads(_manifest(archive, 3).read_text())
    gone = document["files"].pop()
    (archive / gone["path"]).unlink()
    _manifest(archive, 3).write_text(json.dumps(document))


def _spoil_manifest(archive: Path) -> None:
    _manifest(archive).write_text("{")


def _list_overlap(archive: Path) -> None:
    document = json.loads(_manifest(archive).read_text())
    row = document["files"][0]
    document["files"].append({**row, "path": row["path"].replace("199.", "205.")})
    _manifest(archive).write_text(json.dumps(document))
    path = archive / document["files"][-1]["path"]
    path.write_bytes((archive / row["path"]).read_bytes())


def _list_other_topic(archive: Path) -> None:
    text = _manifest(archive, 3).read_text()
    _manifest(archive, 3).write_text(text.replace(TOPIC_ID, "cd" * 16))


DAMAGES: list[tuple[Callable[[Path], None], list[str]]] = [
    (_remove, ["missing"]),
    (_truncate, ["size"]),
    (_change_byte, ["content"]),
    (_overlap, ["unlisted"]),
    (_swap, ["content", "content"]),
    (_rename, ["missing", "stranger"]),
    (_lose_manifest, ["gap", "gap", "manifest", "unlisted", "unlisted"]),
    (_lose_first_batch, ["manifest"]),
    (_lose_end, ["gap"]),
    (_spoil_manifest, ["gap", "gap", "manifest", "unlisted", "unlisted"]),
    (_list_overlap, ["overlap", "overlap"]),
    (_list_other_topic, ["topic_id", "topic_id"]),
]


@pytest.mark.parametrize(("damage", "kinds"), DAMAGES)
def test_each_damage_is_found(
    archive: Path,
    damage: Callable[[Path], None],
    kinds: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert _kinds(archive) == []
    damage(archive)
    found = _kinds(archive)
    if damage is _swap and found.count("size"):
        kinds = ["size", "size"]
    assert sorted(found) == kinds
    assert verify.main([str(archive)]) == 1
    assert f"[{kinds[0]}]" in capsys.readouterr().out


def test_a_sound_archive_is_told_so(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert verify.main([str(archive), "--rows"]) == 0
    output = capsys.readouterr().out
    assert "t-0: offsets 0 to 299, 300 records in 3 files" in output
    assert output.endswith("sound: no gap, no overlap\n")
    assert verify.main([str(archive), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["sound"]
    assert [row["end"] for row in document["partitions"]] == [300, 300]


def test_rows_are_counted_when_asked(archive: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(_manifest(archive).read_text())
    document["files"][0]["rows"] = 99
    _manifest(archive).write_text(json.dumps(document))
    assert verify.main([str(archive)]) == 0
    assert verify.main([str(archive), "--rows"]) == 1
    assert "[rows]" in capsys.readouterr().out


def test_an_empty_directory_is_no_sound_archive(tmp_path: Path) -> None:
    assert _kinds(tmp_path) == ["no_archive"]
    assert _kinds(tmp_path / "none") == ["no_archive"]


def test_a_batch_under_way_is_no_problem(archive: Path) -> None:
    store = LocalStore(archive)
    data_file(store, 300, 310)
    pending = store.begin("topic=t/partition=1")
    found = checking.check(store)
    assert found.problems == ()
    assert sorted(note.kind for note in found.notes) == ["under_way", "unfinished"]
    pending.discard()


def test_holes_of_the_log_are_noted() -> None:
    assert checking.check_ranges([entry(0, 9), entry(10, 19, rows=3)]) == []


def test_a_cluster_that_cannot_be_asked_is_another_exit_code(
    archive: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    address = "http://127.0.0.1:1"
    assert verify.main([str(archive), "--bootstrap", address]) == 3
    assert "LEADLINE_CLUSTER_UNREACHABLE" in capsys.readouterr().out
    _remove(archive)
    assert verify.main([str(archive), "--bootstrap", address]) == 1


def _log(*ranges: tuple[int, int], topic_id: str = TOPIC_ID) -> tuple[Metadata, OffsetsAnswer]:
    leader = LeaderAndEpoch("http://b", 1)
    rows = tuple(PartitionInfo(number, 1, 1, (1,), (1,)) for number in range(len(ranges)))
    topics = {"t": TopicInfo("t", topic_id, rows)}
    metadata = Metadata("c", 1, None, {1: BrokerInfo(1, "http://b", None, 1)}, topics)
    answers = {
        TopicPartition("t", number): LeaderOffsets(start, end, leader)
        for number, (start, end) in enumerate(ranges)
    }
    return metadata, {**answers}


@pytest.mark.parametrize(
    ("log", "problems", "notes"),
    [
        (_log((0, 100)), [], []),
        (_log((0, 130)), [], ["behind"]),
        (_log((40, 130)), [], ["behind"]),
        (_log((100, 130)), [], ["behind"]),
        (_log((101, 130)), ["gap"], ["behind"]),
        (_log((0, 99)), ["ahead"], []),
        (_log((0, 100), (0, 7)), [], ["behind"]),
        (_log((0, 100), (7, 7)), [], []),
        (_log((0, 100), topic_id="cd" * 16), [], ["other_topic"]),
        ((_log((0, 1))[0], {}), ["unknown"], []),
        (
            (_log((0, 1))[0], {TopicPartition("t", 0): OffsetsUnavailable(42150, "x")}),
            ["unknown"],
            [],
        ),
    ],
)
def test_an_archive_is_compared_with_the_log(
    log: tuple[Metadata, OffsetsAnswer], problems: list[str], notes: list[str]
) -> None:
    held: list[ManifestEntry] = [entry(0, 49), entry(50, 99)]
    found = check_cluster(held, *log)
    assert [[one.kind for one in findings] for findings in found] == [problems, notes]


def test_a_log_that_begins_before_the_archive_is_noted() -> None:
    held = [replace(entry(50, 99))]
    found = check_cluster(held, *_log((0, 100)))
    assert [[one.kind for one in findings] for findings in found] == [[], ["begins_later"]]


def unreadable(path: Path) -> None:
    """Put a link to itself in place of a file or a folder: no user can read it."""
    if path.is_dir():
        path.rename(path.with_name("moved"))
    else:
        path.unlink()
    path.symlink_to(path.name)


def test_a_file_that_cannot_be_read_is_a_problem_and_the_others_are_checked(archive: Path) -> None:
    """A bad sector ended the check with a traceback, and hid what else there was."""
    first, _, other = sorted(archive.glob("topic=t/partition=0/*.parquet"))
    unreadable(first)
    other.write_bytes(b"short")
    unreadable(archive / "_manifests" / "0001" / f"{0:020}.json")
    found = checking.check(LocalStore(archive))
    kinds = {problem.about: problem.kind for problem in found.problems}
    names = [path.relative_to(archive).as_posix() for path in (first, other)]
    assert [kinds[name] for name in names] == ["content", "size"]
    assert kinds[f"_manifests/0001/{0:020}.json"] == "manifest"


def test_a_folder_that_cannot_be_read_is_not_an_empty_one(
    archive: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A network mount that fails for a moment would have made an archive begin again."""
    unreadable(archive / "_manifests")
    with pytest.raises(OSError, match="symbolic links"):
        catalog.holdings(LocalStore(archive))
    assert verify.main([str(archive)]) == 1
    assert capsys.readouterr().err.startswith(f"error cannot use {archive / '_manifests'}: ")
