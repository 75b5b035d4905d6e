"""Batches of a partition: whole, in order, numbered without a gap."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline_client import batches
from leadline_client.accumulator import (
    MAX_SEQUENCE,
    ProducerBatch,
    ProducerSequence,
    RecordAccumulator,
    estimated_size,
    needs_new_producer_id,
)
from leadline_client.errors import (
    ConnectionLost,
    ForeignProducerId,
    LeadlineError,
    NotEnoughReplicas,
    OutOfOrderSequence,
    ProducerFenced,
)
from leadline_client.payloads import EncodedBatch, OutgoingRecord, ProducerIdentity


@given(st.lists(st.integers(0, 300)), st.integers(1, 500))
def test_batches_hold_every_record_once_in_order_and_within_their_size(
    sizes: list[int], limit: int
) -> None:
    accumulator: RecordAccumulator[int] = RecordAccumulator(batch_bytes=limit, linger_s=1)
    for token, size in enumerate(sizes):
        record = OutgoingRecord(b"x" * size)
        accumulator.add(record, estimated_size(record), token, now_s=0)
    tokens = []
    while accumulator:
        batch = accumulator.take()
        assert len(batch.records) == 1 or batch.size <= limit
        assert batch.size == sum(map(estimated_size, batch.records))
        tokens += batch.tokens
    assert tokens == list(range(len(sizes)))


@given(st.lists(st.tuples(st.integers(0, 300), st.booleans())), st.integers(1, 500))
def test_records_extend_the_last_token_only(sends: list[tuple[int, bool]], limit: int) -> None:
    """Some records have tokens of their own; the others share one while they go to one batch."""
    accumulator: RecordAccumulator[list[int]] = RecordAccumulator(batch_bytes=limit, linger_s=1)
    shared: list[int] | None = None
    for number, (size, alone) in enumerate(sends):
        record = OutgoingRecord(b"x" * size)
        if alone or not accumulator.extend(shared, record, estimated_size(record)):
            token = [number]
            accumulator.add(record, estimated_size(record), token, now_s=0)
            shared = shared if alone else token
        elif shared is not None:
            shared.append(number)
    found: list[int] = []
    while accumulator:
        batch = accumulator.take()
        assert [len(token) for token in batch.tokens] == batch.counts
        assert len(batch.records) == sum(batch.counts)
        assert len(batch.records) == 1 or batch.size <= limit
        found += [number for token in batch.tokens for number in token]
    assert found == list(range(len(sends)))
    assert accumulator.added == len(sends)


def test_a_batch_waits_until_it_has_lingered_or_is_full_or_flushed() -> None:
    accumulator: RecordAccumulator[int] = RecordAccumulator(batch_bytes=100, linger_s=2)
    accumulator.add(OutgoingRecord(b"a"), 22, 0, now_s=10)
    assert accumulator.due_in(10.5) == 1.5
    assert accumulator.due_in(12.5) == 0
    accumulator.flush()
    assert accumulator.due_in(10.5) == 0
    accumulator.take()
    accumulator.add(OutgoingRecord(b"b"), 22, 1, now_s=20)
    assert accumulator.due_in(20) == 2
    assert accumulator.add(OutgoingRecord(b"c" * 90), 111, 2, now_s=20)
    assert accumulator.due_in(20) == 0


def test_sequence_numbers_wrap() -> None:
    sequence = ProducerSequence(ProducerIdentity(1, 0), MAX_SEQUENCE)
    sequence.advance(2)
    assert sequence.next_sequence == 1


@pytest.mark.parametrize(
    ("error", "new_id"),
    [
        (ConnectionLost(""), True),
        (OutOfOrderSequence(""), True),
        (ProducerFenced(""), True),
        (ForeignProducerId(""), True),
        (NotEnoughReplicas(""), False),
    ],
)
def test_the_next_batch_reuses_the_numbers_of_a_refused_batch(
    error: LeadlineError, new_id: bool
) -> None:
    assert needs_new_producer_id(error) is new_id


def test_an_encoded_batch_is_ready_at_once_and_stays_as_it_is() -> None:
    """Records before and after it are in batches of their own, and all are counted."""
    accumulator: RecordAccumulator[str] = RecordAccumulator(batch_bytes=1000, linger_s=60)
    accumulator.add_encoded(EncodedBatch(b"encoded", 5), "first", now_s=0)
    assert accumulator.due_in(0) == 0
    accumulator.add(OutgoingRecord(b"v"), 10, "record", now_s=0)
    accumulator.add_encoded(EncodedBatch(b"encoded", 7), "last", now_s=0)
    taken = [accumulator.take() for _ in range(3)]
    assert [batch.tokens for batch in taken] == [["first"], ["record"], ["last"]]
    assert [batch.count for batch in taken] == [5, 1, 7]
    assert accumulator.added == 13
    assert not accumulator


@given(st.lists(st.binary(max_size=20), min_size=1, max_size=9), st.integers(0, MAX_SEQUENCE))
def test_an_encoded_batch_gets_the_numbers_that_its_records_would_get(
    values: list[bytes], number: int
) -> None:
    records = [OutgoingRecord(value, timestamp=5) for value in values]
    sequence = ProducerSequence(ProducerIdentity(7, 1), number)
    plain: ProducerBatch[int] = ProducerBatch(0, records)
    encoded: ProducerBatch[int] = ProducerBatch(
        0, encoded=EncodedBatch(batches.encode(records, now_ms=5), len(records))
    )
    for given_sequence in (sequence, None):
        expected = plain.encode(given_sequence, now_ms=9, compression="none")
        assert encoded.encode(given_sequence, now_ms=9, compression="none") == expected
    assert plain.count == encoded.count
