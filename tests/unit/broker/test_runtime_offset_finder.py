"""Offsets of many partitions from any broker: in bulk, by timestamp, and by long poll."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from leadline_broker.runtime.broker import Broker
from leadline_broker.runtime.serving.offset_finder import MOST_ASKED
from leadline_client.errors import (
    BrokerFenced,
    ConnectionLost,
    InvalidRequest,
    LeaderNotAvailable,
    NotLeader,
    UnknownLeaderEpoch,
    UnknownTopic,
)
from leadline_common import rpc
from leadline_common.bulk_offsets import (
    EARLIEST,
    LATEST,
    BulkAnswer,
    BulkQuestion,
    PartitionAnswer,
    PartitionQuestion,
)
from leadline_common.identity import ServiceAddress
from leadline_common.slices import SLICE
from tests.support.turns import answer_and_turns
from tests.unit.broker.small_cluster import TOPIC, SmallCluster, batch

LEADERS = {0: 1, 1: 2, 2: 3}


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[SmallCluster]:
    """Three brokers; each leads one partition, and knows who leads the others."""
    async with SmallCluster(tmp_path) as running:
        await running.start(1, 2, 3)
        for partition, leader in LEADERS.items():
            running.publish(leader, 0, (1, 2, 3), partition=partition)
        await running.grant(1, 2, 3, init=True, partitions=(0, 1, 2))
        tell_metadata(running, 1, 2, 3)
        yield running


def tell_metadata(cluster: SmallCluster, *to: int, version: int = 1) -> None:
    """Send UpdateMetadata with what is published."""
    for number in to:
        grant = cluster.request(number, partitions=(0, 1, 2))
        cluster.brokers[number].engine.commands.update_metadata(
            rpc.UpdateMetadataRequest(
                "cluster",
                rpc.ControllerRow(9, "http://c/9", cluster.controller_epoch),
                number,
                cluster.brokers[number].state.incarnation,
                version,
                0,
                True,
                "test",
                grant.brokers,
                grant.topics,
            )
        )


async def ask(broker: Broker, question: BulkQuestion) -> list[PartitionAnswer]:
    answer: BulkAnswer = await broker.engine.offset_finder.answer(question)
    return answer.partitions


async def produce(cluster: SmallCluster, partition: int, *values: str) -> None:
    leader = cluster.brokers[cluster.nodes.states[TOPIC, partition].leader]
    await leader.engine.serving.produce(
        TOPIC, partition, batch(*values), acks="all", timeout_ms=5_000
    )


def watermarks(rows: list[PartitionAnswer]) -> list[int | None]:
    return [row.offsets.high_watermark if row.offsets else None for row in rows]


@pytest.mark.parametrize("asked", [1, 2, 3])
async def test_any_broker_answers_for_all_leaders(cluster: SmallCluster, asked: int) -> None:
    await produce(cluster, 1, "a", "b")

    rows = await ask(cluster.brokers[asked], BulkQuestion(topics=[TOPIC]))

    assert [row.partition for row in rows] == [0, 1, 2]
    assert watermarks(rows) == [0, 2, 0]
    assert [row.leader.id for row in rows if row.leader] == [1, 2, 3]


async def test_answers_come_in_the_order_of_the_questions(cluster: SmallCluster) -> None:
    questions = [PartitionQuestion(TOPIC, number) for number in (2, 0, 1, 2)]

    rows = await ask(cluster.brokers[1], BulkQuestion(partitions=questions))

    assert [row.partition for row in rows] == [2, 0, 1, 2]


async def test_local_scope_refuses_what_others_lead_and_says_who(cluster: SmallCluster) -> None:
    rows = await ask(cluster.brokers[1], BulkQuestion(topics=[TOPIC], scope="local"))

    assert [row.error_code for row in rows] == [0, NotLeader.code, NotLeader.code]
    assert [row.leader.url for row in rows if row.leader] == [f"http://b/{n}" for n in (1, 2, 3)]


async def test_one_refusal_spoils_nothing(cluster: SmallCluster) -> None:
    question = BulkQuestion(
        topics=["no"], partitions=[PartitionQuestion(TOPIC, 9), PartitionQuestion(TOPIC, 0)]
    )

    rows = await ask(cluster.brokers[1], question)

    assert rows[0].error_code == UnknownTopic.code
    assert rows[1].error_code != 0
    assert watermarks(rows) == [None, None, 0]


async def test_a_leader_that_does_not_answer_is_said_of_its_partitions_only(
    cluster: SmallCluster,
) -> None:
    cluster.cut = {2}

    rows = await ask(cluster.brokers[1], BulkQuestion(topics=[TOPIC]))

    assert [row.error_code for row in rows] == [0, LeaderNotAvailable.code, 0]


async def test_a_leader_that_has_moved_is_followed(cluster: SmallCluster) -> None:
    await produce(cluster, 1, "a")
    cluster.publish(3, 1, (1, 2, 3), partition=1)
    await cluster.grant(2, 3, partitions=(1,))
    tell_metadata(cluster, 2, 3, version=2)
    await cluster.until(
        lambda: cluster.brokers[3].engine.replicas.describe()[1].high_watermark == 1,
        "the new leader knows",
    )

    rows = await ask(cluster.brokers[1], BulkQuestion(partitions=[PartitionQuestion(TOPIC, 1)]))

    assert watermarks(rows) == [1]
    assert rows[0].leader is not None
    assert rows[0].leader.id == 3


async def test_timestamps_are_looked_up_at_every_leader(cluster: SmallCluster) -> None:
    for partition in LEADERS:
        await produce(cluster, partition, "a", "b")
    lookups = {}
    for timestamp in (EARLIEST, LATEST, 1, 2):
        rows = await ask(cluster.brokers[2], BulkQuestion(topics=[TOPIC], timestamp=timestamp))
        lookups[timestamp] = [(r.offsets.offset, r.offsets.timestamp) for r in rows if r.offsets]

    assert lookups == {
        EARLIEST: [(0, None)] * 3,
        LATEST: [(2, None)] * 3,
        1: [(0, 1)] * 3,
        2: [(None, None)] * 3,
    }


@pytest.mark.parametrize("moving", [0, 1])
async def test_a_wait_ends_when_any_partition_moves(cluster: SmallCluster, moving: int) -> None:
    after = {TOPIC: {0: 0, 1: 0, 2: 0}}
    question = BulkQuestion(topics=[TOPIC], wait_ms=20_000, after=after)
    waiting = asyncio.create_task(ask(cluster.brokers[1], question))
    await asyncio.sleep(0)

    await produce(cluster, moving, "a")

    async with asyncio.timeout(10):
        rows = await waiting
    assert watermarks(rows)[moving] == 1


async def test_a_wait_ends_with_its_time(cluster: SmallCluster) -> None:
    after = {TOPIC: {0: 0}}

    rows = await ask(cluster.brokers[1], BulkQuestion(topics=[TOPIC], wait_ms=50, after=after))

    assert watermarks(rows) == [0, 0, 0]


async def test_a_wait_outlives_a_change_of_leader(cluster: SmallCluster) -> None:
    await produce(cluster, 1, "a")
    question = BulkQuestion(
        partitions=[PartitionQuestion(TOPIC, 1)], wait_ms=20_000, after={TOPIC: {1: 1}}
    )
    waiting = asyncio.create_task(ask(cluster.brokers[1], question))
    await asyncio.sleep(0.05)
    cluster.publish(3, 1, (1, 2, 3), partition=1)
    await cluster.grant(1, 2, 3, partitions=(1,))
    tell_metadata(cluster, 1, 2, 3, version=2)

    await produce(cluster, 1, "b")

    async with asyncio.timeout(10):
        assert watermarks(await waiting) == [2]


async def test_a_broker_that_stops_lets_nobody_wait(cluster: SmallCluster) -> None:
    question = BulkQuestion(topics=[TOPIC], wait_ms=20_000, after={TOPIC: {1: 0}})
    waiting = asyncio.create_task(ask(cluster.brokers[1], question))
    await asyncio.sleep(0.05)

    cluster.brokers[1].stop_serving()

    async with asyncio.timeout(5):
        rows = await waiting
    assert {row.error_code for row in rows} == {BrokerFenced.code}


async def test_what_nobody_waits_for_does_not_end_a_wait(cluster: SmallCluster) -> None:
    question = BulkQuestion(topics=[TOPIC], wait_ms=300, after={TOPIC: {0: 0}})
    waiting = asyncio.create_task(ask(cluster.brokers[1], question))
    await asyncio.sleep(0)

    await produce(cluster, 1, "a")
    assert not waiting.done()

    assert watermarks(await waiting) == [0, 1, 0]


@pytest.mark.parametrize(
    "question",
    [BulkQuestion(), BulkQuestion(topics=[TOPIC], after={"other": {0: 1}}, wait_ms=1)],
    ids=["nothing asked", "after names another"],
)
async def test_a_question_without_sense_is_refused(
    cluster: SmallCluster, question: BulkQuestion
) -> None:
    with pytest.raises(InvalidRequest):
        await ask(cluster.brokers[1], question)


async def test_epochs_end_where_the_next_one_began(cluster: SmallCluster) -> None:
    await produce(cluster, 0, "a", "b")
    cluster.publish(1, 4, (1, 2, 3))
    await cluster.grant(1, 2, 3)
    await produce(cluster, 0, "c")
    serving = cluster.brokers[1].engine.serving

    ends = {epoch: serving.epoch_end(TOPIC, 0, epoch) for epoch in (0, 2, 4)}

    assert {asked: (end.epoch, end.end_offset) for asked, end in ends.items()} == {
        0: (0, 2),
        2: (0, 2),
        4: (4, 3),
    }
    assert ends[0].leader_epoch == 4
    with pytest.raises(UnknownLeaderEpoch):
        serving.epoch_end(TOPIC, 0, 5)


async def test_a_leader_has_longer_for_many_times(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand lookups take seconds; with the usual timeout every retry would fail as well."""
    broker, given = cluster.brokers[1], []
    peers = broker.engine.offset_finder.peers

    async def offsets(url: str, question: BulkQuestion, timeout_ms: int) -> BulkAnswer:
        del url
        given.append(timeout_ms)
        return BulkAnswer([PartitionAnswer(*one.topic_partition) for one in question.partitions])

    monkeypatch.setattr(peers, "offsets", offsets)
    for number in (1, 1_000):
        await ask(broker, BulkQuestion(partitions=[PartitionQuestion(TOPIC, 1, 5)] * number))

    few, many = given
    assert few < 5_000
    assert many > 30_000


