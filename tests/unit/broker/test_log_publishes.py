"""What a log knows of publishes after crashes, cuts and restarts, and by which files."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from leadline_broker.adapters.log.checked_files import write_checked
from leadline_broker.adapters.log.partition_log import PartitionLog
from leadline_broker.domain.publishes import Publish, piece_epoch, publisher_id
from tests.unit.broker.log_support import batch, open_log

APP = publisher_id("app")
DAY = 24 * 3_600_000


def piece(offset: int, place: int, *, of: int = 2, number: int = 7, epoch: int = 0) -> bytes:
    """Return a piece of one record of the batch `number`."""
    producer = (APP, piece_epoch(place, of), number)
    return batch(offset, b"x" * 100, epoch=epoch, producer=producer)


def latest(log: PartitionLog) -> Publish | None:
    return log.producers.publishes.latest(APP)


DONE = Publish(7, 0, (), 0, 1, complete=True)
HALF = Publish(7, 0, (1,), 0, 0, complete=False)


@pytest.mark.parametrize("clean", [True, False], ids=["clean stop", "crash"])
@pytest.mark.parametrize("segment_bytes", [1 << 20, 1_024])
def test_publishes_are_known_after_a_restart(
    tmp_path: Path, segment_bytes: int, *, clean: bool
) -> None:
    log = open_log(tmp_path, segment_bytes=segment_bytes)
    log.append(piece(0, 0) + piece(1, 1))
    for offset in range(2, 12):
        log.append(batch(offset, b"x" * 500))
    log.flush()
    if clean:
        log.close()
    else:
        log.discard()

    assert latest(open_log(tmp_path, clean=clean, segment_bytes=segment_bytes)) == DONE


def test_a_publish_that_a_crash_tore_is_known_as_far_as_it_came(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append(piece(0, 0) + piece(1, 1))
    log.discard()
    segment = log.directory / f"{0:020d}.log"
    whole = segment.read_bytes()

    segment.write_bytes(whole[:-1])

    assert latest(open_log(tmp_path)) == HALF


def test_a_publish_that_is_cut_away_is_not_known_any_more(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append(batch(0) + piece(1, 0) + piece(2, 1))

    log.truncate_to(2)
    assert latest(log) == HALF._replace(base_offset=1, last_offset=1)
    log.truncate_to(1)
    assert latest(log) is None


def test_what_old_segments_held_is_known_from_snapshots(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=1_024)
    log.append(piece(0, 0) + piece(1, 1))
    for offset in range(2, 12):
        log.append(batch(offset, b"x" * 500))
    log.apply_retention(2_000, 1, -1, limit_offset=12)
    assert log.log_start_offset > 1
    log.close()

    assert latest(open_log(tmp_path, clean=True)) == DONE


def test_a_snapshot_of_an_earlier_release_still_counts(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.append(batch(0, producer=(9, 3, 0)))
    log.close()
    path = log.directory / f"{1:020d}.snapshot"
    rows = [(9, 3, 1_000, [(0, 0, 0)]), (8, 1, 1_000, [])]
    write_checked(path, "producer-snapshot", msgspec.json.encode(rows), sync=False)

    producers = open_log(tmp_path, clean=True).producers

    assert producers.rows() == [(9, 3, 1_000, ((0, 0, 0),)), (8, 1, 1_000, ())]
    assert len(producers.publishes) == 0
