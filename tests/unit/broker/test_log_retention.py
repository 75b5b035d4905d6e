"""Retention of logs with many segments: a few at a time, and the files go elsewhere."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from leadline_broker.adapters.log.partition_log import PartitionLog
from leadline_broker.adapters.log.retention import MOST_AT_ONCE
from leadline_broker.domain.producers import ProducerStates
from leadline_client.errors import StorageFailed
from tests.unit.broker.log_support import batch, open_log, read_all

MANY = 2 * MOST_AT_ONCE + 3


def many_segments(root: Path, count: int = MANY) -> PartitionLog:
    log = open_log(root, segment_bytes=100)
    for number in range(count):
        log.append(batch(number, b"x" * 50))
    log.flush()
    return log


def removal_of(log: PartitionLog) -> Callable[[], None]:
    removal = log.removal()
    assert removal is not None
    return removal


def keep_nothing(log: PartitionLog) -> int:
    return log.apply_retention(0, -1, 0, limit_offset=log.log_end_offset)


def files(log: PartitionLog, pattern: str) -> list[str]:
    return sorted(path.name for path in log.directory.glob(pattern))


def test_a_few_segments_leave_the_log_at_a_time(tmp_path: Path) -> None:
    log = many_segments(tmp_path)
    size = log.size_bytes // MANY

    starts, bytes_removed = [], []
    while removed := keep_nothing(log):
        starts.append(log.log_start_offset)
        bytes_removed.append(removed)

    assert starts == [MOST_AT_ONCE, 2 * MOST_AT_ONCE, MANY - 1]
    assert bytes_removed == [size * MOST_AT_ONCE, size * MOST_AT_ONCE, size * 2]
    assert read_all(log) == [batch(MANY - 1, b"x" * 50)]


def test_the_owner_of_a_log_removes_no_file_of_records(tmp_path: Path) -> None:
    """To unlink a large file takes long, and so does the listing of a large directory."""
    log = many_segments(tmp_path)

    keep_nothing(log)
    assert len(files(log, "*.log.deleted")) == MOST_AT_ONCE
    assert len(files(log, "*.snapshot.deleted")) == MOST_AT_ONCE - 1
    assert len(files(log, "*.log")) == MANY - MOST_AT_ONCE

    removal_of(log)()
    assert log.removal() is None
    assert files(log, "*.deleted") == []
    assert len(files(log, "*.snapshot")) == MANY - MOST_AT_ONCE
    assert len(files(log, "*.log")) == MANY - MOST_AT_ONCE


@pytest.mark.parametrize("clean", [True, False])
def test_what_a_crash_left_is_removed_when_the_log_is_opened(tmp_path: Path, clean: bool) -> None:
    log = many_segments(tmp_path)
    keep_nothing(log)
    log.close() if clean else log.discard()

    again = open_log(tmp_path, clean=clean)

    assert files(again, "*.deleted") == []
    assert (again.log_start_offset, again.log_end_offset) == (MOST_AT_ONCE, MANY)
    assert read_all(again) == [batch(number, b"x" * 50) for number in range(MOST_AT_ONCE, MANY)]


def test_a_log_that_begins_again_keeps_its_new_files(tmp_path: Path) -> None:
    """It may have files of the names that were removed."""
    log = many_segments(tmp_path)
    keep_nothing(log)
    remove_files = removal_of(log)
    log.reset_to(0, ProducerStates())
    log.append(batch(0, b"new"))
    log.flush()

    remove_files()

    assert read_all(log) == [batch(0, b"new")]
    log.close()
    assert read_all(open_log(tmp_path, clean=True)) == [batch(0, b"new")]


def test_a_log_that_begins_again_keeps_its_new_snapshots(tmp_path: Path) -> None:
    """A late removal of those before the former start left publishes that nobody remembered."""
    log = many_segments(tmp_path)
    keep_nothing(log)
    remove_files = removal_of(log)
    log.reset_to(0, ProducerStates())
    for number in range(3):
        log.append(batch(number, b"x" * 50))
    log.flush()
    written = files(log, "*.snapshot")
    assert written

    remove_files()

    assert files(log, "*.snapshot") == written


def test_files_of_a_log_that_is_gone_need_no_removal(tmp_path: Path) -> None:
    log = many_segments(tmp_path)
    keep_nothing(log)
    remove_files = removal_of(log)
    log.close()
    log.directory.rename(tmp_path / "deleted")
    remove_files()


def test_segments_before_one_that_cannot_be_renamed_leave_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = many_segments(tmp_path)
    rename = Path.rename

    def refuse_third(path: Path, target: Path) -> Path:
        if path.name.endswith("2.log"):
            raise OSError(errno.EIO, "Input/output error")
        return rename(path, target)

    with monkeypatch.context() as broken:
        broken.setattr(Path, "rename", refuse_third)
        assert keep_nothing(log) > 0
        assert log.log_start_offset == 2
        with pytest.raises(StorageFailed, match="Input/output error"):
            keep_nothing(log)

    assert read_all(log) == [batch(number, b"x" * 50) for number in range(2, MANY)]
    assert keep_nothing(log) > 0
    assert log.log_start_offset == 2 + MOST_AT_ONCE


def test_a_file_that_cannot_be_removed_stays_until_the_log_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An OSError would end the broker's maintenance, and so the broker."""
    log = many_segments(tmp_path)
    keep_nothing(log)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(Path, "unlink", refuse)
        removal_of(log)()
    assert len(files(log, "*.log.deleted")) == MOST_AT_ONCE
    log.close()
    assert files(open_log(tmp_path, clean=True), "*.deleted") == []


@pytest.mark.parametrize("offset", [3, 2 * MANY], ids=["truncated", "restarted"])
def test_neither_do_a_truncation_and_a_new_start(tmp_path: Path, offset: int) -> None:
    """A follower that was away for long may have to delete all that it has."""
    log = many_segments(tmp_path)

    log.truncate_to(offset) if offset < MANY else log.reset_to(offset, ProducerStates())

    left = 1 if offset > MANY else offset + 1
    assert len(files(log, "*.log")) == left
    assert len(files(log, "*.log.deleted")) == MANY - (left if offset < MANY else 0)
    removal_of(log)()
    assert files(log, "*.deleted") == []
    log.append(batch(offset, b"new"))
    log.close()
    again = open_log(tmp_path, clean=True)
    assert read_all(again)[-1] == batch(offset, b"new")


def test_a_file_that_a_thread_removes_while_the_log_is_opened_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replica that is set aside may be opened again before its files are removed."""
    log = many_segments(tmp_path)
    keep_nothing(log)
    removal = removal_of(log)
    log.close()
    glob = Path.glob

    def found_too_late(path: Path, pattern: str) -> list[Path]:
        found = list(glob(path, pattern))
        if found:
            removal()
        return found

    monkeypatch.setattr(Path, "glob", found_too_late)
    assert open_log(tmp_path, clean=True).log_start_offset == MOST_AT_ONCE
