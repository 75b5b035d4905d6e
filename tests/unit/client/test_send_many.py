"""Records that are sent together: they go where `send` would put them, and each has an outcome."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline_client.accumulator import RecordAccumulator, chunks_of
from leadline_client.batch_header import parse_headers
from leadline_client.client import AsyncClient
from leadline_client.errors import (
    BodyTooLarge,
    InvalidRequest,
    NotEnoughReplicas,
    SerializationFailed,
    UnknownTopic,
)
from leadline_client.payloads import OutgoingRecord
from leadline_client.producer import AsyncProducer
from leadline_client.producer_settings import ProducerSettings
from leadline_client.sent_records import RecordMetadata
from leadline_client.sync_producer import Producer
from tests.unit.client.standin import StandInCluster

SMALL = ProducerSettings(linger_ms=1, batch_bytes=300)
HASTY = ProducerSettings(linger_ms=1, delivery_timeout_s=0.3)
VALUES = [b"%d" % number for number in range(500)]
KEYS = [b"key %d" % (number % 17) for number in range(500)]


async def test_many_records_keep_their_order_through_refusals_and_lost_answers(
    cluster: StandInCluster,
) -> None:
    cluster.partitions[0].faults.extend([NotEnoughReplicas(""), "append, then hang up"])
    async with AsyncProducer(cluster.bootstrap, SMALL) as producer:
        before = await producer.send("t", b"before", partition=0)
        sent = await producer.send_many("t", VALUES, partition=0)
        after = await producer.send("t", b"after", partition=0)
        found = await sent
        assert (await before).offset == 0
        assert (await after).offset == len(VALUES) + 1
    assert cluster.values(0) == [b"before", *VALUES, b"after"]
    assert found == [RecordMetadata("t", 0, offset + 1) for offset in range(len(VALUES))]
    assert len(sent) == len(VALUES)


async def test_each_record_is_where_its_metadata_says(cluster: StandInCluster) -> None:
    async with AsyncProducer(cluster.bootstrap, SMALL) as producer:
        keyed = await (await producer.send_many("t", VALUES, keys=KEYS))
        keyless = await (await producer.send_many("t", VALUES))
        single = [await (await producer.send("t", b"", key=key)) for key in KEYS[:17]]
    for found in (keyed, keyless):
        assert [cluster.values(one.partition)[one.offset] for one in found] == VALUES
    assert [one.partition for one in keyed[:17]] == [one.partition for one in single]
    assert {one.partition for one in keyless} == {0, 1, 2}


async def test_a_batch_that_fails_fails_its_records_alone(cluster: StandInCluster) -> None:
    cluster.partitions[1].faults.extend([NotEnoughReplicas("")] * 1000)
    async with AsyncClient(cluster.bootstrap) as client:
        producer = AsyncProducer(client, HASTY)
        sent = await producer.send_many("t", VALUES, keys=KEYS)
        outcomes = await sent.outcomes()
        with pytest.raises(NotEnoughReplicas):
            await sent
        await producer.aclose()
    stored = {value for partition in (0, 2) for value in cluster.values(partition)}
    failed = [
        value
        for value, one in zip(VALUES, outcomes, strict=True)
        if type(one) is not RecordMetadata
    ]
    assert failed
    assert stored.isdisjoint(failed)
    assert stored | set(failed) == set(VALUES)


async def test_many_records_wait_for_room_in_the_buffer(cluster: StandInCluster) -> None:
    settings = ProducerSettings(linger_ms=1, batch_bytes=400, buffer_bytes=800)
    cluster.partitions[0].faults.extend([NotEnoughReplicas("")] * 5)
    async with AsyncProducer(cluster.bootstrap, settings) as producer:
        await producer.send("t", b"x" * 700, partition=0)
        adding = asyncio.create_task(producer.send_many("t", [b"y" * 60] * 20, partition=0))
        await asyncio.wait([adding], timeout=0.02)
        assert not adding.done()
        assert [one.offset for one in await (await adding)] == list(range(1, 21))


async def test_after_an_error_nothing_was_sent(cluster: StandInCluster) -> None:
    async with AsyncProducer(cluster.bootstrap) as producer:
        with pytest.raises(InvalidRequest, match="2 keys for 3 values"):
            await producer.send_many("t", VALUES[:3], keys=KEYS[:2])
        with pytest.raises(SerializationFailed):
            await producer.send_many("t", [b"fine", cast("bytes", "no bytes")])
        with pytest.raises(UnknownTopic):
            await producer.send_many("unknown", VALUES)
        assert await (await producer.send_many("t", [])) == []
    assert [cluster.values(partition) for partition in range(3)] == [[], [], []]


async def test_an_abort_cancels_many_records(cluster: StandInCluster) -> None:
    cluster.partitions[0].faults.extend([NotEnoughReplicas("")] * 1000)
    with suppress(ZeroDivisionError):
        async with AsyncProducer(cluster.bootstrap, SMALL) as producer:
            sent = await producer.send_many("t", VALUES, partition=0)
            raise ZeroDivisionError
    outcomes = await sent.outcomes()
    assert {type(one) for one in outcomes} == {asyncio.CancelledError}


async def test_a_batch_that_is_too_large_for_the_topic_is_sent_by_halves(
    cluster: StandInCluster,
) -> None:
    row = cluster.partitions[0]
    row.max_bytes = 1_000
    async with AsyncProducer(cluster.bootstrap, ProducerSettings(linger_ms=1)) as producer:
        futures = [await producer.send("t", value, partition=0) for value in VALUES]
        many = await (await producer.send_many("t", VALUES, partition=0))
        assert [(await one).offset for one in futures] == list(range(len(VALUES)))
        assert [one.offset for one in many] == list(range(len(VALUES), 2 * len(VALUES)))
        refused = row.too_large
        assert refused > 0
        again = [await producer.send("t", value, partition=0) for value in VALUES]
        await producer.flush()
        assert all(not one.exception() for one in again)
        assert row.too_large == refused
        too_large = await producer.send("t", b"x" * 2_000, partition=0)
        with pytest.raises(BodyTooLarge):
            await too_large
        assert (await (await producer.send("t", b"next", partition=0))).offset == 3 * len(VALUES)
    assert cluster.values(0) == [*VALUES, *VALUES, *VALUES, b"next"]
    headers = list(parse_headers(bytes(row.log)))
    assert [one.base_sequence for one in headers] == [one.base_offset for one in headers]


async def test_an_abort_cancels_the_halves_of_a_batch_too(cluster: StandInCluster) -> None:
    row = cluster.partitions[0]
    row.faults.extend([BodyTooLarge("")] * 2 + [NotEnoughReplicas("")] * 1000)
    async with AsyncClient(cluster.bootstrap) as client:
        producer = AsyncProducer(client, ProducerSettings(linger_ms=1))
        futures = [await producer.send("t", value, partition=0) for value in VALUES]
        async with asyncio.timeout(20):
            while row.appends < 4:  # noqa: ASYNC110 - the stand-in runs on another thread
                await asyncio.sleep(0.005)
        await producer.abort()
    assert all(future.cancelled() for future in futures)


def test_the_blocking_producer_sends_many_behind_what_was_sent_before(
    cluster: StandInCluster,
) -> None:
    with Producer(cluster.bootstrap, SMALL) as producer:
        before = producer.send("t", b"before", partition=0)
        sent = producer.send_many("t", VALUES, partition=0)
        after = producer.send("t", b"after", partition=0)
        assert [one.offset for one in sent.result(20)] == list(range(1, len(VALUES) + 1))
        assert (before.result(20).offset, after.result(20).offset) == (0, len(VALUES) + 1)
        assert len(sent) == len(VALUES)
    assert cluster.values(0) == [b"before", *VALUES, b"after"]
    with pytest.raises(InvalidRequest, match="closed"):
        producer.send_many("t", VALUES)


def test_the_blocking_producer_tells_each_outcome(cluster: StandInCluster) -> None:
    cluster.partitions[1].faults.extend([NotEnoughReplicas("")] * 1000)
    with Producer(cluster.bootstrap, HASTY) as producer:
        sent = producer.send_many("t", VALUES, keys=KEYS)
        with pytest.raises(TimeoutError):
            sent.outcomes(timeout_s=0.0)
        kinds = {type(one) for one in sent.outcomes(20)}
        with pytest.raises(NotEnoughReplicas):
            sent.result(20)
    assert kinds == {RecordMetadata, NotEnoughReplicas}


@given(st.lists(st.integers(1, 30)), st.integers(1, 40))
def test_chunks_have_all_records_once_and_no_more_bytes_than_they_may(
    sizes: list[int], most: int
) -> None:
    chunks = list(chunks_of(sizes, most))
    assert [index for chunk in chunks for index in chunk] == list(range(len(sizes)))
    for chunk in chunks:
        assert len(chunk) == 1 or sum(sizes[index] for index in chunk) <= most


@given(st.lists(st.integers(1, 5)))
def test_a_token_stands_for_as_many_records_as_were_added_with_it(runs: list[int]) -> None:
    accumulator: RecordAccumulator[int] = RecordAccumulator(batch_bytes=10, linger_s=0)
    for token, count in enumerate(runs):
        records = [OutgoingRecord(b"%d" % token)] * count
        accumulator.add_run(records, count, token, 0.0)
    assert accumulator.added == sum(runs)
    found = []
    while accumulator:
        batch = accumulator.take()
        assert batch.size == len(batch.records) <= 10
        expected = [
            t for t, count in zip(batch.tokens, batch.counts, strict=True) for _ in range(count)
        ]
        assert [int(record.value or b"") for record in batch.records] == expected
        found += expected
    assert found == [token for token, count in enumerate(runs) for _ in range(count)]
