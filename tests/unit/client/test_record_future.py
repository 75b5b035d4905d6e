"""The futures of records that `AsyncProducer.send` returns."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline_client.errors import NotEnoughReplicas
from leadline_client.record_future import RecordFuture, SharedOutcome
from leadline_client.sent_records import RecordMetadata

PLACE = RecordMetadata("orders", 2, 40)


def outcome_of(records: int) -> tuple[SharedOutcome, list[RecordFuture]]:
    """Return the outcome of a batch with so many records, and their futures."""
    shared = SharedOutcome(asyncio.get_running_loop())
    return shared, [shared.add() for _ in range(records)]


async def test_each_record_has_an_offset_of_its_own() -> None:
    shared, futures = outcome_of(3)
    assert not any(future.done() for future in futures)
    shared.set_result(PLACE)
    assert [future.result() for future in futures] == [
        ("orders", 2, 40),
        ("orders", 2, 41),
        ("orders", 2, 42),
    ]


async def test_without_acknowledgements_no_record_has_an_offset() -> None:
    shared, futures = outcome_of(2)
    shared.set_result(RecordMetadata("orders", 2, -1))
    assert [(await future).offset for future in futures] == [-1, -1]


async def test_who_waits_before_the_outcome_gets_it() -> None:
    shared, futures = outcome_of(3)
    waiting = asyncio.ensure_future(asyncio.wait_for(futures[1], 10))
    called: list[int] = []
    futures[2].add_done_callback(lambda done: called.append(done.result().offset))
    await asyncio.sleep(0)
    shared.set_result(PLACE)
    assert (await waiting).offset == 41
    assert called == [42]


async def test_an_error_is_that_of_every_record() -> None:
    shared, futures = outcome_of(2)
    error = NotEnoughReplicas("too few")
    early = asyncio.gather(futures[0], return_exceptions=True)
    await asyncio.sleep(0)
    shared.set_exception(error)
    [found] = await early
    assert found is error
    assert [future.exception() for future in futures] == [error, error]
    with pytest.raises(NotEnoughReplicas):
        await futures[1]


async def test_records_can_be_gathered() -> None:
    shared, futures = outcome_of(3)
    gathered = asyncio.gather(*futures)
    shared.set_result(PLACE)
    assert [place.offset for place in await gathered] == [40, 41, 42]


async def test_before_the_outcome_there_is_no_result() -> None:
    _, [future] = outcome_of(1)
    with pytest.raises(asyncio.InvalidStateError):
        future.result()
    with pytest.raises(asyncio.InvalidStateError):
        future.exception()
    assert not future.cancelled()


async def test_a_cancelled_future_stays_cancelled_and_concerns_no_other() -> None:
    shared, futures = outcome_of(2)
    assert futures[0].cancel()
    assert futures[0].done()
    shared.set_result(PLACE)
    assert futures[0].cancelled()
    assert futures[1].result().offset == 41
    assert not futures[1].cancel()


async def test_records_whose_outcome_nobody_will_learn_are_cancelled() -> None:
    shared, futures = outcome_of(2)
    waiting = asyncio.gather(futures[0], return_exceptions=True)
    await asyncio.sleep(0)
    assert shared.cancel()
    [found] = await waiting
    assert isinstance(found, asyncio.CancelledError)
    assert all(future.cancelled() for future in futures)


async def test_a_removed_callback_is_not_called() -> None:
    shared, [future] = outcome_of(1)
    called: list[Any] = []
    future.add_done_callback(called.append)
    assert future.remove_done_callback(called.append) == 1
    shared.set_result(PLACE)
    await asyncio.sleep(0)
    assert not called


def _divided(shared: SharedOutcome, cuts: list[bool]) -> list[SharedOutcome]:
    """Return the batches that take the place of one; a batch is divided where `cuts` says so."""
    if shared.count < 2 or not cuts or not cuts.pop():
        return [shared]
    return [part for half in shared.halves() for part in _divided(half, cuts)]


@given(st.integers(1, 40), st.lists(st.booleans(), max_size=20), st.sets(st.integers(0, 39)))
def test_records_of_divided_batches_have_the_outcome_of_their_part(
    records: int, cuts: list[bool], early: set[int]
) -> None:
    async def check() -> None:
        shared, futures = outcome_of(records)
        called: list[int] = []
        for future in (futures[index] for index in early if index < records):
            future.add_done_callback(lambda done: called.append(done.result().offset))
        parts = _divided(shared, cuts)
        first, expected = 1000, list[int]()
        for part in parts:
            part.set_result(RecordMetadata("orders", 2, first))
            expected += range(first, first + part.count)
            first += part.count + 7  # other records are between them
        assert [future.result().offset for future in futures] == expected
        await asyncio.sleep(0)
        assert sorted(called) == [expected[index] for index in sorted(early) if index < records]

    asyncio.run(check())


async def test_halves_can_fail_separately() -> None:
    shared, futures = outcome_of(3)
    first, second = shared.halves()
    assert (first.count, second.count) == (1, 2)
    first.set_result(PLACE)
    assert [future.done() for future in futures] == [True, False, False]
    second.set_exception(NotEnoughReplicas("too few"))
    assert futures[0].result() == PLACE
    assert isinstance(futures[2].exception(), NotEnoughReplicas)
    assert futures[1].exception() is futures[2].exception()


async def reports_of(*, asked: bool) -> list[Mapping[str, Any]]:
    """Return what the event loop reports of a failed batch that is dropped."""
    reports: list[Mapping[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: reports.append(context))
    shared, futures = outcome_of(2)
    shared.set_exception(NotEnoughReplicas("too few"))
    if asked:
        futures[1].exception()
    del shared, futures
    gc.collect()
    return reports


async def test_an_error_that_nobody_asks_for_is_reported_once() -> None:
    [report] = await reports_of(asked=False)
    assert isinstance(report["exception"], NotEnoughReplicas)
    assert report["message"] == "2 records failed, and nobody asked for their outcome"


async def test_an_error_that_was_asked_for_is_not_reported() -> None:
    assert await reports_of(asked=True) == []
