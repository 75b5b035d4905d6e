"""A broker's log directory: ownership, start and stop, strays, deletion (R1, R12, S20)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from leadline_broker.adapters.log.directory import LogDirectory
from leadline_broker.adapters.log.errors import CorruptFile, LogClosed, WrongDirectory
from tests.unit.broker.log_support import batch, read_all

ID_1 = "11111111-0000-0000-0000-000000000000"
ID_2 = "22222222-0000-0000-0000-000000000000"

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
    assert list(directory.strays()) == [f"t-0.{ID_1}-stray"]
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
    assert again.strays() == {}


def test_a_replica_without_records_leaves_no_stray(start: Start) -> None:
    directory = start()
    directory.open("t", ID_1, 0)
    directory.to_stray((ID_1, 0))
    directory.open("t", ID_1, 1)
    directory.delete((ID_1, 1))()
    assert (directory.logs(), directory.strays()) == ([], {})


def test_strays_are_kept_for_the_grace_period(start: Start) -> None:
    directory = start()
    log = directory.open("t", ID_1, 0)
    log.append(batch(0))
    directory.to_stray((ID_1, 0))
    ((name, since),) = directory.strays().items()
    assert directory.purge_strays(since + 999, grace_ms=1000) == []
    assert start().strays() == {name: since}
    assert directory.purge_strays(since + 1000, grace_ms=1000) == [name]
    assert directory.strays() == {}


def test_the_longest_topic_name_can_be_moved_aside(start: Start) -> None:
    directory = start()
    log = directory.open("t" * 245, ID_1, 0)
    log.append(batch(0))
    directory.to_stray((ID_1, 0))
    assert len(directory.strays()) == 1


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


@pytest.mark.parametrize("damage", [Path.unlink, flip_last_byte], ids=["missing", "flipped"])
def test_a_directory_that_is_nobodys_goes_to_stray(
    start: Start, damage: Callable[[Path], None]
) -> None:
    directory = start()
    directory.open("t", ID_1, 0).append(batch(0))
    damage(directory.root / "t-0" / "partition.metadata")
    again = start()
    assert (again.logs(), list(again.strays())) == ([], ["t-0.unknown-stray"])


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
