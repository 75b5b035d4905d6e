"""A producer that the leader has forgotten: it was idle, or its topic was recreated."""

from __future__ import annotations

import asyncio

import pytest

from leadline_broker.domain.producers import ProducerStates
from leadline_client.batch_header import BatchHeader, parse_headers
from leadline_client.errors import LeadlineError, OutcomeUnknown, OutOfOrderSequence
from leadline_client.producer import AsyncProducer
from tests.unit.client.standin import StandInCluster
from tests.unit.client.test_in_flight import ONE_EACH, numbers, producing, send


def stored(cluster: StandInCluster) -> list[BatchHeader]:
    return list(parse_headers(bytes(cluster.partitions[0].log)))


async def test_its_next_record_is_appended_with_another_producer_id(
    cluster: StandInCluster,
) -> None:
    """All before are acknowledged and this one is refused, so nothing can be appended twice."""
    async with AsyncProducer(cluster.bootstrap, ONE_EACH) as producer:
        for number in (0, 1):
            await asyncio.gather(*await send(producer, number))
        cluster.partitions[0].producers = ProducerStates()
        place = await (await send(producer, 2))[0]
        await asyncio.gather(*await send(producer, 3))
    assert place.offset == 2
    assert numbers(cluster) == [0, 1, 2, 3]
    assert [one.base_sequence for one in stored(cluster)] == [0, 1, 0, 1]


async def test_what_was_in_flight_behind_it_stays_behind_it(cluster: StandInCluster) -> None:
    async with producing(cluster) as (producer, transport):
        futures = await send(producer, 1, 2, 3)
        await transport.begin(1, 2, 3)
        cluster.partitions[0].producers = ProducerStates()
        for number in (3, 2, 1):
            transport.release(number)
        transport.release_all()
        places = await asyncio.gather(*futures)
    assert [place.offset for place in places] == [1, 2, 3]
    assert numbers(cluster) == [0, 1, 2, 3]


async def test_a_record_whose_outcome_was_unknown_before_is_not_appended_again(
    cluster: StandInCluster,
) -> None:
    """It may be in the log: another producer id would hide that it is sent twice."""
    async with producing(cluster) as (producer, transport):
        futures = await send(producer, 1)
        await transport.begin(1)
        transport.lost.add(1)
        transport.release(1)
        await transport.until_held(1)
        cluster.partitions[0].producers = ProducerStates()
        transport.release_all()
        with pytest.raises(OutcomeUnknown):
            await futures[0]
        await asyncio.gather(*await send(producer, 2))
    assert numbers(cluster) == [0, 1, 2]


@pytest.mark.parametrize(
    "refusal", [OutOfOrderSequence("", expected_sequence=1), OutOfOrderSequence("")]
)
async def test_a_gap_in_what_the_leader_knows_is_an_error(
    cluster: StandInCluster, refusal: LeadlineError
) -> None:
    async with AsyncProducer(cluster.bootstrap, ONE_EACH) as producer:
        await asyncio.gather(*await send(producer, 0))
        cluster.partitions[0].faults.append(refusal)
        with pytest.raises(OutOfOrderSequence):
            await (await send(producer, 1))[0]


async def test_a_leader_that_refuses_every_first_batch_is_an_error(
    cluster: StandInCluster,
) -> None:
    async with AsyncProducer(cluster.bootstrap, ONE_EACH) as producer:
        cluster.partitions[0].faults.append(OutOfOrderSequence("", expected_sequence=0))
        with pytest.raises(OutOfOrderSequence):
            await (await send(producer, 0))[0]
