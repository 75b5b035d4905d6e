"""S21: the wall clock of one broker jumps and drifts, and nobody's role changes."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from leadline_client.wire import NewTopic
from tests.support.faults.faulty_libc import Orders, faulty_libc, why_not
from tests.support.faults.scenario import TOPIC, Scenario, loaded, running_cluster
from tests.support.left_out import MARK

pytestmark = pytest.mark.slow

STEPS = (3600.0, -3600.0, 600.0, -600.0)
"""By how many seconds the clock is wrong."""
DRIFT = 0.01
HELD_S = 1.2


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
