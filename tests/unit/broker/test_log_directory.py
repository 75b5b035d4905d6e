"""A broker's log directory: ownership, start and stop, its small files (R1, S20)."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from leadline_broker.adapters.disk import open_logs
from leadline_broker.adapters.log.directory import LogDirectory
from leadline_broker.adapters.log.errors import CorruptFile, WrongDirectory
from leadline_client.errors import StorageFailed
from leadline_common.settings import BrokerSettings
from tests.unit.broker.log_directories import ID_1, ID_2, Start, flip_last_byte, own_ids, written
from tests.unit.broker.log_support import batch, read_all


def test_a_second_process_is_refused(start: Start) -> None:
    held = start()
    with pytest.raises(WrongDirectory):
        LogDirectory(held.root, cluster_id="c", broker_id=1)


@pytest.mark.parametrize(("cluster_id", "broker_id"), [("other", 1), ("c", 2)])
def test_the_directory_of_another_cluster_or_broker_is_refused(
    start: Start, cluster_id: str, broker_id: int
) -> None:
    held = start()
    held.release()
    with pytest.raises(WrongDirectory):
        LogDirectory(held.root, cluster_id=cluster_id, broker_id=broker_id)
    LogDirectory(held.root, cluster_id="c", broker_id=1).release()


def test_a_clean_stop_is_remembered_once(start: Start) -> None:
    first = start()
    assert first.clean_incarnation is None
    first.open("t", ID_1, 0).append(batch(0))
    assert first.close(incarnation=41)
    second = start()
    assert second.clean_incarnation == 41
    assert [log.recovery.scanned_bytes for log in second.logs()] == [0]
    third = start()
    assert third.clean_incarnation is None
    assert [log.recovery.scanned_bytes for log in third.logs()] == [len(batch(0))]
    assert [read_all(log) for log in third.logs()] == [[batch(0)]]


def test_a_damaged_marker_is_no_clean_stop(start: Start) -> None:
    directory = start()
    directory.close(incarnation=41)
    flip_last_byte(directory.root / "clean-shutdown")
    assert start().clean_incarnation is None


def test_partitions_come_back_with_their_identity(start: Start) -> None:
    directory = start()
    for partition in range(3):
        directory.open("a-topic-1", ID_1, partition).append(batch(0, b"%d" % partition))
    directory.open("a-topic-1", ID_1, 9)
    found = {log.identity.partition: read_all(log) for log in start().logs()}
    assert found == {p: [batch(0, b"%d" % p)] for p in range(3)}


def test_the_same_replica_is_the_same_log(start: Start) -> None:
    directory = start()
    log = directory.open("t", ID_1, 0)
    assert directory.open("t", ID_1, 0) is log


@pytest.mark.parametrize("damage", [Path.unlink, flip_last_byte], ids=["missing", "flipped"])
def test_a_directory_that_is_nobodys_goes_to_stray(
    start: Start, damage: Callable[[Path], None]
) -> None:
    directory = start()
    directory.open("t", ID_1, 0).append(batch(0))
    damage(directory.root / "t-0" / "partition.metadata")
    again = start()
    assert (again.logs(), list(again.strays.found())) == ([], ["t-0.unknown-stray"])


def test_an_empty_directory_of_nobody_leaves_no_stray(start: Start) -> None:
    """A power cut leaves one where another log's first fsync made the entry durable."""
    root = start().root
    (root / "t-0").mkdir()
    again = start()
    assert (again.logs(), again.strays.found(), (root / "t-0").exists()) == ([], {}, False)
    again.open("t", ID_1, 0).append(batch(0))
    assert [read_all(log) for log in start().logs()] == [[batch(0)]]


def test_a_directory_of_nobody_that_has_any_file_is_kept(start: Start) -> None:
    root = start().root
    (root / "t-0").mkdir()
    (root / "t-0" / "00000000000000000000.log").touch()
    assert list(start().strays.found()) == ["t-0.unknown-stray"]


@pytest.mark.parametrize("name", ["lost+found", "controller-1", "old copy", "t-0.log"])
def test_a_directory_that_no_log_can_have_made_stays(start: Start, name: str) -> None:
    """It became a stray, and was deleted later. A broker that may not read one did not start."""
    root = start().root
    file = root / name / "history.db"
    file.parent.mkdir()
    file.write_text("of somebody else")
    again = start()
    assert (again.logs(), again.strays.found(), again.unopened.failures) == ([], {}, {})
    assert file.read_text() == "of somebody else"


@pytest.mark.parametrize("kind", ["directory", "file"])
def test_a_replica_gets_its_name_from_somebody_else(start: Start, kind: str) -> None:
    root = start().root
    if kind == "directory":
        (root / "t-0").mkdir()
    (root / "t-0" / "notes" if kind == "directory" else root / "t-0").touch()
    again = start()
    again.open("t", ID_1, 0).append(batch(0))
    assert list(again.strays.found()) == ["t-0.unknown-stray"]
    assert [read_all(log) for log in start().logs()] == [[batch(0)]]


