"""A broker's log directory: ownership, start and stop, strays, deletion (R1, R12, S20)."""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from structlog.testing import capture_logs

from leadline_broker.adapters.disk import DiskLogs, open_logs
from leadline_broker.adapters.log.directory import LogDirectory
from leadline_broker.adapters.log.errors import (
    CorruptFile,
    DiskFull,
    LogClosed,
    NoDescriptor,
    WrongDirectory,
)
from leadline_broker.adapters.log.inventory import INVENTORY_DIRECTORY, LogInventory
from leadline_broker.adapters.log.layout import PartitionIdentity
from leadline_broker.adapters.log.partition_log import PartitionLog
from leadline_client.errors import StorageFailed
from leadline_common.settings import BrokerSettings
from tests.support.services.up import until
from tests.unit.broker.log_support import batch, no_descriptors, read_all

ID_1 = "11111111-0000-0000-0000-000000000000"
ID_2 = "22222222-0000-0000-0000-000000000000"
DEADLINE_S = 20

Start = Callable[[], LogDirectory]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Return a function that starts broker 1 on a directory; a former start is killed."""
    running: list[LogDirectory] = []

    def begin() -> LogDirectory:
        kill(running)
        running.append(LogDirectory(tmp_path / "data", cluster_id="c", broker_id=1))
        running[-1].load_all()
        return running[-1]

    yield begin
    kill(running)


def kill(running: list[LogDirectory]) -> None:
    """Release the lock as the end of the process would."""
    while running:
        running.pop().release()


def flip_last_byte(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


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


def test_a_recreated_topic_finds_no_old_records(start: Start) -> None:
    directory = start()
    old = directory.open("t", ID_1, 0)
    old.append(batch(0, b"old"))
    new = directory.open("t", ID_2, 0)
    assert new.log_end_offset == 0
    with pytest.raises(LogClosed):
        old.append(batch(1))
    assert list(directory.strays.found()) == [f"t-0.{ID_1}-stray"]
    new.append(batch(0, b"new"))
    assert [read_all(log) for log in start().logs()] == [[batch(0, b"new")]]


def test_a_stray_that_is_wanted_again_is_brought_back(start: Start) -> None:
    directory = start()
    directory.open("t", ID_1, 0).append(batch(0))
    directory.to_stray((ID_1, 0))
    assert read_all(directory.open("t", ID_1, 0)) == [batch(0)]
    directory.to_stray((ID_1, 0))
    again = start()
    assert again.logs() == []
    assert read_all(again.open("t", ID_1, 0)) == [batch(0)]
    assert again.strays.found() == {}


def test_a_stray_that_cannot_be_brought_back_is_brought_back_later(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No role of a request was taken that came after that of such a replica."""
    directory = start()
    directory.open("t", ID_1, 0).append(batch(0))
    directory.to_stray((ID_1, 0))

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for owner, call in ((LogInventory, "add"), (Path, "glob")):
        with monkeypatch.context() as broken:
            broken.setattr(owner, call, refuse)
            with pytest.raises(StorageFailed, match="No space"):
                directory.open("t", ID_1, 0)
    assert read_all(directory.open("t", ID_1, 0)) == [batch(0)]


def test_a_replica_without_records_leaves_no_stray(start: Start) -> None:
    directory = start()
    directory.open("t", ID_1, 0)
    directory.to_stray((ID_1, 0))
    directory.open("t", ID_1, 1)
    directory.delete((ID_1, 1))()
    assert (directory.logs(), directory.strays.found()) == ([], {})


def test_strays_are_kept_for_the_grace_period(start: Start) -> None:
    directory = start()
    log = directory.open("t", ID_1, 0)
    log.append(batch(0))
    directory.to_stray((ID_1, 0))
    ((name, since),) = directory.strays.found().items()
    assert directory.strays.purge(since + 999, grace_ms=1000) == []
    assert start().strays.found() == {name: since}
    assert directory.strays.purge(since + 1000, grace_ms=1000) == [name]
    assert directory.strays.found() == {}


