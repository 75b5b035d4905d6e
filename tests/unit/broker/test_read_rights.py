"""Reads that wait for records: what happens meanwhile to who sends them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from leadline_broker.runtime.serving.fetched_data import FetchedData
from leadline_broker.runtime.serving.group_polls import GroupPoll, Polled
from leadline_client.wire import TopicPartition
from leadline_common.access.rights import Grant, Role
from leadline_common.group_polls import Position, SessionPoint, SyncAnswer
from tests.support.services.zookeeper import until
from tests.unit.broker.broker_user import BrokerUser
from tests.unit.broker.small_cluster import TOPIC, TOPIC_ID, SmallCluster, batch, three

MAY_READ = Grant(Role.CONSUMER, ("*",), ("*",))
LOST = pytest.mark.parametrize(("lost", "code"), [("right", 403), ("token", 401), ("nothing", 200)])


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[SmallCluster]:
    async with await three(tmp_path) as cluster:
        cluster.tell_metadata(1)
        yield cluster


def lose(reader: BrokerUser, what: str) -> None:
    if what == "right":
        reader.lose_rights()
    if what == "token":
        reader.lose_token()


@LOST
@pytest.mark.parametrize("accept", ["application/json", "application/octet-stream"])
async def test_a_waiting_read_returns_records_only_to_who_may_still_read_them(
    cluster: SmallCluster, accept: str, lost: str, code: int
) -> None:
    """They are appended after the right, or the token, was taken away."""
    reader = BrokerUser(cluster, MAY_READ)
    path = f"/v1/topics/{TOPIC}/partitions/0/records?offset=0&wait_ms=60000"
    read = asyncio.create_task(reader.request("GET", path, headers={"Accept": accept}))
    partition = cluster.brokers[1].engine.replicas.named(TOPIC, 0)
    assert partition is not None
    await until(lambda: bool(partition._waiting), "the read waits")
    lose(reader, lost)

    await cluster.produce(1, "secret")

    answer = await read
    assert answer.status_code == code
    assert (b"secret" in answer.content) == (code == 200)


@LOST
async def test_a_waiting_poll_returns_records_only_to_who_may_still_read_them(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch, lost: str, code: int
) -> None:
    reader = BrokerUser(cluster, MAY_READ)

    async def poll(_: GroupPoll) -> Polled:
        lose(reader, lost)
        sync = SyncAnswer(SessionPoint(1, 1, 1, 1), 1, 10_000, 10_000, "earliest")
        records = bytes(batch("secret"))
        fetched = FetchedData(records, 1, 0, 1, 1, TOPIC_ID, 1, len(records))
        partition = TopicPartition(TOPIC, 0)
        return Polled(sync, {partition: Position(0, 1)}, {partition: fetched})

    monkeypatch.setattr(cluster.brokers[1].engine.group_polls, "poll", poll)

    body = {"secret": "s", "wait_ms": 30_000}
    answer = await reader.request("POST", "/v1/groups/g/consumers/m/poll", json=body)

    assert answer.status_code == code
    assert (b"secret" in answer.content) == (code == 200)
