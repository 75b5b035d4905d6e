"""Sequence numbers of idempotent producers (R15, I4)."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from leadline_broker.domain.producers import (
    MOST_UNDONE,
    REMEMBERED_BATCHES,
    Accept,
    Duplicate,
    ProducerStates,
    SequencedBatch,
    sequence_after,
)
from leadline_broker.domain.publishes import FIRST_PUBLISHER_ID, piece_epoch
from leadline_client.errors import OutOfOrderSequence, ProducerFenced

LAST_SEQUENCE = 2**31 - 1


@dataclass(frozen=True)
class Header:
    """The part of a batch header that the table reads."""

    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    base_offset: int
    max_timestamp: int = 1_000


def table(*headers: Header) -> ProducerStates:
    states = ProducerStates()
    for header in headers:
        states.apply(header)
    return states


@pytest.mark.parametrize(
    ("epoch", "sequence", "count", "verdict"),
    [
        (3, 15, 2, Accept),
        (3, 10, 5, Duplicate),
        (3, 10, 4, OutOfOrderSequence),
        (3, 14, 2, OutOfOrderSequence),
        (3, 16, 1, OutOfOrderSequence),
        (2, 15, 1, ProducerFenced),
        (4, 0, 9, Accept),
        (4, 15, 1, OutOfOrderSequence),
    ],
    ids=[
        "next",
        "repeated",
        "repeated in part",
        "overlap",
        "gap",
        "older epoch",
        "new epoch from 0",
        "new epoch goes on",
    ],
)
def test_a_known_producer(epoch: int, sequence: int, count: int, verdict: type) -> None:
    states = table(Header(7, 3, 10, 5, 100))
    assert isinstance(states.check(7, epoch, sequence, count), verdict)


def test_a_duplicate_names_the_offsets_it_already_has() -> None:
    states = table(Header(7, 0, 0, 5, 100), Header(7, 0, 5, 1, 230))
    assert states.check(7, 0, 0, 5) == Duplicate(100, 104)
    assert states.check(7, 0, 5, 1) == Duplicate(230, 230)


def test_only_the_latest_batches_are_recognised() -> None:
    states = table(*(Header(7, 0, n, 1, n) for n in range(REMEMBERED_BATCHES + 1)))
    assert isinstance(states.check(7, 0, 0, 1), OutOfOrderSequence)
    assert states.check(7, 0, 1, 1) == Duplicate(1, 1)


def test_an_unknown_producer_begins_at_zero_unless_its_start_may_be_gone() -> None:
    states = ProducerStates()
    assert states.check(7, 5, 0, 1) == Accept()
    assert isinstance(states.check(7, 5, 1, 1), OutOfOrderSequence)
    assert states.check(7, 5, 1, 1, log_start_offset=1) == Accept()


def test_batches_without_producer_are_always_accepted_and_not_remembered() -> None:
    states = table(Header(-1, -1, -1, 3, 0))
    assert len(states) == 0
    assert states.check(-1, -1, -1, 3) == Accept()


def test_sequences_wrap_around() -> None:
    states = table(Header(7, 0, LAST_SEQUENCE - 1, 3, 50))
    assert states.check(7, 0, LAST_SEQUENCE - 1, 3) == Duplicate(50, 52)
    assert states.check(7, 0, 1, 1) == Accept()
    assert sequence_after(LAST_SEQUENCE, 1) == 0


def test_silent_producers_are_forgotten() -> None:
    states = table(Header(1, 0, 0, 1, 0))
    states.mark_active(10)
    states.apply(Header(2, 0, 0, 1, 1))
    states.mark_active(20)
    states.expire(before_ms=20)
    assert states.get(1) is None
    assert states.get(2) is not None


@pytest.mark.parametrize("timestamp", [0, 2**62], ids=["long ago", "far in the future"])
def test_timestamps_of_records_do_not_decide_when_a_producer_is_forgotten(timestamp: int) -> None:
    states = table(Header(1, 0, 0, 1, 0, max_timestamp=timestamp))
    states.mark_active(1_000)
    states.expire(before_ms=1_000)
    assert states.get(1) is not None
    states.expire(before_ms=1_001)
    assert states.get(1) is None


def test_a_producer_of_a_snapshot_with_a_future_time_is_forgotten() -> None:
    states = ProducerStates([(1, 0, 2**62, (SequencedBatch(0, 0, 0),))])
    states.mark_active(1_000)
    states.expire(before_ms=1_001)
    assert len(states) == 0


@given(
    start=st.sampled_from([0, 1, LAST_SEQUENCE - 6, LAST_SEQUENCE]),
    sends=st.lists(st.tuples(st.integers(1, 4), st.booleans(), st.booleans()), max_size=30),
)
def test_retries_never_add_or_lose_a_record(
    start: int, sends: list[tuple[int, bool, bool]]
) -> None:
    """A producer that repeats a batch until it is acknowledged gets each record in once."""
    states = ProducerStates([(7, 0, 0, (SequencedBatch(start, start, 0),))])
    log: list[int] = [start]
    sequence = sequence_after(start, 1)
    for count, repeat, restore in sends:
        for _ in range(2 if repeat else 1):
            verdict = states.check(7, 0, sequence, count)
            if isinstance(verdict, Accept):
                states.apply(Header(7, 0, sequence, count, len(log)))
                log.extend(sequence_after(sequence, n) for n in range(count))
            else:
                assert verdict == Duplicate(len(log) - count, len(log) - 1)
            if restore:
                states = ProducerStates(states.rows())
        sequence = sequence_after(sequence, count)
    assert log == [sequence_after(start, n) for n in range(len(log))]


@given(
    batches=st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(1, 3)), max_size=40
    )
)
def test_a_restored_snapshot_judges_as_the_original(batches: list[tuple[int, int, int]]) -> None:
    states = ProducerStates()
    offset = 0
    for producer_id, epoch, count in batches:
        known = states.get(producer_id)
        sequence = known.expected_sequence if known and known.epoch == epoch else 0
        if isinstance(states.check(producer_id, epoch, sequence, count), Accept):
            states.apply(Header(producer_id, epoch, sequence, count, offset))
            offset += count
    restored = ProducerStates(states.rows())
    assert restored.rows() == states.rows()
    for producer_id in range(3):
        for epoch in range(3):
            for sequence in range(6):
                before = states.check(producer_id, epoch, sequence, 1)
                after = restored.check(producer_id, epoch, sequence, 1)
                assert type(before) is type(after)


APPENDS = st.tuples(st.just("append"), st.integers(0, 3), st.integers(0, 2), st.integers(1, 3))
STEPS = st.lists(
    APPENDS
    | APPENDS
    | st.tuples(st.just("truncate"), st.integers(0, MOST_UNDONE + 9), st.just(0), st.just(0))
    | st.tuples(st.just("restore"), st.just(0), st.just(0), st.just(0))
    | st.tuples(st.just("repeat"), st.integers(0, 3), st.just(0), st.integers(1, MOST_UNDONE)),
    max_size=60,
)


def rows_of(states: ProducerStates) -> list[object]:
    return [(producer, epoch, list(batches)) for producer, epoch, _, batches in states.rows()]


@settings(max_examples=400)
@given(STEPS)
def test_a_truncated_table_is_that_of_the_shorter_log(
    steps: list[tuple[str, int, int, int]],
) -> None:
    """Producer 3 is an application that publishes, of which nothing can be taken back."""
    log, states, sequence = list[Header](), ProducerStates(), 0

    def append(producer: int, epoch: int, count: int) -> None:
        nonlocal sequence
        identity = FIRST_PUBLISHER_ID if producer == 3 else producer
        end = log[-1].base_offset + log[-1].record_count if log else 0
        fields = (piece_epoch(0, 1), 1) if producer == 3 else (epoch, sequence)
        log.append(Header(identity, *fields, count, end))
        states.apply(log[-1])
        sequence += count

    for what, number, epoch, count in steps:
        if what == "append":
            append(number, epoch, count)
        elif what == "repeat":
            for _ in range(count):
                append(number, 2, 1)
        elif what == "restore":
            end = log[-1].base_offset + log[-1].record_count if log else 0
            states = ProducerStates(states.rows(), states.publishes.rows(), end)
        elif log:
            cut = max(0, len(log) - number)
            end = log[cut].base_offset if cut < len(log) else log[-1].base_offset + 9
            is_known = states.truncate_to(end)
            event("known" if is_known else "unknown")
            del log[cut:]
            states = states if is_known else table(*log)
        assert rows_of(states) == rows_of(table(*log))


def test_the_latest_batches_are_forgotten_without_reading_the_log() -> None:
    log = [Header(7, 0, number, 1, number) for number in range(3 * MOST_UNDONE)]
    states = table(*log)
    assert states.truncate_to(len(log) - MOST_UNDONE)
    assert rows_of(states) == rows_of(table(*log[:-MOST_UNDONE]))
    assert not states.truncate_to(len(log) - MOST_UNDONE - 1)


def test_a_table_forgets_nothing_of_what_a_publish_wrote() -> None:
    log = [Header(7, 0, 0, 1, 0), Header(FIRST_PUBLISHER_ID, piece_epoch(0, 1), 1, 1, 1)]
    assert not table(*log).truncate_to(1)
    assert table(*log).truncate_to(2)


def test_a_truncated_table_has_the_epoch_of_before() -> None:
    states = table(Header(7, 0, 0, 1, 0), Header(7, 1, 0, 1, 1), Header(8, 0, 0, 1, 2))
    assert states.truncate_to(1)
    assert rows_of(states) == [(7, 0, [(0, 0, 0)])]


def test_the_rows_of_a_snapshot_copy_no_batches() -> None:
    """200,000 producers have a million, and the event loop waits while a log is rolled."""
    states = ProducerStates([(7, 0, 0, (SequencedBatch(0, 4, 0), SequencedBatch(5, 9, 5)))])
    state = states.get(7)

    assert state is not None
    assert states.rows()[0][3] is state.batches
