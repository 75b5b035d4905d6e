"""Appending, reading, cutting and retaining a partition's log."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from leadline_broker.adapters.log.errors import CorruptStoredBatch, LogClosed, NotContiguous
from leadline_broker.adapters.log.partition_log import PartitionLog
from leadline_broker.adapters.log.segment import Segment
from leadline_broker.domain.producers import ProducerStates
from leadline_client.batch_header import parse_headers
from leadline_client.errors import CorruptBatch, OffsetOutOfRange
from tests.unit.broker.log_support import batch, first_at, open_log, read_all


def test_nothing_is_on_disk_before_the_first_append(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    assert (log.log_start_offset, log.log_end_offset, log.flush()) == (0, 0, 0)
    assert log.read(0, 100, 0) == b""
    assert first_at(log, 0) is None
    log.close()
    assert list(tmp_path.iterdir()) == []


def test_append_counts_as_durable_only_after_flush(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    assert log.append(batch(0, b"a", b"b") + batch(2, b"c")) == 3
    assert log.durable_end_offset == 0
    assert log.flush() == 3 == log.durable_end_offset


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (batch(3), NotContiguous),
        (batch(1), NotContiguous),
        (batch(2, epoch=4) + batch(4, epoch=4), NotContiguous),
        (batch(2, epoch=4) + batch(3, epoch=3), NotContiguous),
        (batch(2, epoch=1), NotContiguous),
        (batch(2, epoch=2)[:-1], CorruptBatch),
        (batch(2, epoch=2)[:-1] + b"!", CorruptBatch),
        (b"", CorruptBatch),
    ],
    ids=["gap", "overlap", "gap inside", "epoch back inside", "epoch back", "cut", "crc", "empty"],
)
def test_what_does_not_continue_the_log_changes_nothing(
    tmp_path: Path, wrong: bytes, error: type[Exception]
) -> None:
    log = open_log(tmp_path)
    log.append(batch(0, b"a", b"b", epoch=2))
    with pytest.raises(error):
        log.append(wrong)
    assert log.log_end_offset == 2
    assert read_all(log) == [batch(0, b"a", b"b", epoch=2)]
    assert log.append(batch(2, epoch=2)) == 3


def test_epochs_follow_the_appends(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append(batch(0, epoch=1) + batch(1, epoch=1) + batch(2, epoch=5))
    assert log.epochs.entries() == [(1, 0), (5, 2)]


def test_read_gives_whole_batches_within_the_limits(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    batches = [batch(2 * number, b"x" * 50, b"y" * 50) for number in range(30)]
    for content in batches:
        log.append(content)
    size = len(batches[0])
    assert log.read(7, 1, 60) == batches[3], "at least one batch"
    assert log.read(6, 3 * size, 60) == b"".join(batches[3:6])
    assert log.read(6, 4 * size - 1, 60) == b"".join(batches[3:6])
    assert log.read(6, 1 << 20, 12) == b"".join(batches[3:6]), "never past the end offset"
    assert log.read(6, 1 << 20, 7) == b""
    assert log.read(60, 1 << 20, 60) == b""
    assert log.read(0, 1 << 20, 999) == b"".join(batches)


def test_the_latest_batches_are_read_without_those_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each follower reads what was just appended: to look for it in the file took longer."""
    log = open_log(tmp_path)
    contents = [batch(number, b"x" * number) for number in range(40)]
    for content in contents:
        log.append(content)
    sizes: list[int] = []
    pread = os.pread

    def counted(fd: int, size: int, position: int) -> bytes:
        sizes.append(size)
        return pread(fd, size, position)

    monkeypatch.setattr(os, "pread", counted)
    assert log.read(39, 1 << 20, 40) == contents[39]
    assert log.read(38, 1 << 20, 40) == b"".join(contents[38:])
    assert log.read(38, 1 << 20, 39) == contents[38]
    assert sum(sizes) == len(b"".join(contents[38:])) * 2


@pytest.mark.parametrize("reopened", [False, True])
def test_what_was_appended_after_a_cut_is_read_in_its_place(tmp_path: Path, reopened: bool) -> None:
    log = open_log(tmp_path)
    for number in range(8):
        log.append(batch(number, b"a" * 70))
    log.truncate_to(6)
    if reopened:
        log.discard()
        log = open_log(tmp_path)
    assert log.read(5, 1, 6) == batch(5, b"a" * 70)
    contents = [batch(number, b"b" * number, epoch=1) for number in (6, 7, 8)]
    for content in contents:
        log.append(content)
    for number in (6, 7, 8):
        assert log.read(number, 1 << 20, 9) == b"".join(contents[number - 6 :])