def test_a_stray_of_a_former_one_s_name_has_a_grace_period_of_its_own(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The replica returned, and was set aside again, while a thread deleted other strays."""
    directory = start()
    for partition in (0, 1):
        directory.open("t", ID_1, partition).append(batch(0))
        directory.to_stray((ID_1, partition))
        os.utime(directory.root / f"t-{partition}.{ID_1}-stray", (0, 0))
    deleting, go_on, rename = Event(), Event(), directory.strays._rename_expired

    def rename_and_wait(name: str, since: int) -> bool:
        is_renamed = rename(name, since)
        deleting.set()
        assert go_on.wait(DEADLINE_S)
        return is_renamed

    monkeypatch.setattr(directory.strays, "_rename_expired", rename_and_wait)
    with ThreadPoolExecutor(1) as thread:
        purging = thread.submit(directory.strays.purge, 2_000, grace_ms=1_000)
        assert deleting.wait(DEADLINE_S)
        directory.open("t", ID_1, 1).append(batch(1))
        directory.to_stray((ID_1, 1))
        go_on.set()
        assert purging.result(DEADLINE_S) == [f"t-0.{ID_1}-stray"]

    assert read_all(directory.open("t", ID_1, 1)) == [batch(0), batch(1)]


def test_the_longest_topic_name_can_be_moved_aside(start: Start) -> None:
    directory = start()
    log = directory.open("t" * 245, ID_1, 0)
    log.append(batch(0))
    directory.to_stray((ID_1, 0))
    assert len(directory.strays.found()) == 1


def test_a_deleted_replica_is_gone_even_if_the_work_is_never_finished(start: Start) -> None:
    directory = start()
    for partition in (0, 1):
        log = directory.open("t", ID_1, partition)
        log.append(batch(0))
        finish = directory.delete((ID_1, partition))
        assert directory.open("t", ID_1, partition).log_end_offset == 0
        if partition == 0:
            finish()
    assert [path.name for path in directory.root.glob("*-delete")] == [f"t-1.{ID_1}-delete"]
    again = start()
    assert (again.logs(), list(again.root.glob("t-*"))) == ([], [])


def test_what_could_not_be_removed_of_a_deleted_replica_is_removed_later(start: Start) -> None:
    """Without a free descriptor, none of its files can be removed."""
    directory = start()
    directory.open("t", ID_1, 0).append(batch(0))
    finish = directory.delete((ID_1, 0))
    with no_descriptors():
        finish()
    (left,) = directory.root.glob("*-delete")
    assert list(left.iterdir())

    assert directory.strays.purge(0, grace_ms=1_000) == []

    assert not left.exists()


LENGTHS = [1, 199, 210, 216, 220, 248, 249]
"""Of topic names, which may have 249 characters; a directory's name may have 255."""


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("partition", [0, 99_999])
def test_defect_10_a_stray_of_a_long_topic_name_is_brought_back(
    tmp_path: Path, length: int, partition: int
) -> None:
    topic, other = "t" * length, 11
    logs = disk_logs(tmp_path)
    logs.open(topic, ID_1, partition).append(batch(0, b"kept"))
    logs.open(topic, ID_1, other).append(batch(0, b"other"))
    logs.to_stray((ID_1, partition))
    logs.to_stray((ID_1, other))
    assert logs.open(topic, ID_1, partition).read(0, 4096, 1) == batch(0, b"kept")
    logs.to_stray((ID_1, partition))
    logs.close(1)

    again = disk_logs(tmp_path)

    assert again.stored() == []
    assert again.open(topic, ID_1, partition).log_end_offset == 1
    assert again.open(topic, ID_1, other).log_end_offset == 1
    assert again.open(topic, ID_2, 1).log_end_offset == 0
    again.close(2)


@pytest.mark.parametrize("length", LENGTHS)
def test_defect_10_a_stray_of_a_long_topic_name_is_deleted_after_its_grace_period(
    start: Start, length: int
) -> None:
    directory = start()
    for partition in (0, 99_999):
        directory.open("t" * length, ID_1, partition).append(batch(0))
        directory.to_stray((ID_1, partition))

    assert len(directory.strays.purge(2**62, 0)) == 2

    left = {path.name for path in directory.root.iterdir() if path.is_dir()}
    assert left == {INVENTORY_DIRECTORY}


def disk_logs(root: Path) -> DiskLogs:
    return DiskLogs(BrokerSettings(broker_id=1, log_dir=str(root / "data")), "c")


def test_defect_10_a_topic_recreated_under_the_name_of_an_unreadable_log_is_accepted(
    start: Start,
) -> None:
    directory = start()
    directory.open("t", ID_1, 0).append(batch(0))
    segment = directory.root / "t-0" / f"{0:020d}.log"
    directory.release()
    segment.unlink()
    segment.mkdir()
    again = start()
    assert list(again.unopened.failures) == [(ID_1, 0)]
    with pytest.raises(StorageFailed):
        again.open("t", ID_1, 0)

    again.open("t", ID_2, 0).append(batch(0, b"new"))

    assert list(again.strays.found()) == [f"t-0.{ID_1}-stray"]
    assert again.close(incarnation=1)
    assert [read_all(log) for log in start().logs()] == [[batch(0, b"new")]]


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


@pytest.mark.parametrize("is_gone", [True, False], ids=["gone", "damaged"])
@pytest.mark.parametrize("is_late", [True, False], ids=["opened-later", "opened"])
def test_defect_36_without_high_watermarks_a_truncated_log_counts_as_lost(
    start: Start, short: set[str], *, is_gone: bool, is_late: bool
) -> None:
    """What was truncated may have been committed, and the log could be elected with the rest."""
    directory = start()
    written(directory, "a", "b", "c")
    directory.checkpoint_high_watermarks({(f"id-{one}", 0): 3 for one in "abc"})
    directory.identity.persist_version(1)
    checkpoint = directory.root / "replication-offset-checkpoint"
    if is_gone:
        checkpoint.unlink()
    else:
        flip_last_byte(checkpoint)
    (segment,) = (directory.root / "a-0").glob("*.log")
    os.truncate(segment, segment.stat().st_size - 1)
    directory.release()
    if is_late:
        short |= {"a", "b"}

    again = start()
    short.clear()
    if is_late:
        assert again.unopened.open_again()
        again.take_opened()

    assert own_ids(again) == {"a"}
    assert all(high_watermark == 0 for *_, high_watermark in again.stored())
    again.release()
    assert own_ids(start()) == {"a"}


@pytest.mark.parametrize("is_known", [True, False])
def test_a_log_that_is_not_elected_any_more_is_named_with_the_reason(
    start: Start, *, is_known: bool
) -> None:
    directory = start()
    written(directory, "a", "b")
    directory.checkpoint_high_watermarks({("id-a", 0): 3, ("id-b", 0): 3})
    if not is_known:
        flip_last_byte(directory.root / "replication-offset-checkpoint")
    (segment,) = (directory.root / "a-0").glob("*.log")
    os.truncate(segment, segment.stat().st_size - 1)
    with capture_logs() as lines:
        start()
    (line,) = [one for one in lines if one["event"].startswith("log may lack committed records")]
    assert line["log"] == "a-0"
    unknown = r"recovery truncated \d+ bytes at offset 2, .* is damaged or gone"
    assert re.fullmatch(
        "it ends at 2, and 3 was committed" if is_known else unknown, line["reason"]
    )


def test_a_directory_without_a_checkpoint_yet_has_lost_nothing(start: Start) -> None:
    directory = start()
    written(directory, "a")
    (segment,) = (directory.root / "a-0").glob("*.log")
    os.truncate(segment, segment.stat().st_size - 1)
    assert own_ids(start()) == set()


# -- directory ids and lost logs (R17) --------------------------------------------------


def written(directory: LogDirectory, *topics: str, records: int = 3) -> None:
    """Append to and flush partition 0 of these topics."""
    for topic in topics:
        log = directory.open(topic, f"id-{topic}", 0)
        for offset in range(records):
            log.append(batch(offset))
        log.flush()


def own_ids(directory: LogDirectory) -> set[str]:
    """Return the topics whose replicas have a directory id of their own."""
    return {topic_id.removeprefix("id-") for topic_id, _ in directory.own_directory_ids()}


def test_defect_01_a_directory_keeps_its_id_and_an_emptied_one_gets_another(start: Start) -> None:
    first = start().identity.directory_id
    again = start()
    assert again.identity.directory_id == first
    shutil.rmtree(again.root)

    assert start().identity.directory_id != first


def test_defect_01_logs_without_the_id_of_their_directory_get_a_new_one(start: Start) -> None:
    directory = start()
    written(directory, "a", "b")
    first = directory.identity.directory_id
    (directory.root / "meta.json").unlink()

    again = start()

    assert again.identity.directory_id != first
    assert own_ids(again) == set()


def test_defect_01_a_log_that_was_never_written_is_not_lost(start: Start) -> None:
    directory = start()
    directory.open("empty", "id-empty", 0)
    written(directory, "a")

    assert start().lost == []


def test_defect_01_a_missing_log_gets_a_directory_id_of_its_own(start: Start) -> None:
    directory = start()
    written(directory, "a", "b")
    shutil.rmtree(directory.root / "a-0")

    again = start()
    assert again.lost == [("id-a", 0)]
    first = again.own_directory_ids()
    assert own_ids(again) == {"a"}
    assert start().own_directory_ids() == first, "it is not lost twice"

    written(start(), "a")
    assert start().own_directory_ids() == first
    shutil.rmtree(start().root / "a-0")
    second = start().own_directory_ids()
    assert own_ids(start()) == {"a"}
    assert second != first


def test_defect_01_an_emptied_log_is_lost_too(start: Start) -> None:
    directory = start()
    written(directory, "a", "b")
    for path in (directory.root / "a-0").glob("0*"):
        path.unlink()

    assert own_ids(start()) == {"a"}


def test_defect_01_an_unreadable_log_is_lost_until_it_is_written_again(start: Start) -> None:
    directory = start()
    written(directory, "a", "b")
    (directory.root / "a-0" / "partition.metadata").write_bytes(b"?")

    assert own_ids(start()) == {"a"}


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


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The topics whose logs cannot be opened for want of space or a descriptor."""
    topics, errors = set[str](), [DiskFull("full"), NoDescriptor("none")]

    def open_log(root: Path, identity: PartitionIdentity, *rest: Any, **options: Any) -> Any:
        if identity.topic in topics:
            errors.append(errors.pop(0))
            raise errors[0]
        return PartitionLog(root, identity, *rest, **options)

    monkeypatch.setattr("leadline_broker.adapters.log.directory.PartitionLog", open_log)
    return topics


def test_a_log_is_opened_once_there_is_space(start: Start, short: set[str]) -> None:
    directory = start()
    written(directory, "a", "b", "c")
    directory.release()
    short |= {"a", "b"}
    again = start()
    assert own_ids(again) == {"a", "b"}
    short.remove("a")
    assert not again.unopened.open_again(), "b lacks space"
    again.take_opened()
    short.clear()
    assert again.unopened.open_again()
    with pytest.raises(StorageFailed):
        again.open("b", "id-b", 0)
    assert own_ids(again) == {"b"}, "registered, until the broker registers again"

    again.take_opened()

    assert (own_ids(again), again.unopened.has_retriable) == (set(), False)
    assert not again.unopened.open_again()
    assert all(read_all(again.open(one, f"id-{one}", 0)) for one in "abc")
    assert again.close(incarnation=1)


def test_a_log_that_is_opened_later_without_some_records_has_lost_them(
    start: Start, short: set[str]
) -> None:
    directory = start()
    written(directory, "a", "b")
    directory.checkpoint_high_watermarks({("id-a", 0): 4, ("id-b", 0): 3})
    directory.release()
    short |= {"a", "b"}
    again = start()
    short.clear()
    again.unopened.open_again()
    again.take_opened()

    assert own_ids(again) == {"a"}
    again.release()
    assert own_ids(start()) == {"a"}


def test_a_log_that_was_set_aside_meanwhile_is_not_taken_into_use(
    start: Start, short: set[str]
) -> None:
    directory = start()
    written(directory, "a")
    directory.release()
    short.add("a")
    again = start()
    short.clear()
    assert again.unopened.open_again()
    again.open("a", "another", 0).append(batch(0, b"new"))
    again.take_opened()

    assert [log.identity.topic_id for log in again.logs()] == ["another"]
    assert again.close(incarnation=1)


def test_a_log_that_has_lost_records_is_not_taken_into_use_before_that_is_noted(
    start: Start, short: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = start()
    written(directory, "a")
    directory.checkpoint_high_watermarks({("id-a", 0): 4})
    directory.release()
    short.add("a")
    again = start()
    short.clear()
    assert again.unopened.open_again()
    registered = again.own_directory_ids()

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(again._inventory, "lose", refuse)
        with pytest.raises(StorageFailed):
            again.take_opened()
    assert (again.logs(), again.own_directory_ids()) == ([], registered)

    ((*_, log, high_watermark),) = again.take_opened()

    assert (log.log_end_offset, high_watermark) == (3, 3)
    assert again.own_directory_ids().keys() == registered.keys()
    assert again.own_directory_ids() != registered


def test_a_replica_that_returns_after_its_deletion_keeps_the_id_that_is_registered(
    start: Start, short: set[str]
) -> None:
    """Memberships that it gains are bound to that id."""
    directory = start()
    written(directory, "a")
    directory.release()
    short.add("a")
    again = start()
    short.clear()
    registered = again.own_directory_ids()
    again.delete(("id-a", 0))()
    written(again, "a")
    assert again.own_directory_ids() == registered
    again.release()

    assert start().own_directory_ids() == registered


@pytest.mark.parametrize("change", ["delete", "set aside"])
def test_a_log_is_left_alone_while_it_is_recovered(
    start: Start, short: set[str], monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """Its recovery would write into the directory of whatever has its name next."""
    directory = start()
    written(directory, "a")
    directory.release()
    short.add("a")
    again = start()
    short.clear()
    begun, go_on = Event(), Event()
    tried = again.unopened.open_log

    def slow(*of: Any) -> PartitionLog:
        begun.set()
        assert go_on.wait(DEADLINE_S)
        return tried(*of)

    def attempt() -> None:
        if change == "delete":
            again.delete(("id-a", 0))()
        else:
            again.open("a", "another", 0)

    monkeypatch.setattr(again.unopened, "open_log", slow)
    with ThreadPoolExecutor(1) as thread:
        opening = thread.submit(again.unopened.open_again)
        assert begun.wait(DEADLINE_S)
        with pytest.raises(StorageFailed, match="being recovered"):
            attempt()
        go_on.set()
        assert opening.result(DEADLINE_S)
    assert again.is_unused(("id-a", 0))

    attempt()

    assert (again.take_opened(), again.is_unused(("id-a", 0))) == ([], False)
    left = {path.name for path in again.root.glob("a-0*")}
    assert left == (set() if change == "delete" else {"a-0.id-a-stray"})


def test_a_directory_is_released_when_no_log_is_being_opened_any_more(
    start: Start, short: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process would recover it at the same time."""
    directory = start()
    written(directory, "a", "b")
    directory.release()
    short |= {"a", "b"}
    again = start()
    short.clear()
    begun, go_on = Event(), Event()
    tried = again.unopened.open_log

    def slow(*of: Any) -> PartitionLog:
        begun.set()
        assert go_on.wait(10)
        return tried(*of)

    monkeypatch.setattr(again.unopened, "open_log", slow)
    with ThreadPoolExecutor(2) as threads:
        opening = threads.submit(again.unopened.open_again)
        assert begun.wait(10)
        releasing = threads.submit(again.release)
        until(lambda: again.unopened._is_released, "the release has begun")
        assert not releasing.done()
        go_on.set()
        releasing.result(10)
        assert not opening.result(10)


@pytest.mark.parametrize("kept", [True, False], ids=["whole", "shorter"])
def test_defect_01_a_log_that_can_be_read_again_counts_again_if_it_is_whole(
    start: Start, kept: bool
) -> None:
    """Also after the high watermarks of the other logs were written meanwhile."""
    directory = start()
    written(directory, "a", "b")
    directory.checkpoint_high_watermarks({("id-a", 0): 3, ("id-b", 0): 3})
    directory.release()
    (segment,) = (directory.root / "a-0").glob("*.log")
    aside = segment.rename(directory.root / "aside")
    segment.mkdir()
    again = start()
    assert (list(again.unopened.failures), own_ids(again)) == ([("id-a", 0)], {"a"})
    again.checkpoint_high_watermarks({("id-b", 0): 3})
    again.release()
    segment.rmdir()
    aside.rename(segment)
    if not kept:
        os.truncate(segment, segment.stat().st_size - 1)

    assert own_ids(start()) == (set() if kept else {"a"})


def test_defect_01_an_unreadable_log_that_was_set_aside_is_lost(start: Start) -> None:
    directory = start()
    written(directory, "a")
    directory.release()
    (segment,) = (directory.root / "a-0").glob("*.log")
    segment.unlink()
    segment.mkdir()
    again = start()
    first = again.own_directory_ids()

    again.open("a", "id-other", 0)

    assert start().own_directory_ids() == first == {("id-a", 0): first["id-a", 0]}


def test_defect_01_a_log_below_its_checkpointed_high_watermark_is_lost(start: Start) -> None:
    directory = start()
    written(directory, "a", "b")
    directory.checkpoint_high_watermarks({("id-a", 0): 3, ("id-b", 0): 3})
    (segment,) = (directory.root / "a-0").glob("*.log")
    os.truncate(segment, segment.stat().st_size - 1)

    again = start()
    assert own_ids(again) == {"a"}
    first = again.own_directory_ids()
    assert start().own_directory_ids() == first, "it is not lost twice"


def test_defect_01_a_deleted_or_stray_log_is_not_lost(start: Start) -> None:
    directory = start()
    written(directory, "a", "b", "c")
    directory.delete(("id-a", 0))()
    directory.to_stray(("id-b", 0))

    assert start().lost == []


def test_defect_01_a_lost_log_that_is_not_assigned_any_more_is_forgotten(start: Start) -> None:
    directory = start()
    written(directory, "a", "b")
    shutil.rmtree(directory.root / "a-0")
    shutil.rmtree(directory.root / "b-0")
    again = start()

    again.forget_lost([("id-b", 0)])

    assert own_ids(start()) == {"b"}


@pytest.mark.parametrize("end", ["forgotten", "deleted", "stray"])
def test_defect_01_a_recreated_log_keeps_the_id_that_is_registered(start: Start, end: str) -> None:
    """A membership that it gains before the next start is bound to this id."""
    directory = start()
    written(directory, "a")
    shutil.rmtree(directory.root / "a-0")
    again = start()
    registered = again.own_directory_ids()
    if end == "forgotten":
        again.forget_lost([])
    else:
        written(again, "a")
        if end == "deleted":
            again.delete(("id-a", 0))()
        else:
            again.to_stray(("id-a", 0))

    written(again, "a", records=3 if end != "stray" else 0)

    assert again.own_directory_ids() == registered
    assert start().own_directory_ids() == registered


def test_defect_01_a_log_that_becomes_stray_before_its_first_sync_is_not_lost(
    start: Start,
) -> None:
    directory = start()
    directory.open("a", "id-a", 0).append(batch(0))

    directory.to_stray(("id-a", 0))

    assert start().lost == []


def test_defect_01_a_damaged_entry_counts_as_a_lost_log(start: Start) -> None:
    directory = start()
    written(directory, "a")
    (entry,) = (directory.root / "inventory").iterdir()
    flip_last_byte(entry)

    again = start()
    assert own_ids(again) == {"a"}
    first = again.own_directory_ids()
    assert start().own_directory_ids() == first, "it is not lost twice"


def test_a_disk_that_cannot_be_used_at_the_start_is_a_failed_storage(tmp_path: Path) -> None:
    occupied = tmp_path / "data"
    occupied.write_text("no directory")
    with pytest.raises(StorageFailed, match=r"cannot be used: .*exists"):
        open_logs(BrokerSettings(broker_id=1, log_dir=str(occupied)), "c")
