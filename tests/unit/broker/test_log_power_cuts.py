"""What a power cut leaves of a log, on a disk that forgets what was not synced (S16; R4)."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from leadline_broker.adapters.log.checked_files import fsync_path
from leadline_broker.adapters.log.directory import LogDirectory
from leadline_broker.adapters.log.layout import read_identity
from tests.runtime_simulation.disk import Disk
from tests.runtime_simulation.event_loop import SimulatedLoop
from tests.runtime_simulation.system_calls import SimulatedSystem
from tests.unit.broker.log_support import IDENTITY, LateFsyncs, batch, open_log, read_all


class Forgetful(Random):
    """Chance, such that nothing survives that was not synced."""

    def random(self) -> float:
        return 0.9


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """A disk that has a broker's log directory."""
    disk = Disk(tmp_path / "disk", Forgetful(0))
    loop = SimulatedLoop()
    with SimulatedSystem(loop, Forgetful(0), [disk]).in_force():
        yield disk
    loop.close()


def test_what_was_flushed_survives_and_what_was_not_does_not(disk: Disk) -> None:
    log = open_log(disk.root)
    log.append(batch(0, b"flushed"))
    log.flush()
    log.append(batch(1, b"not flushed"))

    disk.cut_power()

    assert read_all(open_log(disk.root)) == [batch(0, b"flushed")]


def test_defect_27_a_log_that_a_killed_process_had_just_created_survives_recovered(
    disk: Disk,
) -> None:
    """The process ended before its first fsync; only the next one acknowledges anything."""
    open_log(disk.root).append(batch(0, b"before the kill"))
    recovered = open_log(disk.root)
    recovered.append(batch(1, b"after it"))
    recovered.flush()

    disk.cut_power()

    assert read_all(open_log(disk.root)) == [batch(0, b"before the kill"), batch(1, b"after it")]
    assert read_identity(recovered.directory) == IDENTITY


def test_what_a_recovered_log_calls_durable_survives(disk: Disk) -> None:
    """It was only in the page cache when the process was killed, and is counted from now on."""
    open_log(disk.root).append(batch(0, b"before the kill"))
    recovered = open_log(disk.root)
    assert recovered.durable_end_offset == 1

    disk.cut_power()

    assert read_all(open_log(disk.root)) == [batch(0, b"before the kill")]


def test_a_log_that_was_never_flushed_leaves_nothing(disk: Disk) -> None:
    """The first fsync of another log made the entry of its directory durable."""
    topic_id = "11111111-0000-0000-0000-000000000000"
    directory = LogDirectory(disk.root, cluster_id="c", broker_id=1)
    directory.open("t", topic_id, 0).append(batch(0, b"not flushed"))
    other = directory.open("t", topic_id, 1)
    other.append(batch(0, b"flushed"))
    other.flush()
    directory.release()

    disk.cut_power()

    assert (disk.root / "t-0").is_dir()
    again = LogDirectory(disk.root, cluster_id="c", broker_id=1)
    assert [read_all(log) for log in again.load_all()] == [[batch(0, b"flushed")]]
    assert (again.strays.found(), again.lost) == ({}, [])
    again.release()


def test_a_flush_covers_the_segment_that_was_left_and_the_one_that_was_begun(disk: Disk) -> None:
    log = open_log(disk.root, segment_bytes=300)
    batches = [batch(0), batch(1), batch(2, b"x" * 300)]
    for one in batches:
        log.append(one)
    assert log.flush() == 3

    disk.cut_power()

    assert read_all(open_log(disk.root, segment_bytes=300)) == batches


def test_a_segment_after_one_that_a_power_cut_has_shortened_is_dropped(disk: Disk) -> None:
    """Its file is on the disk, because another process had the directory's entries written."""
    log = open_log(disk.root, segment_bytes=300)
    log.append(batch(0, b"flushed"))
    log.flush()
    log.append(batch(1, b"not flushed"))
    log.append(batch(2, b"x" * 300))
    disk.synced(str(log.directory))

    disk.cut_power()

    assert list(log.directory.glob("*.next"))
    again = open_log(disk.root, segment_bytes=300)
    assert read_all(again) == [batch(0, b"flushed")]
    assert not list(log.directory.glob("*.next"))


