"""Streams of records that stay open: what happens meanwhile to who sends them, and how they end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest

from leadline_broker.api.app import build_app
from leadline_broker.api.v3.records.endpoints import ProduceEndpoint, RecordIntake
from leadline_common.access.rights import Grant, Role
from leadline_common.access.tokens import KeptToken, Token, hash_of, new_token
from leadline_common.access.users import User, Users
from leadline_common.http.access import Authentication
from leadline_common.metrics import Metrics
from tests.unit.broker.small_cluster import TOPIC, SmallCluster, three

MAY_WRITE = (Grant(Role.PRODUCER, ("*",), ("*",)),)


def users_of(token: Token, *grants: Grant) -> Users:
    kept = KeptToken(token.id, hash_of(token), 0)
    return Users.of({"alice": User(grants=grants, tokens=(kept,))})


class Streams:
    """A broker that leads the topic, and streams of a user to it."""

    def __init__(self, cluster: SmallCluster) -> None:
        broker = cluster.brokers[1]
        self.app = build_app(broker, request_max_bytes=1 << 20, metrics=Metrics())
        self.token = new_token(bytes(range(38)))
        self.users = users_of(self.token, *MAY_WRITE)
        self.app.authentication = Authentication(required=True, users=lambda: self.users)
        self.path = f"/v3/clusters/{broker.cluster_id}/topics/{TOPIC}/records"

    async def send(self, parts: AsyncIterator[bytes]) -> list[dict[str, Any]]:
        """Send a stream, and return its reports."""
        transport = httpx.ASGITransport(self.app)
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        async with httpx.AsyncClient(transport=transport, base_url="http://broker") as http:
            answer = await http.post(self.path, content=parts, headers=headers)
        assert answer.status_code == 200, answer.text
        return [json.loads(line) for line in answer.text.splitlines()]


@pytest.fixture
async def streams(tmp_path: Path) -> AsyncIterator[Streams]:
    async with await three(tmp_path) as cluster:
        cluster.tell_metadata(1)
        yield Streams(cluster)


async def test_a_stream_ends_its_records_with_the_right_to_send_them(streams: Streams) -> None:
    async def parts() -> AsyncIterator[bytes]:
        yield b'{"value": {"type": "STRING", "data": "allowed"}}'
        streams.users = users_of(streams.token)
        yield b'{"value": {"type": "STRING", "data": "revoked"}}'
        streams.users = Users()
        yield b'{"value": {"type": "STRING", "data": "unknown"}}'

    reports = await streams.send(parts())

    assert [one["error_code"] for one in reports] == [200, 40301, 40101]


async def test_a_part_with_very_many_records_lets_others_run_in_between() -> None:
    """A part of 64 KiB may have 32,768 records, and reading them takes 100 ms."""
    read, most = 0, 0

    def now_ms() -> int:  # asked for each record
        nonlocal read, most
        read += 1
        most = max(most, read)
        return 1

    async def others() -> None:
        nonlocal read
        while True:
            read = 0
            await asyncio.sleep(0)

    async def parts() -> AsyncIterator[bytes]:
        yield b"{}" * 32_768

    context = cast("Any", SimpleNamespace(now_ms=now_ms))
    endpoint = ProduceEndpoint(RecordIntake(context, cast("Any", None), 1 << 20))
    running = asyncio.create_task(others())
    windows = [len(one) async for one in endpoint._windows(parts())]
    running.cancel()
    assert (sum(windows), max(windows) <= 4_096, most <= 2_048) == (32_768, True, True)
