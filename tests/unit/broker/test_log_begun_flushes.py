"""Flushes that run by themselves: what they make durable, and who waits for them (R4)."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from leadline_broker.adapters.log import durability
from leadline_broker.adapters.log.durability import Durability
from leadline_broker.adapters.log.errors import LogFailed
from leadline_broker.adapters.log.partition_log import PartitionLog
from leadline_broker.domain.producers import ProducerStates
from leadline_client.errors import StorageFailed
from tests.unit.broker.log_support import LateFsyncs, batch, no_descriptors, open_log, read_all

SMALL_SEGMENT = 1_000
DEADLINE_S = 30
SOON_S = 0.2
"""How long a test lets another thread go on, which may have to wait."""


class Flushed:
    """A log with two records, of which the second one's flush was begun and has not ended."""

    def __init__(self, root: Path) -> None:
        self.fsyncs = LateFsyncs()
        self.log = open_log(root, segment_bytes=SMALL_SEGMENT, fsyncs=self.fsyncs)
        self.outcomes: list[StorageFailed | None] = []
        self.log.append(batch(0))
        assert not self.begin(), "the directory is new"
        self.log.flush()
        self.log.append(batch(1))
        assert self.begin()
        (self.fsync,) = self.fsyncs.started

    def begin(self) -> bool:
        return self.log.begin_flush(self.outcomes.append)


@pytest.fixture
def flushed(tmp_path: Path) -> Flushed:
    return Flushed(tmp_path)


def test_what_was_appended_before_it_began_is_durable_when_it_has_ended(flushed: Flushed) -> None:
    flushed.log.append(batch(2))
    assert (flushed.outcomes, flushed.log.durable_end_offset) == ([], 1)
    flushed.fsync.wait()
    assert (flushed.outcomes, flushed.log.durable_end_offset) == ([None], 2)
    assert flushed.begin()
    flushed.fsyncs.started[-1].wait()
    assert flushed.log.durable_end_offset == 3


def test_only_one_runs_at_a_time(flushed: Flushed) -> None:
    flushed.log.append(batch(2))
    assert not flushed.begin()
    assert flushed.log.flush() == 3
    assert flushed.fsync.ended
    assert flushed.log.durable_end_offset == 3


def fill_one_segment(log: PartitionLog) -> None:
    """Append to the first segment, and begin the second one."""
    log.append(batch(2))
    log.append(batch(3, b"x" * (SMALL_SEGMENT - 200)))


def fill_two_segments(log: PartitionLog) -> None:
    for offset in (2, 3):
        log.append(batch(offset, b"x" * SMALL_SEGMENT))


@pytest.mark.parametrize(
    "use",
    [
        lambda log: log.truncate_to(1),
        lambda log: log.reset_to(7, ProducerStates()),
        fill_two_segments,
        lambda log: log.close(),
        lambda log: log.discard(),
    ],
    ids=["truncate", "reset", "second roll", "close", "discard"],
)
def test_what_removes_or_replaces_files_waits_for_it(
    flushed: Flushed, use: Callable[[PartitionLog], object]
) -> None:
    use(flushed.log)
    assert (flushed.fsync.ended, flushed.outcomes) == (True, [None])


def test_a_segment_begins_while_it_runs(flushed: Flushed) -> None:
    """What is unsynced of both segments is left to a thread then, which waits for its end."""
    fill_one_segment(flushed.log)
    assert not flushed.fsync.ended
    flushed.fsync.wait()
    assert flushed.log.durable_end_offset == 2
    assert not flushed.begin(), "a new segment has to get its name"
    assert flushed.log.flush() == 4
    flushed.log.append(batch(4))
    assert flushed.begin()