def test_a_segment_that_nothing_durable_precedes_is_no_log(disk: Disk) -> None:
    log = open_log(disk.root, segment_bytes=300)
    log.append(batch(0, b"x" * 300))
    log.append(batch(1, b"x" * 300))
    first = log.directory / f"{0:020}.log"
    log.discard()
    first.unlink()  # A file system may write the entries of a directory in any order.

    again = open_log(disk.root, segment_bytes=300)

    assert (again.log_start_offset, again.log_end_offset) == (0, 0)
    assert not list(log.directory.glob("*.next"))


def test_what_a_removed_file_held_is_not_found_in_a_new_one(disk: Disk) -> None:
    """The file system gives a new file the number of the old one; this is about the disk itself."""
    for content in (b"old", b"new"):
        path = disk.root / "file"
        path.unlink(missing_ok=True)
        path.write_bytes(content)
        fsync_path(disk.root)
        if content == b"old":
            fsync_path(path)

    disk.cut_power()

    assert (disk.root / "file").read_bytes() == b""


class PowerCuts(RuleBasedStateMachine):
    """Invariant: `batches` are in the log, and after a power cut those that were durable."""

    @initialize(seed=st.integers(0, 1 << 16))
    def begin(self, seed: int) -> None:
        self.stack = ExitStack()
        root = Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        self.disk = Disk(root / "disk", Random(seed))
        loop = SimulatedLoop()
        self.stack.callback(loop.close)
        self.stack.enter_context(SimulatedSystem(loop, Random(seed), [self.disk]).in_force())
        self.fsyncs = LateFsyncs()
        self.batches: list[bytes] = []
        self.epoch = 0
        self.open()

    def open(self, *, clean: bool = False) -> None:
        self.log = open_log(self.disk.root, clean=clean, segment_bytes=700, fsyncs=self.fsyncs)

    @rule(length=st.sampled_from([0, 200, 700]), new_epoch=st.booleans())
    def append(self, length: int, new_epoch: bool) -> None:
        self.epoch += new_epoch
        self.batches.append(batch(len(self.batches), b"x" * length, epoch=self.epoch))
        self.log.append(self.batches[-1])

    @rule()
    def flush(self) -> None:
        self.log.flush()

    @rule()
    def begin_flush(self) -> None:
        self.log.begin_flush(lambda _: None)

    @rule()
    def end_flushes(self) -> None:
        for one in self.fsyncs.started:
            one.wait()

    @precondition(lambda self: self.log.directory.exists())
    @rule()
    def write_the_entries_of_the_directory(self) -> None:
        """The file system does that when it likes."""
        self.disk.synced(str(self.log.directory))

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(0, len(self.batches)))
        del self.batches[offset:]
        self.log.truncate_to(offset)

    @rule()
    def kill(self) -> None:
        self.end_flushes()
        self.log.discard()
        self.open()

    @rule()
    def stop_cleanly(self) -> None:
        self.log.close()
        self.open(clean=True)

    @rule()
    def cut_power(self) -> None:
        durable = self.log.durable_end_offset
        self.end_without_effect()
        self.disk.cut_power()
        self.log.discard()
        self.open()
        left = read_all(self.log)
        assert len(left) >= durable
        assert left == self.batches[: len(left)]
        self.batches = left

    def end_without_effect(self) -> None:
        """End the fsyncs that run; nothing is on the disk that they were to write."""
        for one in self.fsyncs.started:
            if not one.ended:
                one.end(None)

    @invariant()
    def holds_the_batches(self) -> None:
        assert read_all(self.log) == self.batches

    def teardown(self) -> None:
        self.log.discard()
        self.stack.close()


TestPowerCuts = PowerCuts.TestCase
TestPowerCuts.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
