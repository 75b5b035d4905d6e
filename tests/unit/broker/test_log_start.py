"""A log that has lost its first segments does not pass for one that begins later."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from leadline_broker.adapters.log import retention
from leadline_broker.adapters.log.log_start import LOG_START_FILE
from leadline_broker.adapters.log.partition_log import PartitionLog
from leadline_broker.adapters.log.segment import Segment
from leadline_broker.domain.producers import ProducerStates
from leadline_client.errors import DamagedBatch
from tests.unit.broker.log_support import open_log, read_all
from tests.unit.broker.test_log_repairs import (
    BATCHES,
    SEGMENT_BYTES,
    first_damaged,
    make_log,
    repair,
    segments,
)


def opened(root: Path, *, clean: bool = False) -> tuple[PartitionLog, bool]:
    """Open a log again; return whether it says that its first segments are lost."""
    with capture_logs() as lines:
        log = open_log(root, segment_bytes=SEGMENT_BYTES, clean=clean)
    return log, "first segments lost" in [line["event"] for line in lines]


def retained(log: PartitionLog) -> int:
    """Let retention delete all closed segments but the last two; return the new log start."""
    size = sum(path.stat().st_size for path in segments(log)[-3:])
    while log.apply_retention(0, -1, size, log.log_end_offset):
        pass
    return log.log_start_offset


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("count", [1, 2, -1])
@pytest.mark.parametrize("is_retained", [False, True])
def test_defect_38_lost_first_segments_are_damaged_and_repaired(
    tmp_path: Path, count: int, *, clean: bool, is_retained: bool
) -> None:
    """The log began later, as if retention had deleted them, on a leader for all readers."""
    log, source = make_log(tmp_path / "a"), make_log(tmp_path / "b")
    start = retained(log) if is_retained else 0
    expected = [one for one in read_all(source) if int.from_bytes(one[:8], "big") >= start]
    log.close()
    for path in segments(log)[:count]:
        path.unlink()

    log, is_lost = opened(tmp_path / "a", clean=clean)
    assert is_lost
    assert (log.log_start_offset, log.log_end_offset) == (start, BATCHES)
    assert first_damaged(log) == start
    with pytest.raises(DamagedBatch):
        log.read(start, 1, BATCHES)
    assert repair(log, source)
    assert read_all(log) == expected
    log.close()
    log, is_lost = opened(tmp_path / "a", clean=clean)
    assert not is_lost
    assert read_all(log) == expected
    log.discard()


@pytest.mark.parametrize("content", [None, b"", b"log-start-offset 1 crc32c=00000000\n0"])
def test_a_log_that_does_not_know_its_start_begins_where_it_does(
    tmp_path: Path, content: bytes | None
) -> None:
    """One of an earlier release has no such file, and a power cut may leave a torn one."""
    log = make_log(tmp_path / "a")
    log.discard()
    segments(log)[0].unlink()
    path = log.directory / LOG_START_FILE
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    log, is_lost = opened(tmp_path / "a")
    start = log.log_start_offset
    assert not is_lost
    assert start > 0
    log.discard()
    segments(log)[0].unlink()
    log, is_lost = opened(tmp_path / "a")
    assert is_lost
    assert log.log_start_offset == start
    log.discard()


def test_retention_that_was_killed_has_lost_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kill(*_: object) -> None:
        raise SystemExit

    log = make_log(tmp_path / "a")
    for owner, name in ((Segment, "set_aside"), (retention, "set_aside_snapshot")):
        with monkeypatch.context() as killing:
            killing.setattr(owner, name, kill)
            with pytest.raises(SystemExit):
                log.apply_retention(0, -1, 0, log.log_end_offset)
        log.discard()
        log, is_lost = opened(tmp_path / "a")
        assert not is_lost
    assert log.log_start_offset > 0
    log.discard()


def test_retention_that_an_earlier_release_applied_has_lost_nothing(tmp_path: Path) -> None:
    """It knows nothing of the file, but notes the start of the history."""
    log = make_log(tmp_path / "a")
    before = (log.directory / LOG_START_FILE).read_bytes()
    start = retained(log)
    log.flush()
    log.discard()
    (log.directory / LOG_START_FILE).write_bytes(before)
    log, is_lost = opened(tmp_path / "a")
    assert (is_lost, log.log_start_offset) == (False, start)
    log.discard()


def test_a_log_that_begins_again_has_lost_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is killed before the first flush leaves the history of before."""

    def kill(_: PartitionLog) -> None:
        raise SystemExit

    log = make_log(tmp_path / "a")
    with monkeypatch.context() as killing:
        killing.setattr(PartitionLog, "flush", kill)
        with pytest.raises(SystemExit):
            log.reset_to(1_000, ProducerStates())
    log.discard()
    log, is_lost = opened(tmp_path / "a")
    assert (is_lost, log.log_start_offset) == (False, 1_000)
    log.discard()
