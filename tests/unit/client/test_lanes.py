"""Batches of a partition: whole, in order, numbered without a gap."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline_client.accumulator import (
    MAX_SEQUENCE,
    Lane,
    Numbering,
    estimated_size,
    spoils_numbering,
)
from leadline_client.errors import (
    ConnectionLost,
    LeadlineError,
    NotEnoughReplicas,
    OutOfOrderSequence,
    ProducerFenced,
)
from leadline_client.payloads import OutgoingRecord, ProducerIdentity


@given(st.lists(st.integers(0, 300)), st.integers(1, 500))
def test_batches_hold_every_record_once_in_order_and_within_their_size(
    sizes: list[int], limit: int
) -> None:
    lane: Lane[int] = Lane(batch_bytes=limit, linger_s=1)
    for token, size in enumerate(sizes):
        lane.add(OutgoingRecord(b"x" * size), token, now_s=0)
    tokens = []
    while lane:
        batch = lane.take()
        assert len(batch.records) == 1 or batch.size <= limit
        assert batch.size == sum(map(estimated_size, batch.records))
        tokens += batch.tokens
    assert tokens == list(range(len(sizes)))


def test_a_batch_waits_for_company_until_it_lingered_or_is_full_or_flushed() -> None:
    lane: Lane[int] = Lane(batch_bytes=100, linger_s=2)
    lane.add(OutgoingRecord(b"a"), 0, now_s=10)
    assert lane.due_in(10.5) == 1.5
    assert lane.due_in(12.5) == 0
    lane.flush()
    assert lane.due_in(10.5) == 0
    lane.take()
    lane.add(OutgoingRecord(b"b"), 1, now_s=20)
    assert lane.due_in(20) == 2
    assert lane.add(OutgoingRecord(b"c" * 90), 2, now_s=20)
    assert lane.due_in(20) == 0


def test_sequence_numbers_wrap() -> None:
    numbering = Numbering(ProducerIdentity(1, 0), MAX_SEQUENCE)
    numbering.advance(2)
    assert numbering.next_sequence == 1


@pytest.mark.parametrize(
    ("error", "spoilt"),
    [
        (ConnectionLost(""), True),
        (OutOfOrderSequence(""), True),
        (ProducerFenced(""), True),
        (NotEnoughReplicas(""), False),
    ],
)
def test_a_refused_batch_leaves_its_numbers_free(error: LeadlineError, spoilt: bool) -> None:
    assert spoils_numbering(error) is spoilt
