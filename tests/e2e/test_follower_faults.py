"""S3 and S5: a follower dies in the middle of appending, or freezes until it is out of the ISR."""

from __future__ import annotations

from random import Random

import pytest

from tests.support.faults.faults import expired, kill, out_of_isr
from tests.support.faults.scenario import rounds, scenario


@pytest.mark.scenario("S3")
@rounds(quick=2)
async def test_s3_follower_killed_while_it_appends(rounds: int, seeded: Random) -> None:
    async with scenario() as running:
        for _ in range(rounds):
            victim = await running.follower(seeded.randrange(6))
            await running.load.progress()
            await kill(running, victim)
            await expired(running, victim)
            await running.load.progress()
            running.cluster.restart(victim)
            await running.full_isr()
        assert "logs opened" in running.cluster.log(victim), "void: nothing was recovered"


@pytest.mark.slow
@pytest.mark.scenario("S5")
async def test_s5_follower_frozen_until_it_left_the_isr(seeded: Random) -> None:
    # The session outlives the lag limit: the leader drops the follower, not the controller.
    settings = {"zookeeper.session.timeout.ms": "20000", "replica.lag.time.max.ms": "1500"}
    async with scenario(settings=settings) as running:
        victim = await running.follower(seeded.randrange(6))
        led = await running.led_by(victim)
        followed = [number for number in range(6) if number not in led]
        running.cluster.pause(victim)
        await out_of_isr(running, victim, followed)
        # Two of three are in sync: that is enough for acks=all.
        await running.load.progress(followed)
        assert int(victim[-1]) in (await running.view()).brokers, "void: its session expired"
        running.cluster.resume(victim)
        await running.full_isr()
        await running.load.progress()
