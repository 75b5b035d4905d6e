"""Kills, full disks and failing fsyncs (S3, S17, S18; R4)."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

import pytest

from leadline_broker.adapters.log.checked_files import write_checked
from leadline_broker.adapters.log.directory import LogDirectory
from leadline_broker.adapters.log.epoch_file import read_epochs
from leadline_broker.adapters.log.errors import DiskFull, LogFailed
from leadline_broker.adapters.log.file_cache import FileCache, LogFile
from leadline_broker.adapters.log.layout import METADATA_FILE, LogConfig, PartitionIdentity
from leadline_broker.adapters.log.partition_log import PartitionLog
from leadline_broker.adapters.log.segment import Segment
from leadline_broker.domain.producers import ProducerStates
from leadline_client.errors import StorageFailed
from tests.unit.broker.log_support import (
    IDENTITY,
    LateFsyncs,
    batch,
    no_descriptors,
    open_log,
    read_all,
)
from tests.unit.broker.log_writer import SEGMENT_BYTES, content

REPOSITORY = Path(__file__).parents[3]


def writer(root: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start the process that appends to the log under `root`."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.unit.broker.log_writer", str(root), *arguments],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        text=True,
    )


def check_written(log: PartitionLog, acknowledged: int) -> None:
    """All that was flushed is there, and nothing that was not written."""
    assert log.log_end_offset >= acknowledged
    assert read_all(log) == [content(offset) for offset in range(log.log_end_offset)]
    epochs = range((log.log_end_offset + 49) // 50)
    assert log.epochs.entries() == [(epoch, 50 * epoch) for epoch in epochs]


@pytest.mark.parametrize("acknowledgements", [1, 7, 40, 150])
def test_kill_9_loses_nothing_that_was_flushed(tmp_path: Path, acknowledgements: int) -> None:
    process = writer(tmp_path)
    assert process.stdout is not None
    acknowledged = [int(process.stdout.readline()) for _ in range(acknowledgements)]
    process.kill()
    acknowledged += map(int, process.stdout.read().split("\n")[:-1])
    process.stdout.close()
    process.wait()
    log = open_log(tmp_path, segment_bytes=SEGMENT_BYTES)
    check_written(log, acknowledged[-1])
    assert log.durable_end_offset == log.log_end_offset


@pytest.mark.parametrize("limit", [1, 700, 5_000, 15_001])
def test_a_file_that_may_not_grow_is_as_it_was_before_the_append(
    tmp_path: Path, limit: int
) -> None:
    process = writer(tmp_path, str(limit))
    output, _ = process.communicate(timeout=60)
    word, end = output.splitlines()[-1].split()
    assert (process.returncode, word) == (0, "full")
    log = open_log(tmp_path, clean=True, segment_bytes=SEGMENT_BYTES)
    assert log.log_end_offset == int(end)
    check_written(log, int(end))
    assert log.size_bytes <= limit


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of 256 KiB."""
    root = tmp_path / "disk"
    root.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(root)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("mounting needs root; the limit on the file size covers the same path")
    yield root
    subprocess.run(["umount", "-l", str(root)], check=True)


def test_a_full_disk_is_a_definite_error_and_passes_when_there_is_room(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * 100_000)
    log = open_log(small_disk)
    big = b"x" * 30_000
    with pytest.raises(DiskFull):  # noqa: PT012 - the length of the run is the file system's
        while True:
            log.append(batch(log.log_end_offset, big, epoch=log.log_end_offset))
    end = log.log_end_offset
    assert end > 1
    assert (log.directory / f"{0:020d}.log").stat().st_size == log.size_bytes, "nothing is left"
    assert [len(b) for b in read_all(log)] == [len(batch(0, big))] * end
    ballast.unlink()
    assert log.append(batch(end, big, epoch=end)) == end + 1
    assert log.flush() == end + 1
    log.discard()
    assert open_log(small_disk).log_end_offset == end + 1


