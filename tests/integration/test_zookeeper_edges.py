"""Sessions at the edges: other limits after a restart, silent hosts, servers with lost data."""

from __future__ import annotations

from pathlib import Path

from leadline_client.clock import monotonic_s
from leadline_common.zk.session import ZkSession
from tests.support.embedded_zookeeper import EmbeddedZooKeeper
from tests.support.services.zookeeper import until

LONG_TICK_MS = 10_000
SHORT_TICK_MS = 500


async def test_the_lease_follows_the_timeout_of_the_latest_connection(tmp_path: Path) -> None:
    """A server never grants less than two ticks, and this one has other ticks when it is back."""
    reconnections: list[str] = []
    session = ZkSession(on_reconnected=lambda: reconnections.append("told"))
    with EmbeddedZooKeeper(tmp_path, tick_time_ms=LONG_TICK_MS) as before:
        await session.start(before.hosts, 100)
        assert session.session_timeout_ms == 2 * LONG_TICK_MS
    try:
        with EmbeddedZooKeeper(tmp_path, before.config.port, tick_time_ms=SHORT_TICK_MS):
            await until(lambda: bool(reconnections), "the session is connected again")

            assert session.session_timeout_ms == 2 * SHORT_TICK_MS
            assert session.lease.valid_until_ms <= monotonic_s() * 1000 + 2 * SHORT_TICK_MS
            await until(session.lease_valid, "heartbeats are as frequent as it needs")
    finally:
        await session.close()
