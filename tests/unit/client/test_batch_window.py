"""Several batches of a partition in flight: their order, their numbers, and what a failure does."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leadline_broker.domain.producers import (
    REMEMBERED_BATCHES,
    Accept,
    Duplicate,
    ProducerStates,
)
from leadline_client.accumulator import ProducerBatch
from leadline_client.batch_window import (
    MOST_IN_FLIGHT,
    BatchOutcome,
    BatchWindow,
    InFlightBatch,
    refuses_numbers,
)
from leadline_client.errors import (
    ConnectionLost,
    ForeignProducerId,
    LeadlineError,
    NotLeader,
    OutOfOrderSequence,
    ProducerFenced,
)
from leadline_client.payloads import OutgoingRecord

Batch = ProducerBatch[int]
InFlight = InFlightBatch[int]
ACKNOWLEDGED, REFUSED = BatchOutcome.ACKNOWLEDGED, BatchOutcome.REFUSED
IN_DOUBT, AGAIN = BatchOutcome.IN_DOUBT, BatchOutcome.AGAIN


def batch(number: int) -> Batch:
    return ProducerBatch(0, [OutgoingRecord(b"v")], [number], [1], 1, first=number)


def window_with(count: int, limit: int = MOST_IN_FLIGHT) -> tuple[BatchWindow[int], list[InFlight]]:
    """Return a window whose producer the broker knows, with batches that have one record each."""
    window: BatchWindow[int] = BatchWindow(limit)
    window.resolve(window.add(batch(0)), ACKNOWLEDGED)
    sent = []
    for number in range(1, count + 1):
        one = window.add(batch(number))
        one.base_sequence = number
        sent.append(one)
    return window, sent


def test_a_broker_recognizes_as_many_batches_as_may_be_in_flight() -> None:
    assert MOST_IN_FLIGHT == REMEMBERED_BATCHES


def test_the_first_batch_after_a_pause_is_alone_until_it_is_acknowledged() -> None:
    window: BatchWindow[int] = BatchWindow(3)
    first = window.add(batch(0))
    assert not window.has_room
    window.resolve(first, ACKNOWLEDGED)
    for number in range(3):
        assert window.has_room
        window.resolve(window.add(batch(number)), ACKNOWLEDGED)
    window.rest()
    window.add(batch(3))
    assert not window.has_room


def test_no_more_batches_than_the_limit_are_in_flight() -> None:
    window, _ = window_with(2, limit=3)
    assert window.has_room
    window.add(batch(3))
    assert not window.has_room


def test_an_acknowledged_batch_counts_while_one_before_it_has_no_outcome() -> None:
    window, sent = window_with(5)
    for later in sent[1:]:
        window.resolve(later, ACKNOWLEDGED)
    assert window.in_flight == 5
    assert not window.has_room
    window.resolve(sent[0], ACKNOWLEDGED)
    assert window.in_flight == 0
    assert not window


def test_a_batch_knows_what_became_of_those_before_it() -> None:
    window, sent = window_with(3)
    assert window.acknowledged_before(sent[0]) is True
    assert window.acknowledged_before(sent[2]) is None
    window.resolve(sent[1], AGAIN, [sent[1].batch])
    assert window.acknowledged_before(sent[2]) is False
    assert window.acknowledged_before(sent[0]) is True


def test_after_a_failure_nothing_leaves_until_all_have_an_outcome() -> None:
    window, sent = window_with(3)
    window.resolve(sent[0], REFUSED)
    assert not window.has_room
    assert not window.can_settle
    for later in sent[1:]:
        window.resolve(later, AGAIN, [later.batch])
    assert window.can_settle
    assert window.settle() == sent[0].base_sequence
    assert [window.take_again() for _ in range(2)] == [sent[1].batch, sent[2].batch]
    assert not window.has_again


def test_what_is_sent_again_after_a_failure_begins_alone() -> None:
    window, sent = window_with(2)
    window.resolve(sent[0], REFUSED)
    window.resolve(sent[1], AGAIN, [sent[1].batch])
    window.settle()
    window.add(window.take_again())
    assert not window.has_room


@pytest.mark.parametrize(
    ("outcomes", "next_sequence"),
    [
        ([REFUSED, AGAIN, AGAIN], 1),
        ([ACKNOWLEDGED, REFUSED, AGAIN], 2),
        ([AGAIN, AGAIN, AGAIN], 1),
        ([IN_DOUBT, AGAIN, AGAIN], None),
        ([IN_DOUBT, ACKNOWLEDGED, ACKNOWLEDGED], None),
        ([REFUSED, IN_DOUBT, AGAIN], None),
        ([REFUSED, AGAIN, ACKNOWLEDGED], None),
    ],
)
def test_numbers_are_used_again_only_if_they_are_certainly_free(
    outcomes: list[BatchOutcome], next_sequence: int | None
) -> None:
    window, sent = window_with(3)
    for one, outcome in reversed(list(zip(sent, outcomes, strict=True))):
        window.resolve(one, outcome, [one.batch] if outcome is AGAIN else [])
    assert window.settle() == next_sequence


def test_halves_take_the_place_of_a_batch_that_was_too_large() -> None:
    window, sent = window_with(2)
    halves = [batch(10), batch(11)]
    window.resolve(sent[0], AGAIN, halves)
    window.resolve(sent[1], AGAIN, [sent[1].batch])
    assert window.unfinished() == [*halves, sent[1].batch]
    window.settle()
    assert window.unfinished() == [*halves, sent[1].batch]
    window.clear()
    assert not window


@pytest.mark.parametrize("refusal", [OutOfOrderSequence, ProducerFenced, ForeignProducerId])
def test_a_refusal_of_the_numbers_shows_behind_an_unknown_outcome_too(
    refusal: type[LeadlineError],
) -> None:
    assert refuses_numbers(refusal(""))
    lost = ConnectionLost("")
    assert not refuses_numbers(lost)
    lost.__cause__ = refusal("")
    assert refuses_numbers(lost)
    assert not refuses_numbers(NotLeader(""))


@dataclass
class Wire:
    """A partition's leader, and copies of batches that may still arrive at it.

    Each copy is (producer id, base sequence, number of the record).
    """

    states: ProducerStates = field(default_factory=ProducerStates)
    log: list[int] = field(default_factory=list)
    stray: list[tuple[int, int, int]] = field(default_factory=list)

    def arrive(self, copy: tuple[int, int, int]) -> LeadlineError | None:
        """Append a batch of one record as a broker does; return its refusal."""
        producer, sequence, number = copy
        verdict = self.states.check(producer, 0, sequence, 1)
        if isinstance(verdict, Accept):
            self.states.apply(Applied(producer, 0, sequence, 1, len(self.log)))
            self.log.append(number)
        return None if isinstance(verdict, Accept | Duplicate) else verdict


@dataclass(frozen=True)
class Applied:
    """The header of an appended batch."""

    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    base_offset: int
    max_timestamp: int = 0


@dataclass
class Sender:
    """What `BatchSender` does for each batch, one answer after the other, in any order."""

    window: BatchWindow[int]
    wire: Wire
    waiting: list[int]
    producer: int = 0
    next_sequence: int = 0
    acknowledged: list[int] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)
    in_doubt: list[int] = field(default_factory=list)
    open: list[InFlight] = field(default_factory=list)
    attempts: dict[InFlight, tuple[bool | None, bool]] = field(default_factory=dict)

    def fill(self) -> None:
        while self.window.has_room and (self.window.has_again or self.waiting):
            again = self.window.has_again
            one = self.window.add(self.window.take_again() if again else batch(self.waiting.pop(0)))
            one.base_sequence = self.next_sequence
            self.next_sequence += 1
            self.open.append(one)
            self.attempts[one] = (self.window.acknowledged_before(one), False)

    def copy(self, one: InFlight) -> tuple[int, int, int]:
        return self.producer, one.base_sequence, one.batch.tokens[0]

    def answer(self, one: InFlight, fate: str) -> None:
        """Let one attempt end; `fate` is what the network does to it."""
        in_order, doubtful = self.attempts[one]
        if fate == "lost":  # It may arrive much later, or never: the sender does not know.
            self.wire.stray.append(self.copy(one))
            self.attempts[one] = (in_order, True)
            return
        error = None if fate == "refused" else self.wire.arrive(self.copy(one))
        if fate == "answer lost":
            self.attempts[one] = (in_order, True)
        elif fate == "refused" or (error is not None and in_order):
            lost = doubtful or error is not None
            self.resolve(one, IN_DOUBT if lost else REFUSED)
        elif error is None:
            self.resolve(one, ACKNOWLEDGED)
        else:
            before = self.window.acknowledged_before(one)
            if before is False:
                self.resolve(one, IN_DOUBT if doubtful else AGAIN)
            self.attempts[one] = (before, doubtful)

    def resolve(self, one: InFlight, outcome: BatchOutcome) -> None:
        self.open.remove(one)
        number = one.batch.tokens[0]
        self.window.resolve(one, outcome, [one.batch] if outcome is AGAIN else [])
        if outcome is not AGAIN:
            into = {ACKNOWLEDGED: self.acknowledged, REFUSED: self.refused}
            into.get(outcome, self.in_doubt).append(number)
        if self.window.can_settle:
            found = self.window.settle()
            self.producer += found is None
            self.next_sequence = 0 if found is None else found


FATES = ["appended", "appended", "appended", "lost", "answer lost", "refused"]


@settings(max_examples=400)
@given(st.data(), st.integers(1, MOST_IN_FLIGHT), st.integers(1, 14))
def test_whatever_the_network_does_acknowledged_records_are_once_and_in_order(
    data: st.DataObject, limit: int, count: int
) -> None:
    wire = Wire()
    sender = Sender(BatchWindow(limit), wire, list(range(count)))
    sender.fill()
    for step in range(400):
        if not sender.open:
            break
        if wire.stray and data.draw(st.integers(0, 4)) == 0:
            wire.arrive(wire.stray.pop(data.draw(st.integers(0, len(wire.stray) - 1))))
        one = sender.open[data.draw(st.integers(0, len(sender.open) - 1))]
        # In the end the network behaves.
        sender.answer(one, data.draw(st.sampled_from(FATES)) if step < 200 else "appended")
        sender.fill()
    for copy in wire.stray:
        wire.arrive(copy)

    assert not sender.waiting
    assert not sender.window
    assert len(wire.log) == len(set(wire.log)), "a record is twice in the log"
    assert not set(sender.refused) & set(wire.log), "a refused record is in the log"
    known = [number for number in wire.log if number not in sender.in_doubt]
    assert known == sorted(sender.acknowledged), "the log has other records, or another order"
    outcomes = [*sender.acknowledged, *sender.refused, *sender.in_doubt]
    assert sorted(outcomes) == list(range(count))
