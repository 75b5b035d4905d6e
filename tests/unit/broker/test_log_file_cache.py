"""Bounded open files: least recently used closed first, pinned ones never."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from leadline_broker.adapters.log.file_cache import FileCache, LogFile
from leadline_broker.adapters.log.layout import LogConfig, PartitionIdentity
from leadline_broker.adapters.log.partition_log import PartitionLog
from tests.unit.broker.log_support import batch, read_all


def created(cache: FileCache, directory: Path, count: int) -> list[LogFile]:
    files = [LogFile(directory / str(number)) for number in range(count)]
    for file in files:
        cache.create(file)
    return files


def open_names(files: list[LogFile]) -> list[str]:
    return [file.path.name for file in files if file.fd >= 0]


def test_the_least_recently_used_is_closed(tmp_path: Path) -> None:
    cache = FileCache(2)
    files = created(cache, tmp_path, 3)
    assert open_names(files) == ["1", "2"]
    with cache.using(files[1]), cache.using(files[0]):
        pass
    assert open_names(files) == ["0", "1"]
    assert cache.open_count == 2


def test_a_pinned_file_stays_open_whatever_the_capacity(tmp_path: Path) -> None:
    cache = FileCache(1)
    files = created(cache, tmp_path, 3)
    first = cache.pin(files[0])
    second = cache.pin(files[1])
    assert cache.pin(files[0]) == first
    os.fstat(first)
    os.fstat(second)
    cache.unpin(files[0])
    cache.close(files[0])
    assert files[0].fd == first, "still pinned once"
    cache.unpin(files[0])
    cache.unpin(files[1])
    assert open_names(files) == ["1"]


def test_a_file_is_created_once(tmp_path: Path) -> None:
    cache = FileCache()
    created(cache, tmp_path, 1)
    with pytest.raises(FileExistsError):
        cache.create(LogFile(tmp_path / "0"))
    with pytest.raises(FileNotFoundError):
        cache.pin(LogFile(tmp_path / "missing"))
    assert cache.open_count == 1


def test_more_logs_than_descriptors(tmp_path: Path) -> None:
    cache = FileCache(3)
    logs = [
        PartitionLog(tmp_path, PartitionIdentity("t", "id", number), LogConfig(), cache)
        for number in range(20)
    ]
    for offset in range(3):
        for log in logs:
            log.append(batch(offset))
            log.flush()
            assert cache.open_count <= 3
    assert all(read_all(log) == [batch(0), batch(1), batch(2)] for log in logs)
    for log in logs:
        log.close()
    assert cache.open_count == 0
