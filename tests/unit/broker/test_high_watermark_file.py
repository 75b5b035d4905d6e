"""High watermarks of logs that are gone: no later log of the same replica inherits them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from leadline_broker.adapters.log.directory import LogDirectory
from tests.unit.broker.log_support import batch

ID = "11111111-0000-0000-0000-000000000000"
REPLICA, OTHER = (ID, 0), (ID, 1)

Start = Callable[[], LogDirectory]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Return a function that starts the broker again, after a kill."""
    running: list[LogDirectory] = []

    def begin() -> LogDirectory:
        for former in running:
            former.release()
        running[:] = [LogDirectory(tmp_path, cluster_id="c", broker_id=1)]
        running[0].load_all()
        return running[0]

    yield begin
    running[0].release()


def write(directory: LogDirectory, epoch: int, *offsets: int, partition: int = 0) -> None:
    """Append batches of one record to a log, and sync it."""
    log = directory.open("t", ID, partition)
    for offset in offsets:
        log.append(batch(offset, epoch=epoch))
    log.flush()


def known(directory: LogDirectory) -> dict[int, int]:
    """Return the high watermarks with which replicas are taken into use."""
    return {partition: mark for _, _, partition, _, mark in directory.stored()}


def delete_after_checkpoint(directory: LogDirectory) -> None:
    write(directory, 0, 0, 1)
    write(directory, 0, 0, partition=1)
    directory.checkpoint_high_watermarks({REPLICA: 2, OTHER: 1})
    directory.delete(REPLICA)()


def test_defect_33_a_partition_that_was_added_again_does_not_count_as_lost(start: Start) -> None:
    directory = start()
    delete_after_checkpoint(directory)
    write(directory, 1, 0)

    again = start()

    assert again.lost == []
    assert known(again) == {0: 0, 1: 1}


def test_defect_33_nor_does_one_whose_broker_was_restarted_before_that(start: Start) -> None:
    delete_after_checkpoint(start())
    write(start(), 1, 0)

    again = start()

    assert again.lost == []
    assert known(again) == {0: 0, 1: 1}


def test_defect_33_nor_one_whose_former_log_was_set_aside(start: Start) -> None:
    directory = start()
    write(directory, 0, 0, 1)
    directory.checkpoint_high_watermarks({REPLICA: 2})
    directory.to_stray(REPLICA)
    for stray in directory.strays.found():
        (directory.root / stray).rename(directory.root / "elsewhere")
    write(directory, 1, 0)

    assert start().lost == []


def test_what_was_collected_before_is_not_written_of_the_new_log(start: Start) -> None:
    directory = start()
    delete_after_checkpoint(directory)
    write(directory, 1, 0, 1, 2)

    directory.checkpoint_high_watermarks({REPLICA: 2, OTHER: 1})
    assert directory.high_watermarks() == {OTHER: 1}
    directory.checkpoint_high_watermarks({REPLICA: 3, OTHER: 1})
    assert directory.high_watermarks() == {REPLICA: 3, OTHER: 1}


def test_a_log_that_was_really_lost_is_still_found(start: Start) -> None:
    directory = start()
    write(directory, 0, 0)
    directory.checkpoint_high_watermarks({REPLICA: 2})

    assert start().lost == [REPLICA]
