"""S11, S12, S14: brokers reach ZooKeeper and clients, but each other badly or not at all."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from tests.support.checks.changes import changes_of
from tests.support.faults.faults import no_acknowledgement, out_of_isr
from tests.support.faults.links import Pace
from tests.support.faults.scenario import LinkedScenario, linked_scenario
from tests.support.services.cluster import wait_until

SETTINGS = {"replica.lag.time.max.ms": "1500"}
SILENCE_S = 2.5


async def everything_in_sync(running: LinkedScenario) -> None:
    """Heal all links, and wait until the load goes on everywhere with all replicas in sync."""
    running.links.heal()
    await running.full_isr()
    await running.load.progress()


@pytest.mark.scenario("S11")
async def test_s11_leader_cut_off_from_all_followers(seeded: Random) -> None:
    """Alone it is below min.insync.replicas: it may not acknowledge, and the others may."""
    async with linked_scenario(settings=SETTINGS) as running:
        leader = await running.leader(seeded.randrange(6))
        led = await running.led_by(leader)
        rest = [number for number in range(6) if number not in led]
        others = [f"broker-{number}" for number in (1, 2, 3) if f"broker-{number}" != leader]
        for other in others:
            running.links.cut_both(leader, other)
        async with no_acknowledgement(running, led):
            await out_of_isr(running, leader, rest)
            await running.load.progress(rest)
            await asyncio.sleep(SILENCE_S)
        # A follower whose fetch was under way sends nothing while it waits for the answer.
        met = [pair for other in others for pair in ((other, leader), (leader, other))]
        assert running.links.held(*met), "void: nothing was held"
        assert await running.led_by(leader) == led, "void: its session expired"
        await everything_in_sync(running)


@pytest.mark.slow
@pytest.mark.scenario("S12")
async def test_s12_leader_cut_off_from_one_follower(seeded: Random) -> None:
    """In both directions and in each alone: two are in sync, and the load goes on."""
    async with linked_scenario(settings=SETTINGS) as running:
        for both in ("there and back", "there", "back"):
            leader = await running.leader(seeded.randrange(6))
            led = await running.led_by(leader)
            follower = seeded.choice([f"broker-{n}" for n in (1, 2, 3) if f"broker-{n}" != leader])
            pairs = [(leader, follower)] if "there" in both else []
            pairs += [(follower, leader)] if "back" in both else []
            running.links.cut(*pairs)
            await out_of_isr(running, follower, led)
            await running.load.progress()
            assert running.links.held(*pairs), f"void: nothing met the cut {both}"
            await everything_in_sync(running)


@pytest.mark.soak
@pytest.mark.scenario("S12")
async def test_s12_ring_of_one_way_cuts() -> None:
    """No broker gets an answer from any other: nobody has a follower, so nobody acknowledges."""
    ring = [("broker-1", "broker-2"), ("broker-2", "broker-3"), ("broker-3", "broker-1")]
    async with linked_scenario(settings=SETTINGS) as running:
        running.links.cut(*ring)
        async with no_acknowledgement(running, range(6)):
            await alone_in_the_isr(running)
            await asyncio.sleep(SILENCE_S)
        assert all(running.links.held(pair) for pair in ring), "void: nothing was held"
        await everything_in_sync(running)


async def alone_in_the_isr(running: LinkedScenario) -> None:
    async def alone() -> bool:
        states = (await running.view()).states.values()
        return all(state.isr == (state.leader,) for state, _ in states)

    await wait_until(alone, "every leader is alone in its ISR")


@pytest.mark.soak
@pytest.mark.scenario("S14")
async def test_s14_follower_behind_a_slow_link(seeded: Random) -> None:
    """It leaves the ISR and comes back; it does not join and leave all the time."""
    seconds = 8.0
    async with linked_scenario(settings=SETTINGS) as running:
        follower = await running.follower(seeded.randrange(6))
        led = await running.led_by(follower)
        followed = [number for number in range(6) if number not in led]
        others = [f"broker-{n}" for n in (1, 2, 3) if f"broker-{n}" != follower]
        before = await running.view()
        slow = Pace(delay_s=0.3, bytes_per_s=256_000 / 8)
        running.links.slow_down(slow, [(other, follower) for other in others])
        await out_of_isr(running, follower, followed)
        await running.load.progress(followed)
        await asyncio.sleep(seconds)
        await everything_in_sync(running)
        number = int(follower[-1])
        for partition in followed:
            rows = changes_of(before, await running.view(), running.topic, partition)
            left = [row for row in rows if number in row.isr_before and number not in row.isr_after]
            assert len(left) <= 2, f"partition {partition}: broker {number} left {len(left)} times"
            assert not [row for row in rows if row.leader_changed], "somebody else leads"
