"""What time a broker takes it to be, by what controllers say."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from leadline_common.rpc import UNKNOWN_TIME, HeartbeatResponse
from tests.unit.broker.small_cluster import SmallCluster, three

LATER_MS = 3_600_000


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[SmallCluster]:
    async with await three(tmp_path) as running:
        yield running


async def test_defect_52_a_broker_goes_on_by_the_time_it_has_heard(cluster: SmallCluster) -> None:
    """A controller that was just elected does not know what time it is by most clocks."""
    engine = cluster.brokers[1].engine
    engine.heartbeats.on_response = lambda _: None
    engine.time.hear(engine.clock.wall_ms() - LATER_MS)
    behind_ms, epoch = engine.time.ahead_ms(), engine.commands.controller_epoch

    engine.on_heartbeat_response(HeartbeatResponse(0, epoch, time_ms=UNKNOWN_TIME))

    assert engine.time.ahead_ms() == behind_ms

    engine.on_heartbeat_response(HeartbeatResponse(0, epoch, time_ms=engine.clock.wall_ms()))

    assert engine.time.ahead_ms() < behind_ms