def test_what_a_failed_flush_left_of_two_segments_is_flushed_by_the_next_one(
    flushed: Flushed, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed.fsync.wait()
    fill_one_segment(flushed.log)
    synced: list[int] = []

    def break_off(fd: int) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(os, "fdatasync", break_off)
        with pytest.raises(KeyboardInterrupt):
            flushed.log.flush()
    flushed.log.append(batch(4))
    monkeypatch.setattr(os, "fdatasync", synced.append)
    assert flushed.log.flush() == 5
    assert len(synced) == 2, "the old segment, then the new one"
    flushed.log.truncate_to(0)
    flushed.log.close()
    assert flushed.log._files.open_count == len(flushed.log._files._idle), "nothing is pinned"


def flush_while_a_segment_begins(log: PartitionLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin a segment, and flush before it has a batch, as another thread may."""
    changed = Durability.entries_changed

    def and_flush(durability: Durability, *, new_directory: bool) -> None:
        changed(durability, new_directory=new_directory)
        durability.flush()

    with monkeypatch.context() as interrupted:
        interrupted.setattr(Durability, "entries_changed", and_flush)
        fill_one_segment(log)


def test_a_flush_while_a_segment_begins_leaves_its_name_to_the_next_one(
    flushed: Flushed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clean start drops what has a provisional name."""
    flushed.fsync.wait()
    flush_while_a_segment_begins(flushed.log, monkeypatch)
    assert not flushed.begin()
    assert flushed.log.flush() == 4
    assert not list(flushed.log.directory.glob("*.next"))


def test_a_new_name_is_made_durable_once_there_is_a_descriptor(
    flushed: Flushed, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed.fsync.wait()
    flush_while_a_segment_begins(flushed.log, monkeypatch)
    with monkeypatch.context() as used_up:
        # The snapshot got the last descriptor, and there is none for the directory.
        used_up.setattr(durability, "sync_snapshot", lambda _: None)
        with no_descriptors(), pytest.raises(StorageFailed, match="Too many open files"):
            flushed.log.flush()
    assert not list(flushed.log.directory.glob("*.next")), "void: it has no new name"
    synced: list[Path] = []
    monkeypatch.setattr(durability, "fsync_path", synced.append)
    assert flushed.log.flush() == 4
    assert synced == [flushed.log.directory]


def test_a_segment_keeps_its_provisional_name_if_the_fsync_of_the_one_before_it_fails(
    flushed: Flushed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed.fsync.wait()
    fill_one_segment(flushed.log)

    def refuse(_: int) -> None:
        raise OSError(errno.EIO, "broken")

    with monkeypatch.context() as broken:
        broken.setattr(os, "fdatasync", refuse)
        with pytest.raises(LogFailed):
            flushed.log.flush()
    assert list(flushed.log.directory.glob("*.next"))
    flushed.log.discard()
    assert len(read_all(open_log(tmp_path))) == 4


def test_nothing_behind_a_truncation_counts_as_durable(flushed: Flushed) -> None:
    flushed.log.truncate_to(1)
    flushed.log.append(batch(1, epoch=0))
    flushed.log.append(batch(2, epoch=0))
    assert (flushed.log.durable_end_offset, flushed.log.log_end_offset) == (1, 3)


def test_a_failure_is_final(flushed: Flushed, tmp_path: Path) -> None:
    flushed.fsync.end(OSError(errno.EIO, "broken"))
    (failure,) = flushed.outcomes
    assert isinstance(failure, LogFailed)
    assert (flushed.log.failed, flushed.log.durable_end_offset) == (True, 1)
    assert not flushed.begin()
    with pytest.raises(LogFailed):
        flushed.log.flush()
    flushed.log.discard()
    assert len(read_all(open_log(tmp_path))) == 2


def test_a_file_that_cannot_be_closed_fails_the_log(
    flushed: Flushed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> None:
        raise OSError(errno.EIO, "broken")

    with monkeypatch.context() as broken:
        broken.setattr(flushed.log._files, "unpin", refuse)
        flushed.fsync.wait()
    (failure,) = flushed.outcomes
    assert isinstance(failure, LogFailed)
    assert flushed.log.failed


class Meanwhile:
    """Replaces a step at the end of a flush: another flush is begun in a thread before it."""

    def __init__(self, log: PartitionLog, step: Callable[..., Any]) -> None:
        self._log, self._step = log, step
        self._thread = ThreadPoolExecutor(1)
        self._flushing: Future[int] | None = None

    def __call__(self, *args: object) -> object:
        """Give the other flush the time to end, and do the step."""
        if self._flushing is None:
            self._flushing = self._thread.submit(self._log.flush)
            wait([self._flushing], timeout=SOON_S)
        return self._step(*args)

    def outcome(self) -> int:
        """Return the durable end that the other flush has returned, or raise its error."""
        assert self._flushing is not None
        with self._thread:
            return self._flushing.result(DEADLINE_S)


def test_a_flush_that_follows_at_once_does_not_lose_what_it_made_durable(
    flushed: Flushed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The durable end went back to that of the first flush."""
    flushed.log.append(batch(2))
    files = flushed.log._files
    meanwhile = Meanwhile(flushed.log, files.unpin)
    monkeypatch.setattr(files, "unpin", meanwhile)
    flushed.fsync.wait()
    assert meanwhile.outcome() == 3 == flushed.log.durable_end_offset


def test_a_flush_that_follows_a_failed_one_at_once_does_not_retry_it(
    flushed: Flushed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel may have dropped the pages: another fsync would succeed (R4)."""
    meanwhile = Meanwhile(flushed.log, partial(Durability.fail, flushed.log._durability))
    monkeypatch.setattr(Durability, "fail", lambda _, error: meanwhile(error))
    flushed.fsync.end(OSError(errno.EIO, "broken"))
    with pytest.raises(LogFailed):
        meanwhile.outcome()
    assert flushed.log.durable_end_offset == 1


def test_a_kernel_that_refuses_leaves_the_flush_to_a_thread(flushed: Flushed) -> None:
    flushed.fsync.wait()
    flushed.log.append(batch(2))
    flushed.fsyncs.refuses = True
    assert not flushed.begin()
    assert flushed.log.flush() == 3 == flushed.log.durable_end_offset


def test_what_could_not_be_begun_is_flushed_later(
    flushed: Flushed, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed.fsync.wait()
    flushed.log.append(batch(2))
    synced: list[int] = []

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "the loop can watch no more descriptors")

    monkeypatch.setattr(flushed.fsyncs, "start", refuse)
    monkeypatch.setattr(os, "fdatasync", synced.append)
    with pytest.raises(OSError, match="no more"):
        flushed.begin()
    assert flushed.log.flush() == 3
    assert len(synced) == 1


def test_a_flush_that_breaks_off_leaves_its_file_to_the_next_one(
    flushed: Flushed, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed.fsync.wait()
    flushed.log.append(batch(2))
    synced: list[int] = []

    def break_off(_: int) -> None:
        raise MemoryError

    monkeypatch.setattr(os, "fdatasync", break_off)
    with pytest.raises(MemoryError):
        flushed.log.flush()
    monkeypatch.setattr(os, "fdatasync", synced.append)
    assert flushed.log.flush() == 3
    assert len(synced) == 1


def test_a_thread_that_waits_for_it_keeps_nobody_from_ending_it(flushed: Flushed) -> None:
    """The loop that learns of its end may itself be waiting, to truncate."""
    ended = threading.Event()
    real_wait = flushed.fsync.wait
    loop = threading.get_ident()
    asked = threading.Event()

    def wait() -> None:
        if threading.get_ident() == loop:
            real_wait()
            ended.set()
        else:
            asked.set()
            assert ended.wait(DEADLINE_S)

    flushed.fsync.wait = wait  # type: ignore[method-assign]  # as the kernel's, which knows threads
    thread = threading.Thread(target=flushed.log.flush)
    thread.start()
    assert asked.wait(DEADLINE_S)
    assert flushed.log.truncate_to(1) == 1
    thread.join(DEADLINE_S)
    assert not thread.is_alive()


def test_no_descriptor_stays_pinned(tmp_path: Path) -> None:
    log = Flushed(tmp_path).log
    files = log._files
    assert files.open_count == 1
    log.close()
    assert files.open_count == 0