@pytest.mark.parametrize("offset", [-1, 0, 3, 8])
def test_reading_outside_the_log_is_out_of_range(tmp_path: Path, offset: int) -> None:
    log = open_log(tmp_path)
    log.reset_to(4, ProducerStates())
    log.append(batch(4, b"a", b"b", b"c"))
    with pytest.raises(OffsetOutOfRange):
        log.read(offset, 100, 100)


def test_many_segments_read_as_one_log(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=1000)
    batches = [batch(number, bytes([number]) * 90) for number in range(50)]
    for content in batches:
        log.append(content)
    assert len(list(log.directory.glob("*.log"))) > 5
    assert read_all(log) == batches
    assert log.size_bytes == sum(map(len, batches))
    log.close()
    for clean in (True, False):
        again = open_log(tmp_path, clean=clean, segment_bytes=1000)
        assert read_all(again) == batches
        again.discard()


def test_a_roll_waits_for_no_fsync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk may take seconds, and the owner of the log has others to serve."""
    log = open_log(tmp_path, segment_bytes=300)
    synced: list[int] = []
    monkeypatch.setattr(os, "fdatasync", synced.append)
    monkeypatch.setattr(os, "fsync", synced.append)
    log.append(batch(0, b"x" * 100))
    log.append(batch(1, b"x" * 100))
    assert (log.durable_end_offset, synced) == (0, [])
    assert read_all(log) == [batch(0, b"x" * 100), batch(1, b"x" * 100)]


def test_a_segment_is_durable_before_the_next_one_has_its_name(tmp_path: Path) -> None:
    """Recovery cuts only the last segment, so the others must be safe (R4)."""
    log = open_log(tmp_path, segment_bytes=300)
    for offset in range(3):
        log.append(batch(offset, b"x" * 100))
    assert log.durable_end_offset == 2, "the third segment begins when the first is durable"
    assert segments_of(log) == [f"{0:020}.log", f"{1:020}.log", f"{2:020}.next"]
    log.flush()
    assert segments_of(log) == [f"{0:020}.log", f"{1:020}.log", f"{2:020}.log"]
    assert read_all(log) == [batch(offset, b"x" * 100) for offset in range(3)]


def test_the_segment_before_a_provisional_one_stays(tmp_path: Path) -> None:
    """A provisional segment alone counts as nothing when the log is opened again."""
    log = open_log(tmp_path, segment_bytes=300)
    log.append(batch(0, b"x" * 100))
    log.append(batch(1, b"x" * 100))
    assert log.apply_retention(0, -1, 0, limit_offset=2) == 0
    log.flush()
    assert log.apply_retention(0, -1, 0, limit_offset=2) > 0
    assert log.log_start_offset == 1


@pytest.mark.parametrize("offset", [0, 1, 2])
def test_cutting_around_a_provisional_segment(tmp_path: Path, offset: int) -> None:
    log = open_log(tmp_path, segment_bytes=300)
    batches = [batch(number, b"x" * 100) for number in range(2)]
    for one in batches:
        log.append(one)
    log.truncate_to(offset)
    more = [batch(offset + number, b"y" * 100, epoch=1) for number in range(3)]
    for one in more:
        log.append(one)
    log.close()
    assert read_all(open_log(tmp_path, clean=True)) == batches[:offset] + more


def segments_of(log: PartitionLog) -> list[str]:
    files = (path for path in log.directory.iterdir() if path.suffix in {".log", ".next"})
    return sorted(path.name for path in files)


def test_timestamps_find_the_first_record_at_or_after(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=700)
    for number in range(0, 40, 2):
        log.append(batch(number, b"a" * 60, b"b" * 60, timestamp=1000 + 10 * number))
    assert first_at(log, 0) == (0, 1000)
    assert first_at(log, 1001) == (1, 1001)
    assert first_at(log, 1002) == (2, 1020)
    assert first_at(log, 1381) == (39, 1381)
    assert first_at(log, 1382) is None


@pytest.mark.parametrize("clean", [True, False])
def test_what_lookups_by_time_need_is_read_a_few_segments_at_a_time(
    tmp_path: Path, clean: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log of 64 GB has a thousand, whose indexes are not kept."""
    log = open_log(tmp_path, segment_bytes=100)
    for number in range(41):
        log.append(batch(number, b"x" * 50, timestamp=number * 1000))
    log.close()
    again = open_log(tmp_path, segment_bytes=100, clean=clean)
    assert [again.learn_timestamps() for _ in range(4)] == [True, True, False, False]
    read: list[int] = []
    load = Segment.load_index

    def noted(segment: Segment) -> None:
        read.append(segment.base_offset)
        load(segment)

    monkeypatch.setattr(Segment, "load_index", noted)
    assert first_at(again, 7_000) == (7, 7_000)
    assert read == [7]


