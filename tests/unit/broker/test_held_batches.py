"""Batches of idempotent producers that come before their predecessor (R15)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline_broker.domain import held_batches
from leadline_broker.domain.held_batches import MAX_HELD, MAX_HELD_BYTES, hold_ms, may_hold
from leadline_broker.domain.producers import ProducerStates, SequencedBatch, sequence_after
from leadline_client.errors import NotLeader, OutOfOrderSequence
from leadline_client.wire import ProduceResult
from tests.unit.broker.small_cluster import SmallCluster, batch, three

LONG_MS = 60_000
"""A request that may take so long is held for as long as any."""
SHORT_MS = 40
PRODUCER = 7


@pytest.fixture
async def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SmallCluster]:
    # On a busy machine the batches of a test may come further apart than those of a producer.
    monkeypatch.setattr(held_batches, "_MAX_HOLD_MS", LONG_MS)
    async with await three(tmp_path) as running:
        await running.send(1, numbered(0))
        yield running


def numbered(sequence: int, *, epoch: int = 0) -> bytearray:
    """Return a batch of one record, whose value is its sequence number."""
    return batch(str(sequence), producer=(PRODUCER, epoch, sequence))


def sending(cluster: SmallCluster, sequence: int) -> asyncio.Task[ProduceResult]:
    return asyncio.create_task(cluster.send(1, numbered(sequence), timeout_ms=LONG_MS))


async def held(cluster: SmallCluster, count: int) -> None:
    """Wait until so many batches wait at broker 1."""
    sequences = cluster.brokers[1].engine.serving.sequences
    size = len(numbered(0))
    await cluster.until(lambda: sequences.held_bytes == count * size, f"{count} batches wait")


@pytest.mark.parametrize(
    ("epoch", "sequence", "ahead"),
    [
        (3, 15, False),
        (3, 16, True),
        (3, 2**30, True),
        (3, 10, False),
        (4, 1, False),
        (3, -1, False),
    ],
    ids=["next", "gap", "large gap", "repeated", "another epoch", "none"],
)
def test_a_batch_is_ahead_of_what_its_producer_has_appended(
    epoch: int, sequence: int, ahead: bool
) -> None:
    states = ProducerStates([(PRODUCER, 3, 0, (SequencedBatch(10, 14, 0),))])
    assert states.is_ahead(PRODUCER, epoch, sequence) is ahead
    assert not states.is_ahead(PRODUCER + 1, epoch, sequence)


@given(st.integers(0, 2**31 - 1), st.integers(1, 2**29))
def test_what_comes_later_is_ahead_also_where_numbers_begin_again(last: int, by: int) -> None:
    states = ProducerStates([(PRODUCER, 0, 0, (SequencedBatch(last, last, 0),))])
    assert states.is_ahead(PRODUCER, 0, sequence_after(last, 1 + by))
    assert not states.is_ahead(PRODUCER, 0, sequence_after(last, 1 - by))


def test_what_waits_is_limited() -> None:
    assert may_hold(MAX_HELD - 1, 0, MAX_HELD_BYTES)
    assert not may_hold(MAX_HELD, 0, 1)
    assert not may_hold(0, 1, MAX_HELD_BYTES)
    assert hold_ms(1_000) < 1_000
    assert hold_ms(LONG_MS) == hold_ms(10 * LONG_MS) < 1_000


async def test_batches_that_come_backwards_are_appended_in_order(cluster: SmallCluster) -> None:
    later = []
    for sequence in (4, 3, 2):
        later.append(sending(cluster, sequence))
        await held(cluster, len(later))

    first = await cluster.send(1, numbered(1), timeout_ms=LONG_MS)

    results = [first, *reversed(await asyncio.gather(*later))]
    assert [result.base_offset for result in results] == [1, 2, 3, 4]
    assert await cluster.read(1) == ["0", "1", "2", "3", "4"]
    await held(cluster, 0)


async def test_a_batch_whose_predecessor_never_comes_is_refused(cluster: SmallCluster) -> None:
    with pytest.raises(OutOfOrderSequence):
        await cluster.send(1, numbered(2), timeout_ms=SHORT_MS)

    assert cluster.end(1) == 1
    await held(cluster, 0)


async def test_one_more_batch_than_may_wait_is_refused_at_once(cluster: SmallCluster) -> None:
    waiting = []
    for sequence in range(2, 2 + MAX_HELD):
        waiting.append(sending(cluster, sequence))
        await held(cluster, len(waiting))

    with pytest.raises(OutOfOrderSequence):
        await cluster.send(1, numbered(2 + MAX_HELD), timeout_ms=LONG_MS)

    assert not any(one.done() for one in waiting)
    await cluster.send(1, numbered(1))
    await asyncio.gather(*waiting)


async def test_a_waiting_batch_learns_at_once_that_leadership_has_moved(
    cluster: SmallCluster,
) -> None:
    waiting = sending(cluster, 2)
    await held(cluster, 1)
    cluster.publish(2, 1, (1, 2, 3))

    await cluster.grant(1, 2, 3)

    with pytest.raises(NotLeader):
        await waiting


async def test_a_batch_with_the_numbers_of_a_waiting_one_changes_nothing(
    cluster: SmallCluster,
) -> None:
    """The sender lost its connection and repeats the batch while the first copy still waits."""
    copies = [sending(cluster, 2), sending(cluster, 2)]
    await held(cluster, 2)

    await cluster.send(1, numbered(1))

    results = await asyncio.gather(*copies)
    assert [result.base_offset for result in results] == [2, 2]
    assert sorted(result.duplicate for result in results) == [False, True]
    assert await cluster.read(1) == ["0", "1", "2"]


async def test_a_sender_that_goes_away_leaves_nothing_behind(cluster: SmallCluster) -> None:
    waiting = sending(cluster, 2)
    await held(cluster, 1)

    waiting.cancel()

    await held(cluster, 0)
    await cluster.send(1, numbered(1))
    assert cluster.end(1) == 2


async def test_a_batch_whose_predecessor_is_appended_goes_on_before_that_is_committed(
    cluster: SmallCluster,
) -> None:
    """Followers are cut off, so that nothing but the append can wake the batch."""
    cluster.cut = {2, 3}
    waiting = sending(cluster, 2)
    await held(cluster, 1)
    first = sending(cluster, 1)

    await cluster.until(lambda: cluster.end(1) == 3, "both are appended")

    assert not first.done()
    cluster.cut = set()
    assert [one.base_offset for one in await asyncio.gather(first, waiting)] == [1, 2]