def test_a_directory_of_an_unknown_version_is_refused_and_stays_as_it_is(start: Start) -> None:
    """What a later release has laid out differently would look damaged, and go to strays."""
    directory = start()
    directory.open("t", ID_1, 0).append(batch(0))
    meta = directory.root / "meta.json"
    known = meta.read_text()
    directory.release()
    meta.write_text(known.replace('"version":1', '"version":2'))
    with pytest.raises(WrongDirectory, match="version 2, and this release knows 1"):
        start()
    meta.write_text(known)
    assert [read_all(log) for log in start().logs()] == [[batch(0)]]


def test_the_highest_controller_epoch_is_kept(start: Start) -> None:
    directory = start()
    assert directory.controller_epoch == 0
    directory.persist_controller_epoch(7)
    directory.persist_controller_epoch(5)
    assert (directory.controller_epoch, start().controller_epoch) == (7, 7)


def test_a_damaged_controller_epoch_stops_the_start(start: Start) -> None:
    directory = start()
    directory.persist_controller_epoch(7)
    flip_last_byte(directory.root / "controller-epoch")
    with pytest.raises(CorruptFile):
        start()


def test_a_start_finds_replicas_and_their_high_watermarks(start: Start) -> None:
    directory = start()
    for partition in (0, 1):
        directory.open("t", ID_1, partition).append(batch(0))
    directory.checkpoint_high_watermarks({(ID_1, 1): 7, (ID_2, 0): 1})
    again = start()
    assert again.stored() == [
        ("t", ID_1, partition, again.open("t", ID_1, partition), partition) for partition in (0, 1)
    ]


def test_high_watermarks_are_kept_unless_damaged(start: Start) -> None:
    directory = start()
    assert directory.high_watermarks() == {}
    directory.checkpoint_high_watermarks({(ID_1, 0): 17, (ID_2, 3): 0})
    directory = start()
    assert directory.high_watermarks() == {(ID_1, 0): 17, (ID_2, 3): 0}
    flip_last_byte(directory.root / "replication-offset-checkpoint")
    assert directory.high_watermarks() == {}


AT_THE_START = {
    "meta.json": WrongDirectory,
    "directory-version": CorruptFile,
    "controller-epoch": CorruptFile,
    "clean-shutdown": None,
    "replication-offset-checkpoint": None,
    "partition.metadata": None,
    "leader-epoch-checkpoint": None,
    f"{ID_1}-0": None,
}
"""What refuses the start when a file of this name cannot be read."""


@pytest.mark.parametrize("name", AT_THE_START)
def test_defect_36_a_sector_that_cannot_be_read_is_as_a_damaged_file(
    start: Start, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The broker did not start, for want of files that it can do without or derives again."""
    directory = start()
    directory.open("t", ID_1, 0).append(batch(0))
    directory.persist_controller_epoch(3)
    directory.identity.persist_version(1)
    directory.checkpoint_high_watermarks({(ID_1, 0): 1})
    assert directory.close(incarnation=41)
    real, refused, refusal = Path.read_bytes, list[Path](), AT_THE_START[name]

    def read_bytes(path: Path) -> bytes:
        if path.name == name:
            refused.append(path)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(path)

    monkeypatch.setattr(Path, "read_bytes", read_bytes)
    if refusal is None:
        again = start()
        logs = [] if name == "partition.metadata" else [(ID_1, 0)]
        assert [log.identity.key for log in again.logs()] == logs
        assert again.clean_incarnation == (None if name == "clean-shutdown" else 41)
        # A loss before cannot be excluded without the entry, and the log is not known by its name.
        is_lost = name in {f"{ID_1}-0", "partition.metadata"}
        assert own_ids(again) == ({ID_1} if is_lost else set())
    else:
        with pytest.raises(refusal, match=name):
            start()
    assert refused


def test_a_segment_whose_name_is_no_offset_fails_its_log_alone(start: Start) -> None:
    """An offset has 63 bits, and the log would have ended at one that has more."""
    directory = start()
    written(directory, "a", "b")
    name = f"{2**63:020d}.log"
    (directory.root / "a-0" / name).touch()
    again = start()
    assert list(again.unopened.failures) == [("id-a", 0)]
    with pytest.raises(CorruptFile, match=name):
        again.open("a", "id-a", 0)
    assert read_all(again.open("b", "id-b", 0))


def test_a_disk_that_cannot_be_used_at_the_start_is_a_failed_storage(tmp_path: Path) -> None:
    occupied = tmp_path / "data"
    occupied.write_text("no directory")
    with pytest.raises(StorageFailed, match=r"cannot be used: .*exists"):
        open_logs(BrokerSettings(broker_id=1, log_dir=str(occupied)), "c")