def test_a_lookup_by_time_passes_over_the_batches_before_an_offset(tmp_path: Path) -> None:
    """So that one whose header promises what its records do not have is searched once."""
    log = open_log(tmp_path)
    for number in range(4):
        log.append(batch(number, b"x", timestamp=1_000))
    found = [log.batch_for_timestamp(1_000, offset) for offset in range(5)]
    assert [next(parse_headers(data)).base_offset for data in found[:4]] == [0, 1, 2, 3]
    assert found[4] == b""


def test_cutting_removes_later_records_epochs_and_producers(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=400)
    for number in range(20):
        producer = (7, 0, number)
        log.append(batch(number, b"x" * 40, epoch=number // 5, producer=producer))
    kept = read_all(log)[:8]
    assert log.truncate_to(8) == 8 == log.durable_end_offset
    assert log.epochs.entries() == [(0, 0), (1, 5)]
    state = log.producers.get(7)
    assert state is not None
    assert [entry.base_offset for entry in state.batches] == [3, 4, 5, 6, 7]
    assert read_all(log) == kept
    log.append(batch(8, b"other", epoch=9, producer=(7, 0, 8)))
    log.discard()
    again = open_log(tmp_path, segment_bytes=400)
    assert read_all(again) == [*kept, batch(8, b"other", epoch=9, producer=(7, 0, 8))]
    assert again.epochs.entries() == [(0, 0), (1, 5), (9, 8)]


def test_cutting_inside_a_batch_keeps_the_batches_before_it(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append(batch(0, b"a", b"b") + batch(2, b"c", b"d"))
    assert log.truncate_to(3) == 2
    assert log.truncate_to(1) == 0
    assert log.truncate_to(5) == 0
    assert log.epochs.entries() == []


def test_cutting_before_the_start_leaves_an_empty_log_there(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.reset_to(50, ProducerStates())
    log.append(batch(50))
    assert log.truncate_to(20) == 20
    assert (log.log_start_offset, log.log_end_offset) == (20, 20)
    log.discard()
    assert open_log(tmp_path).log_start_offset == 20


def test_reset_restarts_at_an_offset(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=200)
    for number in range(5):
        log.append(batch(number, b"x" * 60, epoch=3, producer=(1, 0, number)))
    log.reset_to(1000, ProducerStates())
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (1000, 1000, 0)
    assert (log.epochs.entries(), len(log.producers)) == ([], 0)
    log.append(batch(1000, epoch=1))
    log.close()
    again = open_log(tmp_path, clean=True)
    assert read_all(again) == [batch(1000, epoch=1)]
    assert again.epochs.entries() == [(1, 1000)]


def test_retention_by_time_keeps_what_is_not_committed(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=100)
    for number in range(6):
        log.append(batch(number, b"x" * 50, epoch=number, timestamp=number * 1000))
    log.flush()
    assert log.apply_retention(10_000, 7_500, -1, limit_offset=2) > 0
    assert log.log_start_offset == 2
    assert log.apply_retention(10_000, 7_500, -1, limit_offset=6) > 0
    assert log.log_start_offset == 3
    assert log.epochs.entries() == [(3, 3), (4, 4), (5, 5)]
    assert log.apply_retention(99_000, 1, -1, limit_offset=6) > 0
    assert log.log_start_offset == 5, "the active segment stays"
    assert read_all(log) == [batch(5, b"x" * 50, epoch=5, timestamp=5000)]
    log.close()
    assert open_log(tmp_path, clean=True).log_start_offset == 5


@pytest.mark.parametrize("reopen", ["no", "clean", "crash"])
def test_a_log_emptied_by_retention_takes_the_next_epoch(tmp_path: Path, reopen: str) -> None:
    """The epoch of removed batches must not claim the offset where the next one begins."""
    log = open_log(tmp_path, segment_bytes=100)
    log.append(batch(0, b"x" * 50, epoch=1))
    log.append(batch(1, b"x" * 50, epoch=1))
    log.truncate_to(1)
    log.apply_retention(0, -1, 0, limit_offset=1)
    assert (log.log_start_offset, log.log_end_offset, log.epochs.entries()) == (1, 1, [])
    if reopen != "no":
        log.close() if reopen == "clean" else log.discard()
        log = open_log(tmp_path, clean=reopen == "clean")
    assert log.append(batch(1, b"y", epoch=2)) == 2
    assert log.epochs.entries() == [(2, 1)]


def test_retention_by_size_keeps_at_least_that_much(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=100)
    for number in range(6):
        log.append(batch(number, b"x" * 50))
    size = len(batch(0, b"x" * 50))
    log.apply_retention(0, -1, 2 * size + 1, limit_offset=6)
    assert log.log_start_offset == 3
    log.apply_retention(0, -1, -1, limit_offset=6)
    assert log.log_start_offset == 3


def test_a_closed_log_refuses_further_use(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append(batch(0))
    log.close()
    log.close()
    for call in (lambda: log.append(batch(1)), log.flush, lambda: log.read(0, 1, 1)):
        with pytest.raises(LogClosed):
            call()


def test_every_flipped_byte_of_a_closed_segment_is_refused(tmp_path: Path) -> None:
    """No batch is served that differs from what was appended (I16, S20)."""
    log = open_log(tmp_path, segment_bytes=300)
    for number in range(9):
        log.append(batch(number, b"x" * 40, epoch=number // 2))
    before = read_all(log)
    closed = sorted(log.directory.glob("*.log"))[1]
    base = int(closed.stem)
    last = len(list(parse_headers(closed.read_bytes()))) + base
    log.close()
    good = closed.read_bytes()
    for at in range(len(good)):
        closed.write_bytes(good[:at] + bytes([good[at] ^ 0x10]) + good[at + 1 :])
        damaged = open_log(tmp_path, clean=True, segment_bytes=300)
        with pytest.raises(CorruptStoredBatch):
            damaged.read(base, 1 << 20, last)
        assert damaged.read(last, 1, 9) == before[last]
        damaged.discard()


def test_damage_to_a_closed_segment_is_seen_while_the_log_is_open(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=300)
    for number in range(9):
        log.append(batch(number, b"x" * 40))
    closed = sorted(log.directory.glob("*.log"))[1]
    content = closed.read_bytes()
    closed.write_bytes(content[:-1] + b"y")
    with pytest.raises(CorruptStoredBatch):
        log.read(int(closed.stem), 1 << 20, 9)


def test_a_closed_segment_without_its_last_batch_is_refused(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=300)
    for number in range(9):
        log.append(batch(number, b"x" * 40))
    log.close()
    closed = sorted(log.directory.glob("*.log"))[1]
    closed.write_bytes(closed.read_bytes()[: -len(batch(0, b"x" * 40))])
    damaged = open_log(tmp_path, clean=True, segment_bytes=300)
    with pytest.raises(CorruptStoredBatch):
        damaged.read(int(closed.stem), 1 << 20, 9)


def test_an_index_follows_a_cut_inside_a_segment(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for number in range(40):
        log.append(batch(number, b"x" * 40))
    log.truncate_to(11)
    for number in range(11, 40):
        log.append(batch(number, b"y" * (number % 7) * 30, epoch=1))
    for number in range(11, 40):
        expected = batch(number, b"y" * (number % 7) * 30, epoch=1)
        assert log.read(number, 1, 40) == expected


def test_a_damaged_closed_segment_is_repaired_by_cutting_and_copying(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=300)
    for number in range(9):
        log.append(batch(number, b"x" * 40))
    content = read_all(log)
    closed = sorted(log.directory.glob("*.log"))[1]
    base = int(closed.stem)
    log.close()
    closed.write_bytes(b"\xff" * closed.stat().st_size)
    damaged = open_log(tmp_path, segment_bytes=300)
    assert damaged.truncate_to(base + 1) == base
    for repaired in content[base:]:
        damaged.append(repaired)
    assert read_all(damaged) == content


def test_a_changed_segment_size_holds_from_the_next_append(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=10_000)
    log.append(batch(0, b"x" * 100))
    log.append(batch(1, b"x" * 100))
    log.roll_at(200)
    log.append(batch(2, b"x" * 100))
    log.flush()
    names = segments_of(log)
    assert names == ["00000000000000000000.log", "00000000000000000002.log"]


@pytest.mark.parametrize("cut", [1, 100])
def test_a_truncated_log_knows_the_producers_of_what_is_left(tmp_path: Path, cut: int) -> None:
    """The table takes a few batches back; for more, the log is read again."""
    log = open_log(tmp_path)
    for number in range(150):
        log.append(batch(number, b"v", producer=(7, 0, number)))

    log.truncate_to(150 - cut)

    state = log.producers.get(7)
    assert state is not None
    assert state.expected_sequence == 150 - cut
