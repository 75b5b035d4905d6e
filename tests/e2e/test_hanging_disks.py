"""S31: disks that hang. Nothing is answered, and nothing fails."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Final

import pytest

from leadline_client.wire import NewTopic
from tests.support.faults import disks as own
from tests.support.faults.disks import Disk, own_disks
from tests.support.faults.faults import expired, only_follows, out_of_isr
from tests.support.faults.scenario import TOPIC, Scenario, loaded, running_cluster
from tests.support.left_out import MARK
from tests.support.services.cluster import Cluster, wait_until

BROKERS: Final = ("broker-1", "broker-2", "broker-3")
DISK_BYTES: Final = 96 << 20
TIMEOUT_MS: Final = 2_000

pytestmark = [
    pytest.mark.slow,
    pytest.mark.scenario("S31"),
    pytest.mark.skipif(
        own.why_no_power_cuts() is not None, reason=f"{MARK}: {own.why_no_power_cuts()}"
    ),
]


@asynccontextmanager
async def hanging_disk(victim: str, timeout_ms: int) -> AsyncIterator[tuple[Scenario, Disk]]:
    """Run a cluster under load in which one broker's disk can hang."""
    settings = {"log.flush.timeout.ms": str(timeout_ms), "replica.lag.time.max.ms": "1500"}
    async with (
        running_cluster(settings=settings) as cluster,
        own_disks(cluster, [victim], DISK_BYTES, can_hang=True) as disks,
        loaded(cluster, NewTopic(TOPIC, 6, 3)) as running,
    ):
        try:
            yield running, disks[victim]
        finally:
            disks[victim].go_on()  # Otherwise the process could not even be killed.


async def ended(cluster: Cluster, victim: str) -> int | None:
    """Wait until a process has ended; return its exit code."""

    async def is_over() -> bool:
        return not cluster.child(victim).running

    await wait_until(is_over, f"{victim} has ended")
    return cluster.child(victim).exit_code


async def test_s31_a_leader_whose_disk_hangs_lets_others_lead(seeded: Random) -> None:
    """Its session is closed while the disk still hangs; it can end when the disk goes on."""
    victim = seeded.choice(BROKERS)
    async with hanging_disk(victim, TIMEOUT_MS) as (running, disk):
        led = await running.led_by(victim)
        running.cluster.note("hang", victim)
        disk.hang()
        for number in led:
            await running.cluster.leader_of(TOPIC, number, not_in=[victim])
        await running.load.progress()
        running.cluster.note("go on", victim)
        disk.go_on()
        assert await ended(running.cluster, victim) == 1
        assert "the disk has not answered within 2 s" in running.cluster.log(victim)
        running.cluster.restart(victim)
        await running.full_isr()
        await running.verify()


async def test_s31_a_follower_whose_disk_hangs_leaves_the_isr(seeded: Random) -> None:
    """The others go on, and it comes back when its disk does."""
    victim = seeded.choice(BROKERS)
    async with hanging_disk(victim, 60_000) as (running, disk):
        await only_follows(running, victim)
        disk.hang()
        await out_of_isr(running, victim, list(range(6)))
        await running.load.progress()
        disk.go_on()
        await running.full_isr()
        await running.verify()


async def test_s31_a_broker_can_be_stopped_while_its_disk_hangs(seeded: Random) -> None:
    """It leaves the cluster after the time that an fsync may take."""
    victim = seeded.choice(BROKERS)
    async with hanging_disk(victim, TIMEOUT_MS) as (running, disk):
        await only_follows(running, victim)
        disk.hang()
        await out_of_isr(running, victim, list(range(6)))
        running.cluster.child(victim).signal(signal.SIGTERM)
        await expired(running, victim)
        await running.load.progress()
        disk.go_on()
        assert await ended(running.cluster, victim) == 1
        running.cluster.restart(victim)
        await running.full_isr()
        await running.verify()
