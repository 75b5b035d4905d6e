"""Streams of records that stay open: what happens meanwhile to who sends them, and how they end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from leadline_broker.api.v3.records.endpoints import ProduceEndpoint, RecordIntake
from leadline_common.access.rights import Grant, Role
from tests.unit.broker.broker_user import BrokerUser
from tests.unit.broker.small_cluster import TOPIC, SmallCluster, three

MAY_WRITE = Grant(Role.PRODUCER, ("*",), ("*",))


class Streams:
    """A broker that leads the topic, and streams of a user to it."""

    def __init__(self, cluster: SmallCluster) -> None:
        self.broker = cluster.brokers[1]
        self.user = BrokerUser(cluster, MAY_WRITE)
        self.path = f"/v3/clusters/{cluster.brokers[1].cluster_id}/topics/{TOPIC}/records"

    async def send(self, parts: AsyncIterator[bytes]) -> list[dict[str, Any]]:
        """Send a stream, and return its reports."""
        headers = {"Content-Type": "application/json"}
        answer = await self.user.request("POST", self.path, content=parts, headers=headers)
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
        streams.user.lose_rights()
        yield b'{"value": {"type": "STRING", "data": "revoked"}}'
        streams.user.lose_token()
        yield b'{"value": {"type": "STRING", "data": "unknown"}}'

    reports = await streams.send(parts())

    assert [one["error_code"] for one in reports] == [200, 40301, 40101]


async def test_a_broker_that_stops_ends_its_streams(streams: Streams) -> None:
    """They would hold it up, and be cut off then with reports on their way."""
    finder = streams.broker.engine.offset_finder

    async def parts() -> AsyncIterator[bytes]:
        yield b'{"value": {"type": "STRING", "data": "before"}} {"value":'
        finder.stop()
        await asyncio.Event().wait()

    async with asyncio.timeout(10):
        reports = await streams.send(parts())

    assert [one["error_code"] for one in reports] == [200, 50302]
    assert "another" in reports[-1]["message"]
    assert not [one for one in asyncio.all_tasks() if "until_stopping" in repr(one)]


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
