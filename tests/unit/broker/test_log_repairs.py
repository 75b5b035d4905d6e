"""Damaged batches in a log, and copies that replace them."""

from __future__ import annotations

import errno
import os
from itertools import pairwise
from pathlib import Path
from shutil import copytree
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline_broker.adapters.log.errors import CorruptStoredBatch
from leadline_broker.adapters.log.layout import EPOCH_FILE, UNSYNCED_EPOCH_FILE
from leadline_broker.adapters.log.partition_log import PartitionLog
from leadline_broker.domain.producers import ProducerStates
from leadline_client.batch_header import HEADER_BYTES
from leadline_client.errors import DamagedBatch, StorageFailed
from tests.unit.broker.log_support import batch, open_log, read_all

BATCHES = 60
SEGMENT_BYTES = 2_000
COPIED_BYTES = 700


def make_log(root: Path, *, clean: bool = False) -> PartitionLog:
    """Return a log of several segments that was closed and opened again."""
    root.mkdir()
    log = open_log(root, segment_bytes=SEGMENT_BYTES)
    for number in range(BATCHES):
        value = bytes([number]) * (number % 7 * 30)
        log.append(batch(number, value, epoch=number // 20, timestamp=1_000 + number))
    log.close()
    return open_log(root, segment_bytes=SEGMENT_BYTES, clean=clean)


def segments(log: PartitionLog) -> list[Path]:
    return sorted(log.directory.glob("*.log"))


def contents(log: PartitionLog) -> list[bytes]:
    return [path.read_bytes() for path in segments(log)]


def first_damaged(log: PartitionLog, offset: int = 0) -> int | None:
    """Return the offset of the first damaged batch."""
    is_damaged = False
    while offset < log.log_end_offset and not is_damaged:
        offset, is_damaged = log.batches.check(offset)
    return offset if is_damaged else None


def repair(log: PartitionLog, source: PartitionLog) -> int:
    """Repair all damage by copies of another log; return how many batches were replaced."""
    replaced, offset = 0, first_damaged(log)
    while offset is not None:
        now = log.batches.repair(source.read(offset, COPIED_BYTES, source.log_end_offset))
        assert now, f"nothing was replaced at {offset}"
        replaced += now
        before, offset = offset, first_damaged(log)
        assert offset is None or offset > before, f"{offset} was not repaired"
    return replaced


def scrubbed(log: PartitionLog) -> list[int]:
    """Scrub all closed segments; return the offset of the first damage in each that has any."""
    found = list[int]()
    for segment in log.batches.closed():
        try:
            while not segment.has_ended:
                assert segment.check_part() > 0
        except DamagedBatch:
            found.append(segment.offset)
    return found


def overwrite(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


@given(
    st.booleans(),
    st.lists(st.tuples(st.integers(0, 10), st.floats(0, 1), st.binary(min_size=1, max_size=900))),
)
def test_any_damage_of_closed_segments_is_repaired(
    clean: bool, damages: list[tuple[int, float, bytes]]
) -> None:
    with TemporaryDirectory() as directory:
        log = make_log(Path(directory) / "a", clean=clean)
        copytree(Path(directory) / "a", Path(directory) / "b")
        source = open_log(Path(directory) / "b", segment_bytes=SEGMENT_BYTES)
        whole = contents(log)
        closed = segments(log)[:-1]
        for which, where, data in damages:
            path = closed[which % len(closed)]
            position = int(where * (path.stat().st_size - 1))
            overwrite(path, position, data[: path.stat().st_size - position])
        changed = contents(log) != whole

        found = scrubbed(log)
        assert first_damaged(log) == (found[0] if found else None)
        assert bool(found) == changed
        assert (repair(log, source) > 0) == changed
        assert contents(log) == whole
        assert scrubbed(log) == []
        assert read_all(log) == read_all(source)
        source.discard()
        log.close()


@given(
    st.booleans(),
    st.dictionaries(st.integers(1, 5), st.one_of(st.none(), st.floats(0, 1)), min_size=1),
)
def test_what_closed_segments_have_lost_is_repaired(
    with_indexes: bool, losses: dict[int, float | None]
) -> None:
    """A short file gets its end again, and what a file held that is gone is behind the one before.

    What came back is checked when it is read, like all the rest.
    """
    with TemporaryDirectory() as directory:
        log = make_log(Path(directory) / "a")
        copytree(Path(directory) / "a", Path(directory) / "b")
        source = open_log(Path(directory) / "b", segment_bytes=SEGMENT_BYTES)
        log.discard()
        closed = segments(log)[:-1]
        for which, kept in losses.items():
            path = closed[which % (len(closed) - 1) + 1]
            if kept is None:
                path.unlink(missing_ok=True)
            elif path.exists():
                os.truncate(path, int(path.stat().st_size * kept))
            if not with_indexes:
                path.with_suffix(".index").unlink(missing_ok=True)
        log = open_log(Path(directory) / "a", segment_bytes=SEGMENT_BYTES)
        is_less = log.size_bytes < source.size_bytes

        assert bool(scrubbed(log)) == is_less
        assert (repair(log, source) > 0) == is_less
        assert b"".join(contents(log)) == b"".join(contents(source))
        assert read_all(log) == read_all(source)
        for offset in range(BATCHES):
            found = log.batch_for_timestamp(1_000 + offset, 0)
            assert found == source.batch_for_timestamp(1_000 + offset, 0)
        assert scrubbed(log) == []
        for path, following in pairwise(segments(log)):
            overwrite(path, path.stat().st_size - 1, b"\xff")
            last = int(following.stem) - 1
            with pytest.raises(DamagedBatch):
                log.read(last, 1, log.log_end_offset)
        source.discard()
        log.close()


def test_what_was_repaired_is_read_by_time_again(tmp_path: Path) -> None:
    """The index that was rebuilt beside the damage ends at it, so later times were passed over."""
    log, source = make_log(tmp_path / "a"), make_log(tmp_path / "b")
    path = segments(log)[1]
    path.with_suffix(".index").unlink()
    second = int(path.stem) + 1
    position = len(source.read(second - 1, 1, source.log_end_offset))
    overwrite(path, position, bytes(HEADER_BYTES))
    log.discard()
    log = open_log(tmp_path / "a", segment_bytes=SEGMENT_BYTES)
    with pytest.raises(DamagedBatch) as met:
        log.batch_for_timestamp(1_000 + second, 0)
    assert met.value.offset == second - 1, "the begin of the segment"

    assert log.batches.repair(source.read(second, 1, source.log_end_offset)) == 1
    first_of_third = int(segments(log)[2].stem)
    too_old_ms = (
        1_000 + first_of_third - 1
    )  # All of the first two segments, but for the last batch.
    log.apply_retention(now_ms=too_old_ms, retention_ms=0, retention_bytes=-1, limit_offset=BATCHES)
    assert log.log_start_offset == second - 1, "the last batch of the second segment is kept"
    for offset in range(second, BATCHES):
        found = log.batch_for_timestamp(1_000 + offset, 0)
        assert found == source.batch_for_timestamp(1_000 + offset, 0) != b""
    log.close()


@pytest.mark.parametrize("size", [10, 3_000, 300_000])
def test_a_scrub_reads_each_closed_segment_in_parts(tmp_path: Path, size: int) -> None:
    log = open_log(tmp_path, segment_bytes=700_000)
    while not log.batches.closed():
        log.append(batch(log.log_end_offset, bytes(size)))
    (segment,) = log.batches.closed()
    path, parts, before = segments(log)[0], list[int](), -1
    while not segment.has_ended:
        assert segment.offset > before
        before = segment.offset
        parts.append(segment.check_part())
    assert sum(parts) == path.stat().st_size
    assert len(parts) > 1, "others have the interpreter in between"
    log.close()


def test_a_scrub_reads_from_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that is in memory says nothing about its sector."""
    log = make_log(tmp_path / "a")
    steps, read, advise = list[str](), os.pread, os.posix_fadvise

    def pread(fd: int, size: int, position: int) -> bytes:
        steps.append("read")
        return read(fd, size, position)

    def posix_fadvise(fd: int, position: int, size: int, advice: int) -> None:
        assert (position, size, advice) == (0, 0, os.POSIX_FADV_DONTNEED), "the whole file"
        steps.append("drop")
        advise(fd, position, size, advice)

    segment = log.batches.closed()[0]
    monkeypatch.setattr(os, "pread", pread)
    monkeypatch.setattr(os, "posix_fadvise", posix_fadvise)
    segment.check_part()
    assert steps[:2] == ["drop", "read"]
    log.close()


def test_a_scrub_of_a_deleted_segment_finds_no_damage(tmp_path: Path) -> None:
    log = make_log(tmp_path / "a")
    segment = log.batches.closed()[0]
    log.reset_to(BATCHES, ProducerStates())
    with pytest.raises(StorageFailed) as refusal:
        segment.check_part()
    assert not isinstance(refusal.value, DamagedBatch)
    log.close()


def test_a_segment_with_unknown_timestamps_is_as_old_as_its_last_change(tmp_path: Path) -> None:
    """An index that was rebuilt beside damage lacks the latest timestamps, which are behind it."""
    log = make_log(tmp_path / "a")
    first, second, *_ = segments(log)
    first.with_suffix(".index").unlink()
    changed_ms = 1_000_000
    overwrite(first, HEADER_BYTES, b"\xff" * 100)
    os.utime(first, (changed_ms / 1_000, changed_ms / 1_000))
    log.discard()
    log = open_log(tmp_path / "a", segment_bytes=SEGMENT_BYTES)

    for now_ms in (10_000, changed_ms):
        assert not log.apply_retention(now_ms, 0, -1, BATCHES)
    assert log.apply_retention(changed_ms + 1, 0, -1, BATCHES)
    assert log.log_start_offset >= int(second.stem)
    log.close()


def test_what_is_left_of_a_truncated_segment_is_not_damaged(tmp_path: Path) -> None:
    """It counted as damaged even when it was empty, and lookups by time failed for good."""
    log = make_log(tmp_path / "a")
    *_, last_but_one, _ = segments(log)
    first = int(last_but_one.stem)
    last_but_one.with_suffix(".index").unlink()
    overwrite(last_but_one, 0, b"\xff" * HEADER_BYTES)
    log.discard()
    log = open_log(tmp_path / "a", segment_bytes=SEGMENT_BYTES)

    assert log.truncate_to(first + 1) == first
    assert log.batch_for_timestamp(1_000_000, 0) == b""
    log.append(batch(first, b"x", epoch=3))
    assert log.batch_for_timestamp(1_000_000, 0) == b""
    log.close()


@pytest.mark.parametrize("with_index", [True, False])
def test_a_sector_that_cannot_be_read_is_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, with_index: bool
) -> None:
    log, source = make_log(tmp_path / "a"), make_log(tmp_path / "b")
    if not with_index:
        segments(log)[1].with_suffix(".index").unlink()
        log.discard()
        log = open_log(tmp_path / "a", segment_bytes=SEGMENT_BYTES)
    bad, pread, pwrite = segments(log)[1], os.pread, os.pwrite
    lost = {range(512, 1_024)}
    failure = OSError(errno.EIO, os.strerror(errno.EIO))

    def touched(fd: int, size: int, position: int) -> set[range]:
        if Path(f"/proc/self/fd/{fd}").readlink() != bad:
            return set()
        return {one for one in lost if position < one.stop and position + size > one.start}

    def reads(fd: int, size: int, position: int) -> bytes:
        if touched(fd, size, position):
            raise failure
        return pread(fd, size, position)

    def writes(fd: int, data: bytes, position: int) -> int:
        for one in touched(fd, len(data), position):
            if one.start < position or one.stop > position + len(data):
                raise failure  # The rest of the page would have to be read before.
            lost.remove(one)
        return pwrite(fd, data, position)

    monkeypatch.setattr(os, "pread", reads)
    monkeypatch.setattr(os, "pwrite", writes)
    last = int(segments(log)[2].stem) - 1
    with pytest.raises(CorruptStoredBatch, match="Input/output error"):
        log.read(int(bad.stem), SEGMENT_BYTES, log.log_end_offset)
    assert not log.apply_retention(0, 0, -1, log.log_end_offset), "it is as young as its file"
    damaged = first_damaged(log)
    assert damaged is not None
    assert scrubbed(log) == [damaged]
    assert int(bad.stem) < damaged < last
    assert log.batches.repair(source.read(damaged, SEGMENT_BYTES, source.log_end_offset)) > 1
    assert not lost
    assert first_damaged(log) is None
    assert contents(log) == contents(source)
    log.close()


def test_a_check_of_many_small_batches_has_several_turns(tmp_path: Path) -> None:
    log, turns, offset = open_log(tmp_path), 0, 0
    for number in range(2_000):
        log.append(batch(number))
    while offset < log.log_end_offset:
        before = offset
        offset, is_damaged = log.batches.check(offset)
        turns += 1
        assert before < offset <= before + 500
        assert not is_damaged
    assert turns >= 4
    log.close()


def test_copies_that_do_not_fit_change_nothing(tmp_path: Path) -> None:
    log, source = make_log(tmp_path / "a"), make_log(tmp_path / "b")
    path = segments(log)[1]
    first = int(path.stem)
    overwrite(path, HEADER_BYTES - 20, b"x")
    damaged = contents(log)
    copies = bytearray(source.read(first, 1, source.log_end_offset))

    assert log.batches.repair(source.read(first + 1, 1, source.log_end_offset)) == 0, "it is sound"
    assert log.batches.repair(batch(first, b"longer" * 1_000, epoch=0)) == 0
    with pytest.raises(CorruptStoredBatch, match="epoch"):
        log.batches.repair(batch(first, epoch=7))
    copies[-1] ^= 1
    with pytest.raises(CorruptStoredBatch, match="CRC"):
        log.batches.repair(bytes(copies))
    assert contents(log) == damaged
    log.close()


def test_a_repair_is_durable_after_the_next_flush(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, source = make_log(tmp_path / "a"), make_log(tmp_path / "b")
    path = segments(log)[0]
    overwrite(path, HEADER_BYTES, b"\xff\xff")
    assert repair(log, source) == 1
    synced, real = list[Path](), os.fdatasync

    def fdatasync(fd: int) -> None:
        synced.append(Path(f"/proc/self/fd/{fd}").readlink())
        real(fd)

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    log.flush()
    assert synced == [path]
    log.close()


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("suffix", [".snapshot", EPOCH_FILE, UNSYNCED_EPOCH_FILE, ".index"])
def test_a_derived_file_that_cannot_be_read_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str, *, clean: bool
) -> None:
    """The whole log was not opened, although its batches have what the file is derived from."""
    log = make_log(tmp_path / "a")
    before, epochs = read_all(log), log.epochs.entries()
    log.close()
    real, refused = Path.read_bytes, list[Path]()

    def read_bytes(path: Path) -> bytes:
        if path.name.endswith(suffix):
            refused.append(path)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(path)

    with monkeypatch.context() as failing:
        failing.setattr(Path, "read_bytes", read_bytes)
        log = open_log(tmp_path / "a", segment_bytes=SEGMENT_BYTES, clean=clean)
        assert (read_all(log), log.epochs.entries()) == (before, epochs)
    assert refused
    log.close()


@pytest.mark.parametrize("lost", ["*.snapshot", "*.index"])
def test_a_log_with_a_sector_that_cannot_be_read_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    """It is to be repaired, also where a power cut has taken what is derived from its batches."""
    log, source = make_log(tmp_path / "a"), make_log(tmp_path / "b")
    log.close()
    for path in log.directory.glob(lost):
        path.unlink()
    bad, pread = segments(log)[1], os.pread

    def reads(fd: int, size: int, position: int) -> bytes:
        is_bad = Path(f"/proc/self/fd/{fd}").readlink() == bad
        if is_bad and position < 1_024 and position + size > 512:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return pread(fd, size, position)

    with monkeypatch.context() as failing:
        failing.setattr(os, "pread", reads)
        log = open_log(tmp_path / "a", segment_bytes=SEGMENT_BYTES)
        damaged = first_damaged(log)
        assert damaged is not None
        assert damaged >= int(bad.stem)
        copies = source.read(damaged, SEGMENT_BYTES, source.log_end_offset)
        assert log.batches.repair(copies)
    assert (log.log_end_offset, log.epochs.latest) == (BATCHES, source.epochs.latest)
    log.discard()
