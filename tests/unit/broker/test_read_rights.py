"""Reads that wait for records: what happens meanwhile to who sends them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from leadline_broker.api.app import build_app
from leadline_broker.runtime.serving.fetched_data import FetchedData
from leadline_broker.runtime.serving.group_polls import GroupPoll, Polled
from leadline_client.wire import TopicPartition
from leadline_common.access.rights import Grant, Role
from leadline_common.access.tokens import KeptToken, Token, hash_of, new_token
from leadline_common.access.users import User, Users
from leadline_common.group_polls import Position, SessionPoint, SyncAnswer
from leadline_common.http.access import Authentication
from leadline_common.metrics import Metrics
from tests.support.services.zookeeper import until
from tests.unit.broker.small_cluster import TOPIC, TOPIC_ID, SmallCluster, batch, three

MAY_READ = (Grant(Role.CONSUMER, ("*",), ("*",)),)


def users_of(token: Token, *grants: Grant) -> Users:
    kept = KeptToken(token.id, hash_of(token), 0)
    return Users.of({"alice": User(grants=grants, tokens=(kept,))})


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[SmallCluster]:
    async with await three(tmp_path) as cluster:
        cluster.tell_metadata(1)
        yield cluster


class Reader:
    """A user of a broker, who has a token and may read everything."""

    def __init__(self, cluster: SmallCluster) -> None:
        self.app = build_app(cluster.brokers[1], request_max_bytes=1 << 20, metrics=Metrics())
        self.token = new_token(bytes(range(38)))
        self.users = users_of(self.token, *MAY_READ)
        self.app.authentication = Authentication(required=True, users=lambda: self.users)

    def lose(self, what: str) -> None:
        """Take the right or the token away, or nothing."""
        lost = {"right": users_of(self.token), "token": Users(), "nothing": self.users}
        self.users = lost[what]

    async def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Send a request."""
        transport = httpx.ASGITransport(self.app)
        headers = {"Authorization": f"Bearer {self.token}", **options.pop("headers", {})}
        async with httpx.AsyncClient(transport=transport, base_url="http://broker") as http:
            return await http.request(method, path, headers=headers, timeout=60, **options)


LOST = pytest.mark.parametrize(("lost", "code"), [("right", 403), ("token", 401), ("nothing", 200)])


@LOST
@pytest.mark.parametrize("accept", ["application/json", "application/octet-stream"])
async def test_a_waiting_read_returns_records_only_to_who_may_still_read_them(
    cluster: SmallCluster, accept: str, lost: str, code: int
) -> None:
    """They are appended after the right, or the token, was taken away."""
    reader = Reader(cluster)
    path = f"/v1/topics/{TOPIC}/partitions/0/records?offset=0&wait_ms=60000"
    read = asyncio.create_task(reader.request("GET", path, headers={"Accept": accept}))
    partition = cluster.brokers[1].engine.replicas.named(TOPIC, 0)
    assert partition is not None
    await until(lambda: bool(partition._waiting), "the read waits")
    reader.lose(lost)

    await cluster.produce(1, "secret")

    answer = await read
    assert answer.status_code == code
    assert (b"secret" in answer.content) == (code == 200)


@LOST
async def test_a_waiting_poll_returns_records_only_to_who_may_still_read_them(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch, lost: str, code: int
) -> None:
    reader = Reader(cluster)

    async def poll(_: GroupPoll) -> Polled:
        reader.lose(lost)
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