async def test_a_leader_is_asked_for_a_limited_number_at_a_time(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, sizes = cluster.brokers[1], []
    offsets = broker.engine.offset_finder.peers.offsets

    async def counted(to: ServiceAddress, question: BulkQuestion, timeout_ms: int) -> BulkAnswer:
        sizes.append(len(question.partitions))
        if len(sizes) == 3:
            raise ConnectionLost("the leader died")
        return await offsets(to, question, timeout_ms)

    monkeypatch.setattr(broker.engine.offset_finder.peers, "offsets", counted)
    asked = [PartitionQuestion(TOPIC, 1)] * (4 * MOST_ASKED + 1)

    rows = await ask(broker, BulkQuestion(partitions=asked))

    assert sizes == [MOST_ASKED] * 3
    answered = [row.error_code for row in rows]
    assert answered[: 2 * MOST_ASKED] == [0] * (2 * MOST_ASKED)
    assert set(answered[2 * MOST_ASKED :]) == {LeaderNotAvailable.code}
    assert len(answered) == len(asked)


@pytest.mark.parametrize("leader", [1, 2], ids=["here", "elsewhere"])
async def test_very_many_partitions_are_answered_in_turns(
    cluster: SmallCluster, leader: int
) -> None:
    asked = [PartitionQuestion(TOPIC, leader - 1)] * (5 * SLICE)
    question = BulkQuestion(partitions=asked)
    rows, turns = await answer_and_turns(ask(cluster.brokers[1], question))
    assert watermarks(rows) == [0] * len(asked)
    assert turns > len(asked) / SLICE
