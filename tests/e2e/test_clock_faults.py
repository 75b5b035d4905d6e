"""S21: the wall clock of one broker jumps and drifts: no role changes, and nothing is deleted."""

from __future__ import annotations

import asyncio
import re
from random import Random

import pytest

from leadline_client.payloads import OutgoingRecord
from leadline_client.wire import NewTopic
from tests.support.faults.faulty_libc import Orders, faulty_libc, why_not
from tests.support.faults.scenario import TOPIC, Scenario, loaded, running_cluster
from tests.support.left_out import MARK
from tests.support.services.cluster import Cluster, wait_until

pytestmark = pytest.mark.slow

STEPS = (3600.0, -3600.0, 600.0, -600.0)
"""By how many seconds the clock is wrong."""
DRIFT = 0.01
HELD_S = 1.2
DAY_S = 86_400.0
RETENTION = {"log.retention.check.interval.ms": "200", "log.segment.bytes": "16384"}
AHEAD = re.compile(r"^leadline_clock_ahead_seconds (\S+)$", re.MULTILINE)


async def wrong(running: Scenario, orders: Orders, seconds: float, drift: float) -> None:
    """Let the clock be wrong for a while, under load, and see that it was read."""
    orders.move_clock(seconds, drift=drift)
    read = orders.clock_reads
    await asyncio.sleep(HELD_S)
    await running.load.progress()
    assert orders.clock_reads > read, "void: nobody read the clock"


@pytest.mark.skipif(why_not() is not None, reason=f"{MARK}: {why_not()}")
@pytest.mark.scenario("S21")
async def test_s21_wall_clock_of_one_broker(seeded: Random) -> None:
    async with running_cluster() as cluster:
        victim = f"broker-{seeded.randint(1, 3)}"
        async with (
            faulty_libc(cluster, victim) as orders,
            loaded(cluster, NewTopic(TOPIC, 6, 3)) as running,
        ):
            await running.full_isr()
            before = await running.view()
            for seconds in STEPS:
                await wrong(running, orders, seconds, 0.0)
            await wrong(running, orders, 0.0, DRIFT)
            await wrong(running, orders, 0.0, -DRIFT)
            orders.move_clock(0.0)
            after = await running.view()
            assert after.states == before.states, "an ISR or a leader changed"
            assert after.incarnations == before.incarnations, "a session ended"
            await running.verify()


@pytest.mark.skipif(why_not() is not None, reason=f"{MARK}: {why_not()}")
@pytest.mark.scenario("S21")
@pytest.mark.parametrize("days", [-30, 30])
async def test_s21_a_wrong_clock_deletes_no_record(seeded: Random, days: int) -> None:
    """Retention goes by the clocks of most; that of bytes shows that it is applied meanwhile."""
    async with running_cluster(settings=RETENTION) as cluster:
        victim = f"broker-{seeded.randint(1, 3)}"
        number = int(victim.rpartition("-")[2])
        few, alone = {"retention.bytes": "0"}, {0: (number,)}
        trimmed = NewTopic("trimmed", replica_assignment=alone, configs=few)
        await cluster.client.create_topic(trimmed)
        kept = NewTopic(TOPIC, 6, 3, configs={"retention.ms": str(int(DAY_S * 1000))})
        async with (
            faulty_libc(cluster, victim) as orders,
            loaded(cluster, kept) as running,
        ):
            await running.full_isr()
            orders.move_clock(days * DAY_S)

            async def is_seen() -> bool:
                text = (await cluster.get(victim, "/metrics")).text
                found = AHEAD.search(text)
                return found is not None and abs(float(found[1]) - days * DAY_S) < 60

            await wait_until(is_seen, f"{victim} knows that its clock is wrong")
            for _ in range(3):
                await _until_trimmed(cluster)
                await running.load.progress()
            await running.verify()
            for partition in range(6):
                assert (await cluster.client.offsets(TOPIC, partition)).log_start_offset == 0


async def _until_trimmed(cluster: Cluster) -> None:
    """Write until retention deletes a segment of `trimmed`."""
    before = (await cluster.client.offsets("trimmed", 0)).log_start_offset

    async def is_trimmed() -> bool:
        await cluster.client.produce("trimmed", 0, [OutgoingRecord(bytes(8_000))])
        return (await cluster.client.offsets("trimmed", 0)).log_start_offset > before

    await wait_until(is_trimmed, "retention is applied")