def test_an_epoch_that_cannot_be_remembered_is_a_definite_error(small_disk: Path) -> None:
    directory = LogDirectory(small_disk, cluster_id="c", broker_id=1)
    directory.persist_controller_epoch(7)
    ballast = small_disk / "ballast"
    with pytest.raises(OSError, match="No space"):
        ballast.write_bytes(b"x" * 1_000_000)
    with pytest.raises(DiskFull):
        directory.persist_controller_epoch(8)
    assert directory.controller_epoch == 7
    ballast.unlink()
    directory.persist_controller_epoch(8)
    directory.release()
    again = LogDirectory(small_disk, cluster_id="c", broker_id=1)
    assert again.controller_epoch == 8
    again.release()


def test_no_partition_is_half_created_on_a_full_disk(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    with pytest.raises(OSError, match="No space"):
        ballast.write_bytes(b"x" * 1_000_000)
    log = open_log(small_disk)
    with pytest.raises(DiskFull):
        log.append(batch(0))
    ballast.unlink()
    assert log.append(batch(0)) == 1
    log.flush()
    log.discard()
    assert open_log(small_disk).log_end_offset == 1


def fill_disk(patched: pytest.MonkeyPatch, directory: Path) -> None:
    """Leave no space in a log's directory but that of the files that have left the log."""
    real = FileCache.create

    def create(files: FileCache, file: LogFile) -> None:
        if list(directory.glob("*.deleted")) or not list(directory.glob("room")):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(files, file)

    patched.setattr(FileCache, "create", create)


def test_a_new_log_that_begins_later_waits_for_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended the broker, although a full disk is to keep a new replica from its records only."""
    log = open_log(tmp_path)
    with monkeypatch.context() as full:
        fill_disk(full, log.directory)
        with pytest.raises(DiskFull):
            log.reset_to(20, ProducerStates())
    assert (log.failed, log.log_end_offset) == (False, 0)
    log.reset_to(20, ProducerStates())
    log.append(batch(20))
    assert log.flush() == 21
    log.discard()
    assert open_log(tmp_path).log_start_offset == 20


def test_a_log_that_begins_again_has_the_room_of_its_former_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk of a follower was full until its leader no longer had what comes next."""
    log = open_log(tmp_path)
    log.append(batch(0))
    log.flush()
    (log.directory / "room").touch()
    with monkeypatch.context() as full:
        fill_disk(full, log.directory)
        log.reset_to(20, ProducerStates())
    assert (log.failed, log.durable_end_offset) == (False, 20)
    log.discard()


@pytest.mark.parametrize("shortage", [errno.ENOSPC, errno.EDQUOT, errno.EMFILE])
def test_defect_37_a_log_that_has_lost_its_records_can_begin_again_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shortage: int
) -> None:
    """It is not empty as that of a new replica, and the next start finds that it was lost."""
    log = open_log(tmp_path)
    log.append(batch(0))
    log.flush()

    def create(*_: object) -> None:
        raise OSError(shortage, os.strerror(shortage))

    with monkeypatch.context() as full:
        full.setattr(FileCache, "create", create)
        for _ in range(2):
            with pytest.raises(StorageFailed):
                log.reset_to(20, ProducerStates())
            assert (log.failed, log.lacks_records) == (False, True)
            assert (log.log_start_offset, log.log_end_offset, log.epochs.latest) == (0, 0, -1)
    left = open_log(tmp_path)
    assert not left.recovery.has_segments
    left.discard()

    log.append(batch(0, b"of a leader that has all"))
    assert log.lacks_records, "it has less than it had"
    log.reset_to(20, ProducerStates())
    assert not log.lacks_records
    log.append(batch(20))
    assert log.flush() == 21
    log.close()
    assert read_all(open_log(tmp_path, clean=True)) == [batch(20)]


