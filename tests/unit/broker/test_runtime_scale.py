"""What 10,000 partitions may cost a broker while nothing happens in them: counts, not times."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from leadline_broker.runtime.replication import fetchers
from leadline_client.errors import StaleIncarnation
from leadline_common import rpc
from leadline_common.identity import InternalAddress
from leadline_common.slices import SLICE
from tests.unit.broker.small_cluster import SmallCluster, batch

PARTITIONS = 10_000
PER_TOPIC = 100
TASKS_OF_A_BROKER = 25
"""With a request under way of each of its eight fetchers."""


def topic_id(number: int) -> str:
    return f"{number:032x}"


def grant(broker: int, incarnation: int) -> rpc.LeaderAndIsrRequest:
    """Return 10,000 rows; this broker leads a third of them."""
    rows = [
        rpc.PartitionRow(number, 1 + number % 3, 0, (1, 2, 3), (1, 2, 3), 0)
        for number in range(PER_TOPIC)
    ]
    topics = [
        rpc.TopicRows(f"t{number}", topic_id(number), {}, rows)
        for number in range(PARTITIONS // PER_TOPIC)
    ]
    addresses = [
        rpc.BrokerRow(number, f"http://b/{number}", None, 1, f"https://b/{number}")
        for number in (1, 2, 3)
    ]
    return rpc.LeaderAndIsrRequest(
        controller_id=0,
        controller_epoch=1,
        broker_id=broker,
        incarnation=incarnation,
        is_init=True,
        ack_timeout_ms=1_000,
        cause="test",
        brokers=addresses,
        topics=topics,
    )


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[SmallCluster]:
    """Broker 1 alone, with its 10,000 replicas."""
    async with SmallCluster(tmp_path) as running:
        await running.start(1)
        answer = await running.brokers[1].engine.commands.leader_and_isr(grant(1, 1))
        assert all(code == rpc.NO_ERROR for codes in answer.codes for code in codes)
        yield running


def led_rows(offset: int = 0) -> list[rpc.FetchTopic]:
    """Return a follower's position in every partition that broker 1 leads."""
    rows = [rpc.FetchRow(number, 0, offset, -1) for number in range(0, PER_TOPIC, 3)]
    return [rpc.FetchTopic(topic_id(n), rows) for n in range(PARTITIONS // PER_TOPIC)]


def request(nonce: int, topics: list[rpc.FetchTopic]) -> rpc.ReplicaFetchRequest:
    return rpc.ReplicaFetchRequest(
        broker_id=2,
        incarnation=1,
        session=1,
        nonce=nonce,
        wait_ms=1,
        min_bytes=1,
        max_bytes=1 << 20,
        topics=topics,
    )


async def test_a_grant_makes_no_files_and_no_tasks_of_its_own(cluster: SmallCluster) -> None:
    files = [path.name for path in (cluster.root / "1").iterdir() if path.is_dir()]

    assert len(cluster.brokers[1].engine.replicas.describe()) == PARTITIONS
    assert files == []
    assert len(asyncio.all_tasks()) <= TASKS_OF_A_BROKER


async def test_settled_partitions_are_not_looked_at_for_isr_changes(
    cluster: SmallCluster,
) -> None:
    assert len(cluster.brokers[1].engine.replicas.unsettled) == 0


async def test_the_digest_sums_up_every_role(cluster: SmallCluster) -> None:
    replicas = cluster.brokers[1].engine.replicas
    expected = rpc.digest_of(
        (topic_id(topic), number, 0)
        for topic in range(PARTITIONS // PER_TOPIC)
        for number in range(PER_TOPIC)
    )

    assert (replicas.applied_count, replicas.digest) == (PARTITIONS, expected)


async def test_only_the_partition_with_news_is_answered(cluster: SmallCluster) -> None:
    broker = cluster.brokers[1]
    await broker.engine.sessions.fetch(request(1, led_rows()))
    assert (await broker.engine.sessions.fetch(request(2, []))).topics == []

    await broker.engine.serving.produce("t7", 3, batch("v"), acks="1", timeout_ms=10)
    answer = await broker.engine.sessions.fetch(request(3, []))

    assert [(topic.topic_id, len(topic.partitions)) for topic in answer.topics] == [
        (topic_id(7), 1)
    ]


async def test_a_fetch_names_no_more_positions_than_a_leader_takes_at_once(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its loop stands still, and so it does again with each failed attempt."""
    monkeypatch.setattr(fetchers, "MOST_POSITIONS", 20)
    await cluster.start(2)
    wire = cluster.wires[2]
    ask, named = wire.fetch, list[int]()

    async def fetch(
        to: InternalAddress, request: rpc.ReplicaFetchRequest, timeout_ms: int
    ) -> rpc.ReplicaFetchResponse:
        if to.url == "https://b/1":
            named.append(sum(len(topic.partitions) for topic in request.topics))
        return await ask(to, request, timeout_ms)

    wire.fetch = fetch  # type: ignore[method-assign]  # it counts, too
    await cluster.brokers[2].engine.commands.leader_and_isr(grant(2, 1))
    led = cluster.brokers[1].engine.replicas.led()
    await cluster.until(
        lambda: all(one.replica.leading().progress[2].end == 0 for one in led),
        "every position is known to the leader",
    )

    assert max(named) == 20
    assert sum(named) == len(led)


async def test_others_are_served_while_ten_thousand_roles_are_taken(tmp_path: Path) -> None:
    async with SmallCluster(tmp_path) as cluster:
        await cluster.start(1)
        engine = cluster.brokers[1].engine
        taking = asyncio.create_task(engine.commands.leader_and_isr(grant(1, 1)))
        seen = set[int]()
        while not taking.done():
            seen.add(len(engine.replicas))
            await asyncio.sleep(0)

        assert len(seen) >= PARTITIONS / SLICE
        assert len(engine.replicas) == PARTITIONS


async def test_a_grant_that_is_overtaken_between_slices_makes_no_strays(tmp_path: Path) -> None:
    """The overtaking one may have added replicas that the first does not know."""
    async with SmallCluster(tmp_path) as cluster:
        await cluster.start(1)
        commands = cluster.brokers[1].engine.commands
        first = msgspec.structs.replace(grant(1, 1), sequence=1)
        later = grant(1, 1)
        added = msgspec.structs.replace(later.topics[0], topic="new", topic_id="f" * 32)
        later = msgspec.structs.replace(later, sequence=2, topics=[added, *later.topics])
        taking = asyncio.create_task(commands.leader_and_isr(first))
        await asyncio.sleep(0)
        await asyncio.gather(taking, commands.leader_and_isr(later))

        assert len(cluster.brokers[1].engine.replicas) == PARTITIONS + PER_TOPIC


async def test_a_grant_ends_with_the_incarnation_that_it_is_for(tmp_path: Path) -> None:
    async with SmallCluster(tmp_path) as cluster:
        await cluster.start(1)
        broker = cluster.brokers[1]
        taking = asyncio.create_task(broker.engine.commands.leader_and_isr(grant(1, 1)))
        await asyncio.sleep(0)
        broker.state.incarnation += 1

        with pytest.raises(StaleIncarnation):
            await taking
        assert not broker.state.granted
        assert len(broker.engine.replicas) <= SLICE
