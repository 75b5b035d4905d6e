"""Replicas that are set aside or deleted within a log directory (rule R12)."""

from __future__ import annotations

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from leadline_broker.adapters.disk import DiskLogs
from leadline_broker.adapters.log.errors import LogClosed
from leadline_broker.adapters.log.inventory import INVENTORY_DIRECTORY, LogInventory
from leadline_client.errors import StorageFailed
from leadline_common.settings import BrokerSettings
from tests.unit.broker.log_directories import DEADLINE_S, ID_1, ID_2, Start
from tests.unit.broker.log_support import batch, no_descriptors, read_all


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