def test_what_leaves_a_log_on_a_disk_without_room_for_its_longer_name_is_removed_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retention would never free any space there."""
    log = open_log(tmp_path, segment_bytes=100)
    for number in range(3):
        log.append(batch(number, b"x" * 100))
        log.flush()
    real = Path.rename

    def rename(path: Path, target: Path) -> Path:
        if target.suffix == ".deleted":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(path, target)

    with monkeypatch.context() as full:
        full.setattr(Path, "rename", rename)
        while log.apply_retention(0, -1, 0, 3):
            pass
    removal = log.removal()
    assert removal is not None
    removal()
    assert [path.stem for path in log.directory.glob("*.log")] == [f"{2:020}"]
    log.close()
    assert read_all(open_log(tmp_path, clean=True)) == [batch(2, b"x" * 100)]


def test_a_small_file_that_a_full_disk_refuses_takes_no_space(small_disk: Path) -> None:
    with pytest.raises(OSError, match="No space"):
        write_checked(small_disk / "large", "large", b"x" * 1_000_000)
    assert list(small_disk.iterdir()) == []


def test_a_flush_without_room_for_the_epochs_can_be_tried_again(small_disk: Path) -> None:
    log = open_log(small_disk)
    log.append(batch(0, epoch=3))
    ballast = small_disk / "ballast"
    with pytest.raises(OSError, match="No space"):
        ballast.write_bytes(b"x" * 1_000_000)
    with pytest.raises(DiskFull):
        log.flush()
    assert (log.failed, log.durable_end_offset) == (False, 0)
    ballast.unlink()
    assert log.flush() == 1
    assert (log.directory / "leader-epoch-checkpoint").read_bytes().endswith(b"3 0\n")


@pytest.mark.parametrize("call", ["fdatasync", "fsync"])
def test_a_failed_fsync_fails_the_log_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    log = open_log(tmp_path)
    log.append(batch(0))
    with monkeypatch.context() as broken:
        broken.setattr(os, call, _refuse)
        with pytest.raises(LogFailed):
            log.flush()
    assert (log.failed, log.durable_end_offset) == (True, 0)
    for use in (log.flush, lambda: log.append(batch(1)), lambda: log.truncate_to(0), log.close):
        with pytest.raises(LogFailed):
            use()
    assert open_log(tmp_path).durable_end_offset == 1


def test_an_append_during_a_flush_counts_for_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The durable end is what was captured before the fsync began (R4)."""
    log = open_log(tmp_path)
    log.append(batch(0))
    syncing, go_on = threading.Event(), threading.Event()
    real = os.fdatasync

    def slow(fd: int) -> None:
        syncing.set()
        assert go_on.wait(30)
        real(fd)

    monkeypatch.setattr(os, "fdatasync", slow)
    flushed: list[int] = []
    worker = threading.Thread(target=lambda: flushed.append(log.flush()))
    worker.start()
    assert syncing.wait(30)
    assert log.append(batch(1)) == 2
    assert log.durable_end_offset == 0
    go_on.set()
    worker.join(30)
    assert (flushed, log.durable_end_offset) == ([1], 1)
    assert log.flush() == 2


def _refuse(_fd: int) -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def two_segments(root: Path) -> PartitionLog:
    log = open_log(root, segment_bytes=100)
    for number in range(2):
        log.append(batch(number, b"x" * 50))
    log.flush()
    return log


