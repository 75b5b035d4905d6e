"""What opening a log makes of what a crash left (S3, S19, S20, I16)."""

from __future__ import annotations

import os
from itertools import product
from pathlib import Path

import pytest

from leadline_broker.adapters.log.epoch_file import write_epochs
from leadline_broker.adapters.log.partition_log import PartitionLog
from tests.unit.broker.log_support import batch, first_at, open_log, read_all

BATCHES = [batch(n, b"x" * 20, epoch=n // 2, producer=(9, 0, n)) for n in range(5)]
KEPT = BATCHES[:-1]


@pytest.fixture
def crashed(tmp_path: Path) -> Path:
    """Return the active segment of a log that was killed after five batches."""
    log = open_log(tmp_path)
    for content in BATCHES:
        log.append(content)
    log.flush()
    log.discard()
    return log.directory / f"{0:020d}.log"


def reopened(tmp_path: Path) -> PartitionLog:
    """Open after a crash and check that a second opening finds nothing more to do."""
    first = open_log(tmp_path)
    content, epochs, end = read_all(first), first.epochs.entries(), first.log_end_offset
    producers = first.producers.rows()
    first.discard()
    second = open_log(tmp_path)
    assert (second.recovery.cut_bytes, second.recovery.reason) == (0, "")
    assert (read_all(second), second.epochs.entries()) == (content, epochs)
    assert (second.log_end_offset, second.durable_end_offset) == (end, end)
    assert second.producers.rows() == producers
    second.discard()
    return first


def test_a_torn_last_batch_is_cut_at_every_byte(tmp_path: Path, crashed: Path) -> None:
    whole = crashed.read_bytes()
    end_of_kept = len(b"".join(KEPT))
    for length in range(end_of_kept, len(whole)):
        crashed.write_bytes(whole[:length])
        log = open_log(tmp_path)
        assert read_all(log) == KEPT
        assert log.recovery.cut_bytes == length - end_of_kept
        assert bool(log.recovery.reason) == (length > end_of_kept)
        assert log.epochs.entries() == [(0, 0), (1, 2)]
        log.discard()
        assert crashed.stat().st_size == end_of_kept
    reopened(tmp_path)


def test_every_flipped_byte_in_the_tail_cuts_the_last_batch(tmp_path: Path, crashed: Path) -> None:
    whole = crashed.read_bytes()
    end_of_kept = len(b"".join(KEPT))
    # The leader epoch lies outside the CRC; the next test flips its bits.
    unprotected = range(end_of_kept + 12, end_of_kept + 16)
    for at in sorted(set(range(end_of_kept, len(whole))) - set(unprotected)):
        crashed.write_bytes(flipped(whole, at, 7))
        log = open_log(tmp_path)
        assert read_all(log) == KEPT, at
        assert log.recovery.cut_offset == 4
        log.discard()


def flipped(content: bytes, at: int, bit: int) -> bytes:
    return content[:at] + bytes([content[at] ^ (1 << bit)]) + content[at + 1 :]


@pytest.mark.parametrize("number", range(5))
def test_defect_08_a_flipped_bit_in_an_epoch_is_never_believed(
    tmp_path: Path, crashed: Path, number: int
) -> None:
    """It makes the epoch higher, lower or negative."""
    whole = crashed.read_bytes()
    start = len(b"".join(BATCHES[:number]))
    recorded = [(0, 0), (1, 2), (2, 4)]
    for at, bit in product(range(start + 12, start + 16), range(8)):
        crashed.write_bytes(flipped(whole, at, bit))
        write_epochs(crashed.parent, recorded)
        log = open_log(tmp_path)
        assert read_all(log) == BATCHES[:number], (at, bit)
        assert log.recovery.cut_offset == number
        assert "not recorded" in log.recovery.reason or "after epoch" in log.recovery.reason
        assert log.append(batch(number, epoch=97)) == number + 1
        log.discard()


def test_defect_08_what_a_killed_process_appended_in_a_new_epoch_stays(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append(batch(0, epoch=1))
    log.flush()
    log.append(batch(1, epoch=4) + batch(2, epoch=6))
    log.discard()

    again = reopened(tmp_path)

    assert (again.log_end_offset, again.recovery.reason) == (3, "")
    assert again.epochs.entries() == [(1, 0), (4, 1), (6, 2)]


@pytest.mark.parametrize("damage", ["missing", "empty", "older"])
def test_defect_08_an_epoch_that_a_power_cut_left_unrecorded_is_cut(
    tmp_path: Path, damage: str
) -> None:
    log = open_log(tmp_path)
    log.append(batch(0, epoch=1))
    log.flush()
    unsynced = log.directory / "leader-epoch-unsynced"
    older = unsynced.read_bytes()
    log.append(batch(1, epoch=4))
    log.discard()
    if damage == "missing":
        unsynced.unlink()
    else:
        unsynced.write_bytes(older if damage == "older" else b"")

    again = reopened(tmp_path)

    assert again.recovery.cut_offset == 1
    assert again.recovery.reason == "epoch 4, which is not recorded for offset 1"


def test_defect_08_an_outdated_record_of_unsynced_epochs_cuts_nothing(tmp_path: Path) -> None:
    """A follower truncates an epoch that its leader lacks, and goes on in the one before."""
    log = open_log(tmp_path)
    log.append(batch(0, epoch=1) + batch(1, epoch=4))
    log.truncate_to(1)
    log.append(batch(1, epoch=1) + batch(2, epoch=1))
    log.flush()
    log.discard()

    assert reopened(tmp_path).recovery.cut_bytes == 0


@pytest.mark.parametrize("garbage", [b"\0" * 500, b"\xff" * 61, b"x", BATCHES[2], batch(9)])
def test_garbage_after_the_last_batch_is_cut(tmp_path: Path, crashed: Path, garbage: bytes) -> None:
    crashed.write_bytes(crashed.read_bytes() + garbage)
    log = reopened(tmp_path)
    assert log.recovery.cut_bytes == len(garbage)
    assert log.recovery.cut_offset == 5
    assert log.recovery.reason


def crashed_after_a_roll(root: Path) -> PartitionLog:
    """Return a log whose process was killed before the second segment got its name."""
    log = open_log(root, segment_bytes=200)
    log.append(batch(0, b"x" * 100))
    log.append(batch(1, b"y" * 100))
    log.discard()
    return log


def test_what_is_cut_before_and_behind_a_provisional_segment_is_reported(tmp_path: Path) -> None:
    log = crashed_after_a_roll(tmp_path)
    for suffix, garbage in ((".log", b"12345"), (".next", b"123")):
        (path,) = log.directory.glob(f"*{suffix}")
        path.write_bytes(path.read_bytes() + garbage)

    again = open_log(tmp_path, segment_bytes=200)

    assert read_all(again) == [batch(0, b"x" * 100), batch(1, b"y" * 100)]
    assert (again.recovery.cut_bytes, again.recovery.cut_offset) == (8, 2)
    assert again.recovery.scanned_bytes == again.size_bytes + 8
    assert again.recovery.reason


def test_a_segment_that_does_not_follow_is_reported_as_cut(tmp_path: Path) -> None:
    log = crashed_after_a_roll(tmp_path)
    (path,) = log.directory.glob("*.log")
    os.truncate(path, 50)

    again = open_log(tmp_path, segment_bytes=200)

    assert (read_all(again), again.recovery.cut_offset) == ([], 0)
    assert again.recovery.cut_bytes == 50 + len(batch(1, b"y" * 100))


def test_the_log_goes_on_after_a_cut(tmp_path: Path, crashed: Path) -> None:
    crashed.write_bytes(crashed.read_bytes()[:-1])
    log = open_log(tmp_path)
    log.append(batch(4, b"instead", epoch=7))
    assert log.flush() == 5
    log.discard()
    assert read_all(reopen := open_log(tmp_path)) == [*KEPT, batch(4, b"instead", epoch=7)]
    assert reopen.epochs.entries() == [(0, 0), (1, 2), (7, 4)]


def test_a_clean_stop_needs_no_scan(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for content in BATCHES:
        log.append(content)
    log.close()
    again = open_log(tmp_path, clean=True)
    assert again.recovery.scanned_bytes == 0
    assert read_all(again) == BATCHES
    assert again.epochs.entries() == log.epochs.entries()
    assert again.producers.rows() == log.producers.rows()


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".snapshot", "leader-epoch-checkpoint"])
@pytest.mark.parametrize("damage", ["flip", "empty", "missing"])
@pytest.mark.parametrize("clean", [True, False])
def test_damaged_derived_files_are_rebuilt(
    tmp_path: Path, suffix: str, damage: str, clean: bool
) -> None:
    log = open_log(tmp_path, segment_bytes=300)
    batches = [batch(n, b"x" * 40, epoch=n // 3, producer=(n % 2, 0, n // 2)) for n in range(12)]
    for content in batches:
        log.append(content)
    expected = (log.epochs.entries(), log.producers.rows(), first_at(log, 1_000))
    log.close()
    damaged = [path for path in log.directory.iterdir() if path.name.endswith(suffix)]
    assert damaged
    for path in damaged:
        content = path.read_bytes()
        if damage == "missing":
            path.unlink()
        else:
            at = len(content) - 1
            path.write_bytes(content[:at] + bytes([content[at] ^ 1]) if damage == "flip" else b"")
    again = open_log(tmp_path, clean=clean, segment_bytes=300)
    assert read_all(again) == batches
    found = (again.epochs.entries(), again.producers.rows(), first_at(again, 1_000))
    assert found == expected


def test_an_old_index_does_not_hide_newer_batches(tmp_path: Path) -> None:
    """A stop in good order, more batches, then a kill: the index of the stop is stale."""
    log = open_log(tmp_path)
    log.append(BATCHES[0])
    log.close()
    log = open_log(tmp_path, clean=True)
    for content in BATCHES[1:]:
        log.append(content)
    log.discard()
    again = open_log(tmp_path)
    assert read_all(again) == BATCHES
    assert again.durable_end_offset == 5


def test_a_snapshot_of_batches_that_were_cut_is_forgotten(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for content in BATCHES:
        log.append(content)
    log.close()
    segment = log.directory / f"{0:020d}.log"
    segment.write_bytes(segment.read_bytes()[:-1])
    log = open_log(tmp_path)
    log.append(batch(4, epoch=2, producer=(8, 0, 0)))
    log.discard()
    again = open_log(tmp_path)
    assert again.producers.get(8) is not None
    known = again.producers.get(9)
    assert known is not None
    assert known.expected_sequence == 4


def test_a_snapshot_of_batches_that_were_truncated_is_forgotten(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=300)
    for number in range(8):
        log.append(batch(number, b"x" * 200, producer=(9, 0, number)))
    log.truncate_to(1)
    for number in range(1, 9):
        log.append(batch(number, epoch=1, producer=(8, 0, number - 1)))
    expected = log.producers.rows()
    log.discard()
    assert open_log(tmp_path, segment_bytes=300).producers.rows() == expected
