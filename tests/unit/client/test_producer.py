"""Producers: order, places, and no duplicate after an unknown outcome."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from leadline_client.batch_header import parse_headers
from leadline_client.client import AsyncClient
from leadline_client.errors import (
    InvalidRequest,
    LeaderHint,
    NotEnoughReplicas,
    NotLeader,
    OutcomeUnknown,
    UnknownPartition,
)
from leadline_client.murmur2 import partition_for_key
from leadline_client.producer import AsyncProducer
from leadline_client.producer_settings import ProducerSettings
from leadline_client.sync_producer import Producer
from tests.unit.client.standin import Fault, Partition, StandInCluster

SMALL = ProducerSettings(linger_ms=1, batch_bytes=300)
HASTY = ProducerSettings(linger_ms=1, delivery_timeout_s=0.3)


async def test_records_of_a_partition_are_appended_in_the_order_of_sending(
    cluster: StandInCluster,
) -> None:
    cluster.partitions[0].faults.extend([NotEnoughReplicas(""), "append, then hang up"])
    values = [str(number).encode() for number in range(500)]
    async with AsyncClient(cluster.bootstrap) as client:
        async with AsyncProducer(client, SMALL) as producer:
            futures = [await producer.send("t", value, partition=0) for value in values]
        places = [future.result() for future in futures]
    assert cluster.values(0) == values
    assert [place.offset for place in places] == list(range(500))
    assert cluster.partitions[0].appends > 10


async def test_a_record_that_nobody_waits_for_makes_no_future(
    cluster: StandInCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, made = asyncio.get_running_loop(), 0
    create_future = loop.create_future

    def counted() -> asyncio.Future[object]:
        nonlocal made
        made += 1
        return create_future()

    async with AsyncClient(cluster.bootstrap) as client, AsyncProducer(client) as producer:
        await (await producer.send("t", b"first", partition=0))
        monkeypatch.setattr(loop, "create_future", counted)
        futures = [await producer.send("t", b"v", partition=0) for _ in range(1000)]
        await producer.flush()
        assert made < 50
        assert [future.result().offset for future in futures] == list(range(1, 1001))


async def test_records_sent_alone_and_together_keep_their_order(cluster: StandInCluster) -> None:
    async with AsyncClient(cluster.bootstrap) as client, AsyncProducer(client) as producer:
        first = [await producer.send("t", b"%d" % number, partition=0) for number in range(3)]
        middle = await producer.send_many("t", [b"3", b"4"], partition=0)
        last = [await producer.send("t", b"%d" % number, partition=0) for number in range(5, 8)]
        await producer.flush()
        places = [*(await asyncio.gather(*first)), *(await middle), *(await asyncio.gather(*last))]
    assert [place.offset for place in places] == list(range(8))
    assert cluster.values(0) == [b"%d" % number for number in range(8)]


@pytest.mark.parametrize("fault", ["append, then hang up", "hang up"])
async def test_an_unknown_outcome_is_resolved_without_a_duplicate(
    cluster: StandInCluster, fault: Fault
) -> None:
    cluster.partitions[0].faults.extend([fault] * 3)
    async with AsyncClient(cluster.bootstrap) as client:
        async with AsyncProducer(client) as producer:
            future = await producer.send("t", b"once", partition=0)
        assert future.result().offset == 0
    assert cluster.values(0) == [b"once"]


async def test_a_producer_that_is_not_idempotent_does_not_repeat(cluster: StandInCluster) -> None:
    cluster.partitions[0].faults.append("append, then hang up")
    async with AsyncClient(cluster.bootstrap) as client:
        async with AsyncProducer(client, ProducerSettings(idempotent=False)) as producer:
            future = await producer.send("t", b"once", partition=0)
        assert isinstance(future.exception(), OutcomeUnknown)
    assert cluster.values(0) == [b"once"]


async def test_after_an_unknown_outcome_the_next_batch_has_another_producer_id(
    cluster: StandInCluster,
) -> None:
    row = cluster.partitions[0]
    async with (
        AsyncClient(cluster.bootstrap) as client,
        AsyncProducer(client, HASTY) as producer,
    ):
        await (await producer.send("t", b"first", partition=0))
        row.faults.extend(["hang up"] * 1000)
        lost = await producer.send("t", b"lost", partition=0)
        with pytest.raises(OutcomeUnknown):
            await lost
        row.faults.clear()
        await (await producer.send("t", b"next", partition=0))
    headers = list(parse_headers(bytes(row.log)))
    assert [one.base_sequence for one in headers] == [0, 0]
    assert headers[0].producer_id != headers[1].producer_id


async def test_after_a_definite_refusal_the_numbers_are_used_again(
    cluster: StandInCluster,
) -> None:
    row = cluster.partitions[0]
    async with (
        AsyncClient(cluster.bootstrap) as client,
        AsyncProducer(client, HASTY) as producer,
    ):
        row.faults.extend([NotEnoughReplicas("")] * 1000)
        with pytest.raises(NotEnoughReplicas):
            await (await producer.send("t", b"refused", partition=0))
        row.faults.clear()
        await (await producer.send("t", b"next", partition=0))
    assert [one.base_sequence for one in parse_headers(bytes(row.log))] == [0]


async def test_partitions_are_independent_of_one_another(cluster: StandInCluster) -> None:
    cluster.partitions[0].faults.extend([NotEnoughReplicas("")] * 1000)
    async with AsyncClient(cluster.bootstrap) as client:
        producer = AsyncProducer(client, HASTY)
        stuck = await producer.send("t", b"a", partition=0)
        assert (await (await producer.send("t", b"b", partition=1))).offset == 0
        assert not stuck.done()
        await producer.aclose()
        assert isinstance(stuck.exception(), NotEnoughReplicas)


async def test_keys_choose_partitions_and_unknown_partitions_are_refused(
    cluster: StandInCluster,
) -> None:
    async with AsyncClient(cluster.bootstrap) as client, AsyncProducer(client) as producer:
        place = await (await producer.send("t", b"v", key=b"foobar"))
        assert place.partition == partition_for_key(b"foobar", 3)
        with pytest.raises(UnknownPartition):
            await producer.send("t", b"v", partition=3)


async def test_sending_waits_while_the_buffer_is_full(cluster: StandInCluster) -> None:
    settings = ProducerSettings(linger_ms=1, buffer_bytes=100)
    cluster.partitions[0].faults.extend([NotEnoughReplicas("")] * 5)
    async with AsyncClient(cluster.bootstrap) as client:
        producer = AsyncProducer(client, settings)
        first = await producer.send("t", b"x" * 60, partition=0)
        second = asyncio.create_task(producer.send("t", b"y" * 60, partition=0))
        await asyncio.wait([second], timeout=0.02)
        assert not second.done()
        await first
        await (await second)
        await producer.aclose()


@pytest.mark.parametrize("end", [AsyncProducer.abort, AsyncProducer.aclose])
async def test_what_waits_when_the_producer_is_closed_is_refused(
    cluster: StandInCluster, end: Callable[[AsyncProducer[bytes, bytes]], Awaitable[None]]
) -> None:
    settings = ProducerSettings(linger_ms=60_000, buffer_bytes=100)
    async with AsyncClient(cluster.bootstrap) as client:
        producer = AsyncProducer(client, settings)
        first = await producer.send("t", b"x" * 60, partition=0)
        others = [
            asyncio.ensure_future(producer.send("t", b"y" * 60, partition=0)),
            asyncio.ensure_future(producer.send_many("t", [b"z" * 60], partition=0)),
        ]
        await asyncio.wait(others, timeout=0.02)
        await end(producer)
        for other in others:
            with pytest.raises(InvalidRequest, match="was closed"):
                await other
        assert first.done()
        assert cluster.values(0) in ([], [b"x" * 60])
        assert not [one for one in asyncio.all_tasks() if "send_all" in repr(one)]


async def test_a_failure_that_nobody_asks_for_is_reported_while_the_producer_is_open(
    cluster: StandInCluster,
) -> None:
    reports: list[str] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, told: reports.append(told["message"])
    )
    cluster.partitions[0].faults.append(InvalidRequest("no"))
    async with AsyncClient(cluster.bootstrap) as client, AsyncProducer(client) as producer:
        for _ in range(3):
            await producer.send("t", b"v", partition=0)
        await producer.flush()
        gc.collect()
        assert reports == ["3 records failed, and nobody asked for their outcome"]


@pytest.mark.parametrize("is_asked", [False, True])
async def test_failures_of_records_that_were_sent_together_are_reported_likewise(
    cluster: StandInCluster, *, is_asked: bool
) -> None:
    reports: list[str] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, told: reports.append(told["message"])
    )
    cluster.partitions[0].faults.append(InvalidRequest("no"))
    async with AsyncClient(cluster.bootstrap) as client, AsyncProducer(client) as producer:
        sent = await producer.send_many("t", [b"v"] * 3, partition=0)
        if is_asked:
            await sent.outcomes()
        await producer.flush()
        del sent
        gc.collect()
        expected = [] if is_asked else ["3 records failed, and nobody asked for their outcome"]
        assert reports == expected


async def test_leaving_by_an_exception_does_not_wait_for_acknowledgements(
    cluster: StandInCluster,
) -> None:
    cluster.partitions[0].faults.extend([NotEnoughReplicas("")] * 1000)
    async with AsyncClient(cluster.bootstrap) as client:
        with suppress(ZeroDivisionError):
            async with AsyncProducer(client, SMALL) as producer:
                futures = [await producer.send("t", b"x" * 99, partition=0) for _ in range(9)]
                raise ZeroDivisionError
        assert all(future.cancelled() for future in futures)


async def test_after_an_abort_no_record_is_taken_for_a_duplicate(cluster: StandInCluster) -> None:
    """The batch in flight was appended, but its response was lost: its numbers are used."""
    row = cluster.partitions[0]
    row.faults.append("append, then hang up")
    row.faults.extend([NotEnoughReplicas("")] * 1000)
    async with AsyncClient(cluster.bootstrap) as client:
        producer = AsyncProducer(client, SMALL)
        await producer.send("t", b"aborted", partition=0)
        async with asyncio.timeout(20):
            while row.appends < 2:  # noqa: ASYNC110 - the stand-in runs on another thread
                await asyncio.sleep(0.005)
        await producer.abort()
        row.faults.clear()
        place = await (await producer.send("t", b"later", partition=0))
        assert cluster.values(0)[place.offset] == b"later"


async def test_a_close_that_is_cancelled_leaves_nothing_open(cluster: StandInCluster) -> None:
    cluster.partitions[0].faults.extend([NotEnoughReplicas("")] * 1000)
    client = AsyncClient(cluster.bootstrap)
    before = asyncio.all_tasks()
    producer = AsyncProducer(client, SMALL)
    sent = await producer.send("t", b"one", partition=0)
    closing = asyncio.ensure_future(producer.aclose())
    async with asyncio.timeout(20):
        while cluster.partitions[0].appends == 0:  # noqa: ASYNC110 - on another thread
            await asyncio.sleep(0.005)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    with pytest.raises(asyncio.CancelledError):
        await sent
    assert asyncio.all_tasks() == before
    await client.aclose()


async def test_flush_does_not_wait_for_records_sent_after_its_start(
    cluster: StandInCluster,
) -> None:
    async with AsyncClient(cluster.bootstrap) as client, AsyncProducer(client) as producer:
        first = await producer.send("t", b"x", partition=0)

        async def go_on() -> None:
            while True:
                await producer.send("t", b"x", partition=0)
                await asyncio.sleep(0)

        busy = asyncio.create_task(go_on())
        async with asyncio.timeout(20):
            await producer.flush()
        busy.cancel()
        assert first.done()


def test_the_blocking_producer_returns_offsets(cluster: StandInCluster) -> None:
    with Producer(cluster.bootstrap) as producer:
        futures = [producer.send("t", str(n).encode(), partition=2) for n in range(50)]
        producer.flush()
        assert [future.result(timeout=0).offset for future in futures] == list(range(50))


def test_an_idempotent_producer_needs_acks_all() -> None:
    with pytest.raises(InvalidRequest):
        assert ProducerSettings(acks="1", idempotent=True).numbers_batches


def grow(cluster: StandInCluster) -> None:
    """Add a partition, as an operator may while producers run."""
    cluster.partitions[len(cluster.partitions)] = Partition(leader=1)
    cluster.version += 1


async def test_a_partition_added_meanwhile_can_be_chosen(cluster: StandInCluster) -> None:
    async with AsyncClient(cluster.bootstrap) as client, AsyncProducer(client) as producer:
        await (await producer.send("t", b"before", partition=0))
        grow(cluster)
        place = await (await producer.send("t", b"after", partition=3))
        with pytest.raises(UnknownPartition):
            await producer.send("t", b"never", partition=4)
    assert place.partition == 3


async def test_records_reach_a_partition_that_was_added_when_metadata_has_aged(
    cluster: StandInCluster,
) -> None:
    settings = ProducerSettings(linger_ms=0, batch_bytes=1, metadata_max_age_s=0.05)
    async with (
        AsyncClient(cluster.bootstrap) as client,
        AsyncProducer(client, settings) as producer,
        asyncio.timeout(10),
    ):
        await (await producer.send("t", b"before"))
        grow(cluster)
        while not cluster.values(3):
            await asyncio.gather(*[await producer.send("t", b"after") for _ in range(8)])


async def test_whatever_the_client_learns_of_a_topic_the_producer_knows_at_once(
    cluster: StandInCluster,
) -> None:
    async with AsyncClient(cluster.bootstrap) as client, AsyncProducer(client) as producer:
        await (await producer.send("t", b"before", key=b"k"))
        grow(cluster)
        await client.metadata()
        place = await (await producer.send("t", b"after", key=b"key 3"))
    assert place.partition == partition_for_key(b"key 3", 4) == 3


async def test_a_leader_of_an_earlier_topic_of_the_name_is_not_asked_for_ever(
    cluster: StandInCluster,
) -> None:
    """A broker that lags behind the deletion and the new topic names the leader of the old one."""
    row = cluster.partitions[0]
    cluster.topic_id = "id-2"
    former = LeaderHint(2, cluster.urls[2], 7, "id-1")
    row.faults.append(NotLeader("elsewhere", leader=former))
    settings = ProducerSettings(linger_ms=0, delivery_timeout_s=5)
    async with AsyncProducer(cluster.bootstrap, settings) as producer:
        await (await producer.send("t", b"1", partition=0))
    assert cluster.values(0) == [b"1"]


@pytest.mark.parametrize("end", [AsyncProducer.aclose, AsyncProducer.abort])
@pytest.mark.parametrize("many", [False, True])
async def test_what_waits_for_metadata_when_the_producer_is_closed_is_refused(
    cluster: StandInCluster, end: Callable[[AsyncProducer], Awaitable[None]], *, many: bool
) -> None:
    """It would be sent by a producer that is closed, over a connection that stays open."""
    async with AsyncClient(cluster.bootstrap) as client:
        producer = AsyncProducer(client)
        sending = producer.send_many("t", [b"one"]) if many else producer.send("t", b"one")
        waiting = asyncio.ensure_future(sending)
        await asyncio.sleep(0)
        await end(producer)
        with pytest.raises(InvalidRequest, match="was closed"):
            await waiting
    assert not any(cluster.values(partition) for partition in cluster.partitions)