def test_what_cannot_be_deleted_stays_until_the_next_retention(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An OSError would end the broker's maintenance, and so the broker."""
    log = two_segments(tmp_path)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(Path, "unlink", refuse)
        with pytest.raises(StorageFailed, match="Input/output error"):
            log.apply_retention(0, -1, 0, limit_offset=2)
    assert read_all(log) == [batch(number, b"x" * 50) for number in range(2)]

    assert log.apply_retention(0, -1, 0, limit_offset=2) > 0
    assert log.log_start_offset == 1


def test_an_index_that_cannot_be_read_is_rebuilt(tmp_path: Path) -> None:
    log = two_segments(tmp_path)
    log.close()
    index = log.directory / "00000000000000000000.index"
    index.unlink()
    index.mkdir()
    again = open_log(tmp_path, clean=True, segment_bytes=100)
    assert read_all(again) == [batch(number, b"x" * 50) for number in range(2)]


def test_an_index_whose_rebuilding_failed_is_rebuilt_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lookup by time passed over the whole segment, because its latest time was not known."""
    log = two_segments(tmp_path)
    log.close()
    log.directory.joinpath("00000000000000000000.index").unlink()
    again = open_log(tmp_path, clean=True, segment_bytes=100)

    def refuse(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as broken:
        broken.setattr(FileCache, "pin", refuse)
        with pytest.raises(StorageFailed, match="Too many open files"):
            again.batch_for_timestamp(0, 0)

    assert again.batch_for_timestamp(0, 0) == batch(0, b"x" * 50)


@pytest.mark.parametrize("broken", ["iterdir", "stat"])
def test_strays_that_cannot_be_listed_are_purged_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    """Maintenance tries again after a StorageFailed; any other error ends the broker."""
    directory = LogDirectory(tmp_path, cluster_id="c", broker_id=1)
    stray = tmp_path / "orders-0.0-stray"
    stray.mkdir()

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as now:
        now.setattr(Path, broken, refuse)
        with pytest.raises(StorageFailed, match="Too many open files"):
            directory.strays.purge(1 << 60, 0)

    assert directory.strays.purge(1 << 60, 0) == [stray.name]
    directory.release()


@pytest.mark.parametrize("segments", [1, 2])
def test_a_flush_without_a_descriptor_can_be_tried_again(tmp_path: Path, segments: int) -> None:
    """It ended the broker, and all brokers at once if they had too few for their partitions."""
    log = open_log(tmp_path, segment_bytes=100)
    for number in range(segments):
        log.flush()
        log.append(batch(number, b"x" * 50))
    with no_descriptors(), pytest.raises(StorageFailed, match="Too many open files"):
        log.flush()
    assert (log.failed, log.durable_end_offset) == (False, segments - 1)
    assert log.flush() == segments
    log.discard()
    assert open_log(tmp_path, segment_bytes=100).log_end_offset == segments


def test_a_log_that_was_half_created_without_descriptors_is_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its directory stayed without metadata, and the first flush of its records failed for ever."""
    log = open_log(tmp_path)
    real = Path.mkdir

    def take_all_others(path: Path, *arguments: Any, **options: Any) -> None:
        real(path, *arguments, **options)
        without.enter_context(no_descriptors())

    with ExitStack() as without, monkeypatch.context() as patched:
        patched.setattr(Path, "mkdir", take_all_others)
        with pytest.raises(StorageFailed, match="Too many open files"):
            log.append(batch(0))
    assert log.directory.exists(), "void: it could be removed"
    assert log.append(batch(0)) == 1
    assert log.flush() == 1
    log.discard()
    assert open_log(tmp_path).log_end_offset == 1


@pytest.mark.parametrize("is_full", [False, True])
def test_a_log_that_has_lost_its_metadata_is_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_full: bool
) -> None:
    """Its next segment emptied the file of its epochs, or on a full disk removed all its files."""
    log = open_log(tmp_path, segment_bytes=100)
    log.append(batch(0, b"x" * 50, epoch=3))
    log.flush()
    (log.directory / METADATA_FILE).unlink()
    with monkeypatch.context() as full:
        if is_full:
            fill_disk(full, log.directory)
        with pytest.raises(DiskFull) if is_full else nullcontext():
            log.append(batch(1, b"x" * 50, epoch=3))
    log.flush()
    end = log.log_end_offset
    log.discard()
    assert end == (1 if is_full else 2)
    assert read_epochs(log.directory) == [(3, 0)]


