"""S9: members of a three-server ZooKeeper die under load, one by one and then the quorum."""

from __future__ import annotations

import asyncio
import time
from urllib.parse import urlsplit

import pytest

from leadline_cli.embedded_zookeeper import server_mode
from tests.support.faults.faults import kill
from tests.support.faults.scenario import SESSION_MS, Scenario, scenario
from tests.support.services.cluster import wait_until

pytestmark = pytest.mark.slow


async def mode_of(running: Scenario, name: str) -> str | None:
    """Return `leader` or `follower`, or None while the ZooKeeper server does not serve."""
    servers = running.cluster.supervisor.layout.zookeeper_servers
    url = next(server.url for server in servers if server.name == name)
    return await asyncio.to_thread(server_mode, urlsplit(url).port or 0)


async def member(running: Scenario, mode: str) -> str:
    """Return the name of a ZooKeeper server in a mode, waiting for there to be one."""

    async def find() -> str | None:
        for server in running.cluster.supervisor.layout.zookeeper_servers:
            if await mode_of(running, server.name) == mode:
                return server.name
        return None

    return await wait_until(find, f"a ZooKeeper server is the {mode}")


async def replace(running: Scenario, name: str) -> None:
    """Start a killed ZooKeeper server again and wait until it serves."""
    running.cluster.restart(name)
    await wait_until(lambda: mode_of(running, name), f"{name} serves again")


@pytest.mark.scenario("S9")
async def test_s9_zookeeper_follower_then_leader_killed() -> None:
    async with scenario(zookeeper_members=3, controllers=2) as running:
        for mode in ("follower", "leader"):
            victim = await member(running, mode)
            await kill(running, victim)
            await running.load.progress()
            # The two that are left elect a leader, and controllers can still decide.
            await member(running, "leader")
            await replace(running, victim)
            await running.load.progress()


@pytest.mark.scenario("S9")
@pytest.mark.parametrize(
    "seconds", [3 * SESSION_MS / 1000, pytest.param(20.0, marks=pytest.mark.soak)]
)
async def test_s9_no_acknowledgement_without_quorum_and_recovery_after(seconds: float) -> None:
    async with scenario(zookeeper_members=3, controllers=2) as running:
        victims = [await member(running, "leader"), await member(running, "follower")]
        for victim in victims:
            await kill(running, victim)
        lost_s = time.monotonic()
        await asyncio.sleep(seconds)
        restored_s = time.monotonic()
        for victim in victims:
            await replace(running, victim)
        await running.load.progress()
        # R10: a lease ends after two thirds of a session; a third is left for the way to here.
        silent_from_s = lost_s + SESSION_MS / 1000
        late = [ack for ack in running.load.acks if silent_from_s < ack.at_s < restored_s]
        assert not late, f"acknowledged without a lease: {late[:5]}"
