"""Batches of applications enter a log exactly once, by what the log itself remembers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline_broker.domain.producers import ProducerStates
from leadline_broker.domain.publishes import (
    FIRST_PUBLISHER_ID,
    LAST_BATCH,
    MOST_PIECES,
    AppendFrom,
    Published,
    Publishes,
    piece_epoch,
    publisher_id,
)
from leadline_client.errors import PublishMismatch, PublishOutOfOrder

APP = publisher_id("app")
OTHER = publisher_id("other")


@dataclass(frozen=True)
class Piece:
    """The part of a batch header that the table reads."""

    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    base_offset: int
    max_timestamp: int = 1_000


class Log:
    """A log of pieces, and what was ever known of it: the table after each of them."""

    def __init__(self) -> None:
        self.pieces: list[Piece] = []
        self.table = Publishes()

    @property
    def end(self) -> int:
        return self.pieces[-1].base_offset + self.pieces[-1].record_count if self.pieces else 0

    def append(self, batch: int, counts: Sequence[int], places: range, app: int = APP) -> None:
        for place in places:
            epoch = piece_epoch(place, len(counts))
            self.pieces.append(Piece(app, epoch, batch, counts[place], self.end))
            self.table.apply(self.pieces[-1])

    def publish(self, batch: int, counts: Sequence[int], up_to: int | None = None) -> object:
        """Publish as a leader does, which dies before piece `up_to`."""
        verdict = self.table.check(APP, batch, counts)
        if isinstance(verdict, AppendFrom):
            last = len(counts) if up_to is None else max(verdict.piece, up_to)
            self.append(batch, counts, range(verdict.piece, min(last, len(counts))))
        return verdict

    def replayed(self, start: int = 0, snapshot: Publishes | None = None) -> Publishes:
        """Return the table as another replica builds it, from a snapshot at `start`."""
        table = Publishes(snapshot.rows()) if snapshot else Publishes()
        for piece in self.pieces[start:]:
            table.apply(piece)
        return table


def test_ids_of_applications_are_apart_from_allocated_ones() -> None:
    ids = {publisher_id(f"app-{n}") for n in range(1_000)}

    assert len(ids) == 1_000
    assert all(FIRST_PUBLISHER_ID <= one < 2 * FIRST_PUBLISHER_ID for one in ids)
    assert publisher_id("app") == APP


def test_the_fields_of_a_piece_fit_into_a_batch_header() -> None:
    assert piece_epoch(MOST_PIECES - 1, MOST_PIECES) < 2**15
    assert LAST_BATCH < 2**31


def test_a_new_batch_is_appended_and_then_known() -> None:
    log = Log()

    assert log.publish(7, [2, 3]) == AppendFrom(0)

    assert log.publish(7, [2, 3]) == Published(5, 0, 4)
    assert log.table.settled(APP, 7) == Published(5, 0, 4)
    assert log.end == 5


def test_an_earlier_batch_is_known_without_its_offsets() -> None:
    log = Log()
    log.publish(1, [1])
    log.publish(5, [4])

    assert log.publish(3, [9]) == Published(1)
    assert log.publish(1, [1]) == Published(1)
    assert log.end == 5


def test_what_was_cut_short_is_gone_on_with() -> None:
    log = Log()
    log.publish(1, [2, 3, 4], up_to=2)

    assert log.publish(1, [2, 3, 4]) == AppendFrom(2)
    assert log.publish(1, [2, 3, 4]) == Published(9, 0, 8)


@pytest.mark.parametrize("counts", [[2, 4, 4], [2, 3], [5], [3, 2, 4], []])
def test_a_replay_that_differs_is_refused(counts: list[int]) -> None:
    log = Log()
    log.publish(1, [2, 3, 4], up_to=2)

    assert isinstance(log.publish(1, counts), PublishMismatch)
    assert log.end == 5


@pytest.mark.parametrize("batch", [0, 2])
def test_nothing_passes_a_batch_that_was_cut_short(batch: int) -> None:
    log = Log()
    log.publish(1, [2, 3], up_to=1)

    assert isinstance(log.publish(batch, [1]), PublishOutOfOrder)
    assert log.end == 2


def test_applications_know_nothing_of_one_another() -> None:
    log = Log()
    log.publish(1, [2, 3], up_to=1)
    log.append(9, [1], range(1), OTHER)

    assert log.table.settled(OTHER, 9) == Published(3, 2, 2)
    assert log.publish(1, [2, 3]) == AppendFrom(1)
    # Between the pieces lies a record of the other.
    assert log.publish(1, [2, 3]) == Published(6, 0, 5)


def test_what_old_segments_took_is_not_asked_for() -> None:
    log = Log()
    log.publish(1, [2, 3, 4], up_to=2)
    table = log.replayed(start=1)  # The first piece is gone.

    assert table.check(APP, 1, [9, 3, 4]) == AppendFrom(2)
    assert isinstance(table.check(APP, 1, [2, 9, 4]), PublishMismatch)


def test_what_a_damaged_segment_hides_is_not_held_against_the_replay() -> None:
    log = Log()
    log.publish(1, [2, 3, 4, 5], up_to=3)
    del log.pieces[1]

    table = log.replayed()

    assert table.check(APP, 1, [2, 3, 4, 5]) == AppendFrom(3)


def test_offsets_are_not_told_when_the_beginning_is_gone() -> None:
    log = Log()
    log.publish(1, [2, 3])

    assert log.replayed(start=1).settled(APP, 1) == Published(5, None, 4)


def test_an_application_is_forgotten_after_its_time_only() -> None:
    log = Log()
    log.publish(1, [2])
    log.table.mark_active(50_000)

    log.table.expire(50_000)
    assert len(log.table) == 1
    log.table.expire(50_001)
    assert len(log.table) == 0


@pytest.mark.parametrize("timestamp", [5, 2**62], ids=["long ago", "far in the future"])
def test_timestamps_of_records_do_not_change_an_application_s_time(timestamp: int) -> None:
    table = Publishes()
    table.apply(Piece(APP, piece_epoch(0, 1), 1, 1, 0, max_timestamp=timestamp))

    table.mark_active(90_000)
    table.expire(90_000)
    assert len(table) == 1
    table.expire(90_001)
    assert len(table) == 0


def test_producers_and_applications_do_not_mix() -> None:
    states = ProducerStates()
    states.apply(Piece(APP, piece_epoch(0, 2), 3, 4, 0))

    assert len(states) == 0
    assert len(states.publishes) == 1
    assert states.reaches(3)
    assert not states.reaches(4)


runs = st.lists(
    st.tuples(
        st.lists(st.integers(1, 4), min_size=1, max_size=5),  # Records of the pieces.
        st.lists(st.integers(0, 5), max_size=4),  # Where leaders die, attempt by attempt.
        st.integers(1, 3),  # How far the next batch number is.
    ),
    min_size=1,
    max_size=6,
)


@given(runs, st.data())
def test_every_batch_is_in_the_log_once_whatever_happens(
    plan: list[tuple[list[int], list[int], int]], data: st.DataObject
) -> None:
    log = Log()
    batch, published = 0, []
    for counts, deaths, step in plan:
        batch += step
        for up_to in deaths:
            log.publish(batch, counts, up_to)
            log.table = log.replayed()  # Another broker leads now.
        log.publish(batch, counts)
        published.append((batch, counts))
        again, again_counts = data.draw(st.sampled_from(published))
        assert isinstance(log.publish(again, again_counts), Published)

    assert [(piece.base_sequence, piece.record_count) for piece in log.pieces] == [
        (batch, count) for batch, counts in published for count in counts
    ]


@given(runs, st.data())
def test_every_replica_knows_the_same_whatever_snapshot_it_begins_with(
    plan: list[tuple[list[int], list[int], int]], data: st.DataObject
) -> None:
    log = Log()
    for batch, (counts, deaths, _) in enumerate(plan):
        for up_to in deaths:
            log.publish(batch, counts, up_to)
        log.publish(batch, counts)
    at = data.draw(st.integers(0, len(log.pieces)))
    snapshot = Publishes()
    for piece in log.pieces[:at]:
        snapshot.apply(piece)

    assert log.replayed(at, snapshot).rows() == log.table.rows()
