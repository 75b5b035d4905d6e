"""Producers with several batches of a partition in flight, over connections of their own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from leadline_client.batch_header import header_at, parse_headers
from leadline_client.batch_window import MOST_IN_FLIGHT
from leadline_client.client import AsyncClient
from leadline_client.errors import (
    BodyTooLarge,
    ConnectionLost,
    CorruptBatch,
    ForeignProducerId,
    InvalidRequest,
    OutcomeUnknown,
)
from leadline_client.http_transport import AsyncHttpTransport
from leadline_client.payloads import EncodedBatch
from leadline_client.producer import AsyncProducer
from leadline_client.producer_settings import ProducerSettings
from leadline_client.record_future import RecordFuture
from leadline_client.security import Authenticator, Security
from leadline_client.sent_records import RecordMetadata
from leadline_client.transport import Request, Response
from leadline_client.wire import TopicPartition
from tests.unit.client.standin import StandInCluster

ONE_EACH = ProducerSettings(linger_ms=0, batch_bytes=1, delivery_timeout_s=20)
"""Each record is a batch."""
PLACE = TopicPartition("t", 0)


class HeldTransport:
    """Holds the appends of a producer, by sequence number, until a test lets them go.

    `sent` has the numbers of all appends in the order in which they came here, `held` those that
    wait. `lost`: the next request of such a number arrives, but its answer does not.
    `unanswered`: no request of such a number arrives.
    """

    def __init__(self) -> None:
        self.sent: list[int] = []
        self.held: dict[int, asyncio.Event] = {}
        self.lost: set[int] = set()
        self.unanswered: set[int] = set()
        self.open = False
        self._below = AsyncHttpTransport(Authenticator(Security()))

    async def send(self, request: Request) -> Response:
        if request.method != "POST" or not request.url.endswith("/records"):
            return await self._below.send(request)
        number = header_at(request.body).base_sequence
        self.sent.append(number)
        if not self.open:
            gate = self.held.setdefault(number, asyncio.Event())
            await gate.wait()
        if number in self.unanswered:
            raise ConnectionLost("the request was lost")
        response = await self._below.send(request)
        if number in self.lost:
            self.lost.remove(number)
            raise ConnectionLost("the answer was lost")
        return response

    async def until_held(self, *numbers: int) -> None:
        """Wait until exactly these appends are held."""
        async with asyncio.timeout(20):
            while set(self.held) != set(numbers):  # noqa: ASYNC110 - nothing tells of a request
                await asyncio.sleep(0.005)

    async def begin(self, *numbers: int) -> None:
        """Let the first append go, and wait until these are held."""
        self.release(0)
        await self.until_held(*numbers)

    def release(self, number: int) -> None:
        """Let an append go."""
        self.held.pop(number).set()

    def release_all(self) -> None:
        """Let all appends go, also those that come."""
        self.open = True
        for number in list(self.held):
            self.release(number)

    async def aclose(self) -> None:
        await self._below.aclose()


@asynccontextmanager
async def producing(
    cluster: StandInCluster, settings: ProducerSettings = ONE_EACH
) -> AsyncIterator[tuple[AsyncProducer[bytes, bytes], HeldTransport]]:
    """Yield a producer whose first batch is held, and its transport."""
    transport = HeldTransport()
    async with (
        AsyncClient(cluster.bootstrap, transport=transport) as client,
        AsyncProducer(client, settings) as producer,
    ):
        await send(producer, 0)
        await transport.until_held(0)
        yield producer, transport
        transport.release_all()


async def send(producer: AsyncProducer[bytes, bytes], *numbers: int) -> list[RecordFuture]:
    return [await producer.send("t", b"%d" % number, partition=0) for number in numbers]


def numbers(cluster: StandInCluster) -> list[int]:
    return [int(value or b"") for value in cluster.values(0)]


async def test_as_many_batches_as_allowed_are_in_flight(cluster: StandInCluster) -> None:
    async with producing(cluster) as (producer, transport):
        futures = await send(producer, *range(1, 9))
        await transport.begin(1, 2, 3, 4, 5)
        assert len(transport.held) == MOST_IN_FLIGHT
        transport.release_all()
        places = await asyncio.gather(*futures)
    assert [place.offset for place in places] == list(range(1, 9))
    assert numbers(cluster) == list(range(9))


async def test_answers_that_come_backwards_complete_the_right_futures(
    cluster: StandInCluster,
) -> None:
    async with producing(cluster) as (producer, transport):
        futures = await send(producer, 1, 2, 3)
        await transport.begin(1, 2, 3)
        for number in (3, 2):  # The leader refuses them: their predecessor is missing.
            transport.release(number)
        transport.open = True
        transport.release(1)
        places = await asyncio.gather(*futures)
    assert [place.offset for place in places] == [1, 2, 3]
    assert numbers(cluster) == [0, 1, 2, 3]


async def test_no_batch_goes_too_far_ahead_of_one_whose_answer_was_lost(
    cluster: StandInCluster,
) -> None:
    """The leader must still recognize it when it is repeated."""
    async with producing(cluster) as (producer, transport):
        futures = await send(producer, *range(1, 12))
        await transport.begin(1, 2, 3, 4, 5)
        transport.lost.add(1)
        transport.release(1)
        await transport.until_held(1, 2, 3, 4, 5)  # 1 is repeated.
        for number in (2, 3, 4, 5):
            transport.release(number)
        await asyncio.gather(*futures[1:5])
        assert not futures[0].done()
        await transport.until_held(1)
        transport.release_all()
        places = await asyncio.gather(*futures)
    assert [place.offset for place in places] == list(range(1, 12))
    assert numbers(cluster) == list(range(12))


async def test_a_batch_that_is_not_full_waits_for_the_one_in_flight(
    cluster: StandInCluster,
) -> None:
    settings = replace(ONE_EACH, batch_bytes=50)
    async with producing(cluster, settings) as (producer, transport):
        futures = await send(producer, 1, 2)
        await transport.begin(1)
        futures += await send(producer, 3)
        assert set(transport.held) == {1}
        futures += await send(producer, 4, 5)  # The batch of 3 and 4 is full now.
        await transport.until_held(1, 3)
        transport.release_all()
        await asyncio.gather(*futures)
    headers = parse_headers(bytes(cluster.partitions[0].log))
    assert [one.record_count for one in headers] == [1, 2, 2, 1]


@pytest.mark.parametrize(
    "settings",
    [
        replace(ONE_EACH, idempotent=False),
        replace(ONE_EACH, acks="1"),
        replace(ONE_EACH, max_in_flight=1),
    ],
    ids=["not idempotent", "acks=1", "as the settings say"],
)
async def test_one_batch_is_in_flight_at_a_time(
    cluster: StandInCluster, settings: ProducerSettings
) -> None:
    assert settings.batches_in_flight == 1
    async with (
        AsyncClient(cluster.bootstrap) as client,
        AsyncProducer(client, settings) as producer,
    ):
        await send(producer, *range(20))
    assert numbers(cluster) == list(range(20))


@pytest.mark.parametrize("count", [0, MOST_IN_FLIGHT + 1])
async def test_other_numbers_of_batches_in_flight_are_refused(
    cluster: StandInCluster, count: int
) -> None:
    with pytest.raises(InvalidRequest):
        AsyncProducer(cluster.bootstrap, ProducerSettings(max_in_flight=count))


async def test_what_follows_a_refused_batch_is_sent_in_order_with_its_numbers(
    cluster: StandInCluster,
) -> None:
    row = cluster.partitions[0]
    async with producing(cluster) as (producer, transport):
        futures = await send(producer, 1, 2, 3)
        await transport.begin(1, 2, 3)
        row.max_bytes = 0  # A batch of one record cannot be divided: it fails for good.
        transport.release(1)
        with pytest.raises(BodyTooLarge):
            await futures[0]
        row.max_bytes = None
        transport.release_all()
        places = await asyncio.gather(*futures[1:])
    assert [place.offset for place in places] == [1, 2]
    assert numbers(cluster) == [0, 2, 3]
    headers = list(parse_headers(bytes(row.log)))
    assert [one.base_sequence for one in headers] == [0, 1, 2]
    assert len({one.producer_id for one in headers}) == 1


async def test_what_follows_a_batch_in_doubt_is_sent_in_order_with_another_producer_id(
    cluster: StandInCluster,
) -> None:
    settings = replace(ONE_EACH, delivery_timeout_s=2.0)
    async with producing(cluster, settings) as (producer, transport):
        futures = await send(producer, 1, 2)
        await transport.begin(1, 2)
        transport.release(2)  # It is refused, and waits for 1.
        transport.unanswered.add(1)
        transport.open = True
        transport.release(1)
        with pytest.raises(OutcomeUnknown):
            await futures[0]
        place = await futures[1]
    assert place.offset == 1
    assert numbers(cluster) == [0, 2]
    headers = list(parse_headers(bytes(cluster.partitions[0].log)))
    assert [one.base_sequence for one in headers] == [0, 0]
    assert headers[0].producer_id != headers[1].producer_id


async def test_a_refused_producer_id_costs_one_batch_only(cluster: StandInCluster) -> None:
    async with producing(cluster) as (producer, transport):
        futures = await send(producer, 1, 2, 3)
        await transport.begin(1, 2, 3)
        # From now on the first producer id is somebody else's.
        cluster.partitions[0].foreign_id = cluster.next_producer_id
        for number in (3, 2, 1):
            transport.release(number)
        with pytest.raises(ForeignProducerId):
            await futures[0]
        transport.release_all()
        await asyncio.gather(*futures[1:])
    assert numbers(cluster) == [0, 2, 3]


async def test_an_unknown_outcome_stays_unknown_if_the_batch_before_fails(
    cluster: StandInCluster,
) -> None:
    row = cluster.partitions[0]
    async with producing(cluster) as (producer, transport):
        futures = await send(producer, 1, 2)
        await transport.begin(1, 2)
        transport.lost.add(2)
        transport.release(2)
        await transport.until_held(1, 2)
        row.max_bytes = 0
        transport.release(1)
        with pytest.raises(BodyTooLarge):
            await futures[0]
        row.max_bytes = None
        transport.release_all()
        with pytest.raises(OutcomeUnknown):
            await futures[1]
        await (await producer.send("t", b"3", partition=0))
    assert numbers(cluster) == [0, 3]


async def test_flush_waits_for_the_oldest_batch_not_for_as_many_as_were_sent(
    cluster: StandInCluster,
) -> None:
    async with producing(cluster) as (producer, transport):
        before = await send(producer, 1, 2)
        await transport.begin(1, 2)
        flushing = asyncio.create_task(producer.flush())
        await asyncio.sleep(0)
        after = await send(producer, 3, 4, 5)
        await transport.until_held(1, 2, 3, 4, 5)
        transport.lost.add(1)
        transport.release(1)
        await transport.until_held(1, 2, 3, 4, 5)
        for number in (2, 3, 4, 5):
            transport.release(number)
        await asyncio.gather(*after)
        assert not flushing.done()
        transport.release_all()
        await flushing
        assert all(future.done() for future in before)


async def test_an_abort_cancels_all_batches_in_flight(cluster: StandInCluster) -> None:
    async with producing(cluster) as (producer, transport):
        futures = await send(producer, *range(1, 9))
        await transport.begin(1, 2, 3, 4, 5)
        await producer.abort()
        assert all(future.cancelled() for future in futures)
        transport.release_all()
        place = await (await producer.send("t", b"9", partition=0))
        assert numbers(cluster)[place.offset] == 9


async def test_records_after_a_batch_that_cannot_be_encoded_are_appended(
    cluster: StandInCluster,
) -> None:
    """Their numbers go on: with those of earlier records, a broker would take them for repeated."""
    async with AsyncProducer(cluster.bootstrap, ONE_EACH) as producer:
        await asyncio.gather(*await send(producer, 0, 1))
        done: Future[RecordMetadata] = Future()
        await producer.add_encoded(PLACE, EncodedBatch(b"no batch", 1), done)
        with pytest.raises(CorruptBatch):
            await asyncio.wrap_future(done)
        places = await asyncio.gather(*await send(producer, 2, 3))
    assert [place.offset for place in places] == [2, 3]
    assert numbers(cluster) == [0, 1, 2, 3]
