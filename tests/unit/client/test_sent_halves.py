"""The future of a batch that was sent by halves."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from leadline_client.sent_records import RecordMetadata, SentHalf

FIRST, SECOND = RecordMetadata("t", 0, 10), RecordMetadata("t", 0, 15)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["in order", "backwards"])
def test_both_halves_complete_the_whole_in_either_order(order: tuple[int, int]) -> None:
    whole: Future[RecordMetadata] = Future()
    halves = SentHalf.both_of(whole)
    places = FIRST, SECOND
    halves[order[0]].set_result(places[order[0]])
    assert not whole.done()
    halves[order[1]].set_result(places[order[1]])
    assert whole.result(0) == FIRST


def test_halves_of_halves_complete_the_whole() -> None:
    whole: Future[RecordMetadata] = Future()
    first, second = SentHalf.both_of(whole)
    quarters = SentHalf.both_of(first)
    second.set_result(SECOND)
    quarters[1].set_result(RecordMetadata("t", 0, 12))
    assert not whole.done()
    quarters[0].set_result(FIRST)
    assert whole.result(0) == FIRST


@pytest.mark.parametrize("failing", [0, 1])
def test_the_error_of_either_half_is_that_of_the_whole(failing: int) -> None:
    whole: Future[RecordMetadata] = Future()
    halves = SentHalf.both_of(whole)
    halves[failing].set_exception(ValueError())
    assert halves[1 - failing].done()
    halves[1 - failing].set_result(SECOND)
    assert isinstance(whole.exception(0), ValueError)