def test_pinned_files_leave_descriptors_for_their_flushes(tmp_path: Path) -> None:
    """They took all, so that no flush could open a directory, and no file was ever closed."""
    files = FileCache(16, descriptors=16)
    logs = [
        PartitionLog(tmp_path, PartitionIdentity("t", "id", number), LogConfig(), files)
        for number in range(7)
    ]
    for log in logs[:6]:
        log.append(batch(0))
    with pytest.raises(StorageFailed, match="Too many open files"):
        logs[6].append(batch(0))
    assert logs[6].log_end_offset == 0
    logs[0].flush()
    logs[6].append(batch(0))
    assert logs[6].flush() == 1
    files.resize(1_000)
    for log in logs:
        log.flush()
    assert files.open_count == 4, "a quarter"


def test_an_append_that_is_noted_in_part_fails_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next batch got the same offset, and recovery cut the log there: all after it was lost."""
    log = open_log(tmp_path)
    log.append(batch(0))
    log.flush()
    real, noted = Segment.note, []

    def no_memory_for_the_second(segment: Segment, *arguments: Any) -> None:
        noted.append(arguments)
        if len(noted) == 2:
            raise MemoryError
        real(segment, *arguments)

    with monkeypatch.context() as full:
        full.setattr(Segment, "note", no_memory_for_the_second)
        with pytest.raises(MemoryError):
            log.append(batch(1) + batch(2))
    assert log.failed
    with pytest.raises(LogFailed, match="an append broke off"):
        log.append(batch(1))
    with pytest.raises(LogFailed, match="an append broke off"):
        log.flush()
    log.discard()
    again = open_log(tmp_path)
    assert read_all(again) == [batch(number) for number in range(3)]
    again.append(batch(3))
    assert again.flush() == 4


@pytest.mark.parametrize("is_new", [True, False])
def test_defect_45_a_log_fails_whose_files_were_removed(tmp_path: Path, *, is_new: bool) -> None:
    """It refused all appends, but its broker went on to lead."""
    files = FileCache()
    log = PartitionLog(tmp_path, IDENTITY, LogConfig(), files)
    log.append(batch(0))
    log.flush()
    if is_new:  # The next segment begins.
        log.roll_at(1)
        shutil.rmtree(log.directory)
    else:
        files.resize(0)
        log.directory.joinpath("00000000000000000000.log").unlink()
    with pytest.raises(LogFailed, match="orders-3 failed: No such file"):
        log.append(batch(1))
    assert log.failed
    log.discard()


@pytest.mark.parametrize("is_begun", [True, False])
def test_defect_45_nothing_is_durable_in_a_file_that_was_removed(
    tmp_path: Path, *, is_begun: bool
) -> None:
    """The process has it open, and all that it acknowledged was gone after its end."""
    fsyncs = LateFsyncs()
    log = open_log(tmp_path, fsyncs=fsyncs)
    log.append(batch(0))
    log.flush()
    log.append(batch(1))
    log.directory.joinpath("00000000000000000000.log").unlink()
    if is_begun:
        outcomes = list[StorageFailed | None]()
        assert log.begin_flush(outcomes.append)
        fsyncs.started[0].wait()
        assert isinstance(outcomes[0], LogFailed)
    else:
        with pytest.raises(LogFailed, match="orders-3 failed: its file was removed"):
            log.flush()
    assert log.failed
    assert log.durable_end_offset == 1
    log.discard()


def test_a_file_that_leaves_its_log_before_a_flush_is_not_missed(tmp_path: Path) -> None:
    """As one that was repaired just before."""
    log = two_segments(tmp_path)
    segment = log._state.segments[0]
    log._durability.overwrite(segment.file, batch(0, b"x" * 50), 0)
    assert log.apply_retention(0, -1, 0, log.log_end_offset)
    removal = log.removal()
    assert removal is not None
    removal()
    assert log.flush() == 2
    log.close()
