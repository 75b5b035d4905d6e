"""Controlled shutdown: moving the leaders, and when the broker stops waiting for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from leadline_broker.runtime.replication import controlled_shutdown
from leadline_client.errors import ConnectionLost, NoController, NotLeader
from leadline_common import rpc
from tests.unit.broker.small_cluster import TOPIC, TOPIC_ID, SmallCluster, three

Answer = rpc.ControlledShutdownResponse
Answers = Callable[[], Awaitable[Answer]]


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[SmallCluster]:
    async with await three(tmp_path, controlled_shutdown_timeout_ms=60_000) as running:
        for number in running.brokers:
            tell(running, number)
        yield running


def tell(cluster: SmallCluster, to: int, live: tuple[int, ...] = (1, 2, 3)) -> None:
    """Send a broker the metadata: the live brokers, and the assigned replicas."""
    broker = cluster.brokers[to]
    row = rpc.PartitionRow(0, 1, 0, (1, 2, 3), (1, 2, 3), 0)
    broker.engine.commands.update_metadata(
        rpc.UpdateMetadataRequest(
            cluster_id="cluster",
            controller=rpc.ControllerRow(9, "http://c/9", cluster.controller_epoch),
            broker_id=to,
            incarnation=broker.state.incarnation,
            version=broker.metadata.version + 1,
            base_version=-1,
            full=True,
            cause="test",
            brokers=[
                rpc.BrokerRow(each, f"http://b/{each}", None, 1, f"https://b/{each}")
                for each in live
            ],
            topics=[rpc.TopicRows(TOPIC, TOPIC_ID, {}, [row])],
        )
    )


async def move(cluster: SmallCluster) -> None:
    """Let 2 lead, as the controller would."""
    cluster.publish(2, 1, (1, 2, 3))
    await cluster.grant(1, 2, 3)


def controller(cluster: SmallCluster, *answers: Answers) -> list[str]:
    """Answer requests in this order, and then with the last answer; return the causes received."""
    causes: list[str] = []

    async def answer(request: rpc.ControlledShutdownRequest) -> Answer:
        assert (request.broker_id, request.incarnation) == (1, 1)
        causes.append(request.cause)
        return await answers[min(len(causes), len(answers)) - 1]()

    cluster.on_controlled_shutdown = answer
    return causes


def moved(cluster: SmallCluster) -> Answers:
    async def answer() -> Answer:
        await move(cluster)
        return Answer(1, [])

    return answer


async def stuck() -> Answer:
    return Answer(1, [(TOPIC, 0)])


async def unreachable() -> Answer:
    raise ConnectionLost("no response")


async def standby() -> Answer:
    raise NoController("this one is not active")


async def test_it_serves_until_another_leads(cluster: SmallCluster) -> None:
    """The response may arrive before the new role."""
    loop = asyncio.get_running_loop()
    moving: list[asyncio.Task[None]] = []

    async def soon() -> Answer:
        loop.call_later(0.05, lambda: moving.append(asyncio.create_task(move(cluster))))
        return Answer(1, [])

    causes = controller(cluster, soon)
    handing_over = asyncio.create_task(cluster.brokers[1].controlled_shutdown())
    await cluster.produce(1, "served")

    await handing_over

    assert causes == ["shutdown-1-1"]
    assert cluster.brokers[1].engine.replicas.describe()[0].role == "follower"
    assert (await cluster.produce(2, "by another")).base_offset == 1


async def test_it_waits_for_the_answers_to_what_it_accepted(cluster: SmallCluster) -> None:
    cluster.cut = {3}
    produce = asyncio.create_task(cluster.produce(1, "accepted before the move"))
    await cluster.until(lambda: cluster.end(2) == 1, "2 has the record, 3 has not")
    controller(cluster, moved(cluster))

    handing_over = asyncio.create_task(cluster.brokers[1].controlled_shutdown())
    await cluster.until(
        lambda: cluster.brokers[1].engine.replicas.describe()[0].role == "follower", "2 leads"
    )
    assert not handing_over.done()
    cluster.cut = set()

    assert (await produce).base_offset == 0
    await handing_over


async def test_it_names_the_new_leader_to_clients_with_older_metadata(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once its connections close, a produce on its way would have an unknown outcome."""
    monkeypatch.setattr(controlled_shutdown, "REDIRECT_S", 600)
    controller(cluster, moved(cluster))

    handing_over = asyncio.create_task(cluster.brokers[1].controlled_shutdown())
    await cluster.until(
        lambda: cluster.brokers[1].engine.replicas.describe()[0].role == "follower", "2 leads"
    )
    with pytest.raises(NotLeader) as refusal:
        await cluster.produce(1, "by somebody who has not heard of the move")

    assert refusal.value.leader is not None
    assert refusal.value.leader.id == 2
    assert not handing_over.done()
    handing_over.cancel()
    await asyncio.wait([handing_over])


@pytest.mark.parametrize("trouble", [unreachable, standby])
async def test_it_asks_again_where_a_controller_may_come(
    cluster: SmallCluster, trouble: Answers
) -> None:
    causes = controller(cluster, trouble, moved(cluster))

    await cluster.brokers[1].controlled_shutdown()

    assert len(causes) == 2
    assert cluster.brokers[1].engine.replicas.describe()[0].role == "follower"


async def test_it_waits_for_a_replica_that_may_catch_up(cluster: SmallCluster) -> None:
    causes = controller(cluster, stuck, moved(cluster))

    await cluster.brokers[1].controlled_shutdown()

    assert len(causes) == 2
    assert cluster.brokers[1].engine.replicas.describe()[0].role == "follower"


async def test_it_does_not_wait_where_nobody_else_is(cluster: SmallCluster) -> None:
    tell(cluster, 1, live=(1,))
    causes = controller(cluster, stuck)

    await cluster.brokers[1].controlled_shutdown()

    assert len(causes) == 1


async def test_it_does_not_wait_for_a_controller_that_refuses(cluster: SmallCluster) -> None:
    await cluster.brokers[1].controlled_shutdown()

    assert cluster.brokers[1].engine.replicas.describe()[0].role == "leader"


async def test_who_leads_nothing_does_not_wait_for_a_controller(cluster: SmallCluster) -> None:
    causes = controller(cluster, unreachable)
    await move(cluster)

    await cluster.brokers[1].controlled_shutdown()

    assert len(causes) == 1


async def test_who_was_never_granted_anything_does_not_ask(tmp_path: Path) -> None:
    async with SmallCluster(tmp_path) as cluster:
        await cluster.start(1)
        causes = controller(cluster, unreachable)

        await cluster.brokers[1].controlled_shutdown()

        assert causes == []


async def test_it_does_not_ask_without_a_lease(cluster: SmallCluster) -> None:
    causes = controller(cluster, moved(cluster))
    cluster.stores[1].lease = False

    await cluster.brokers[1].controlled_shutdown()

    assert causes == []


@pytest.mark.parametrize(
    "settings", [{"controlled_shutdown_enable": False}, {"controlled_shutdown_timeout_ms": 0}]
)
async def test_it_can_be_switched_off_and_limited(tmp_path: Path, settings: dict[str, int]) -> None:
    async with await three(tmp_path, **settings) as cluster:
        tell(cluster, 1)
        controller(cluster, stuck)

        await cluster.brokers[1].controlled_shutdown()

        assert cluster.brokers[1].engine.replicas.describe()[0].role == "leader"


async def test_requests_and_answers_fit_the_wire() -> None:
    answer = Answer(3, [("t", 0), ("t", 1)])

    assert msgspec.json.decode(msgspec.json.encode(answer), type=Answer) == answer
