"""S10, S13 and S29: processes cut off from ZooKeeper or from everybody, and clients that lag."""

from __future__ import annotations

import asyncio
import time
from random import Random

import httpx
import pytest

from tests.e2e.test_controller_faults import led, taken_over
from tests.support.checks.changes import changes_of
from tests.support.checks.zk_history import ZkView
from tests.support.faults.faults import expired, kill, out_of_isr
from tests.support.faults.links import ZOOKEEPER
from tests.support.faults.scenario import LINKED_SESSION_MS, LinkedScenario, linked_scenario
from tests.support.faults.stale_clients import StaleClients
from tests.support.services.cluster import wait_until

SESSION_S = LINKED_SESSION_MS / 1000
FLAP_S = SESSION_S + 1.0
"""Long enough for the session to expire: a shorter time changes nothing."""
RECORD = {"records": [{"value": "late"}], "format": "string"}


async def refuses_records(running: LinkedScenario, broker: str, partitions: list[int]) -> None:
    """Fail if a broker takes a record without waiting for others (acks=1)."""
    for number in partitions:
        path = f"/v1/topics/{running.topic}/partitions/{number}/records"
        answer = await running.cluster.post(broker, path, json=RECORD, params={"acks": "1"})
        assert answer.status_code != httpx.codes.OK, f"{broker} took a record without a lease"


def check_acknowledgements(running: LinkedScenario, epochs: dict[int, int], since_s: float) -> None:
    """Fail if something was acknowledged in one of these epochs after a moment (I7)."""
    late = [
        ack
        for ack in running.load.acks
        if ack.at_s > since_s and ack.leader_epoch == epochs.get(ack.partition)
    ]
    assert not late, f"acknowledged without a lease: {late[:5]}"


async def is_fenced(running: LinkedScenario, leader: str) -> None:
    """Cut a leader off from ZooKeeper; it stops within a session, and others take over."""
    led_before = await running.led_by(leader)
    states = (await running.view()).states
    epochs = {number: states[running.topic, number][0].leader_epoch for number in led_before}
    cut_s = time.monotonic()
    running.links.cut_both(leader, ZOOKEEPER)
    await asyncio.sleep(SESSION_S)
    await refuses_records(running, leader, led_before)
    await running.moved_away(leader, led_before)
    await running.load.progress()
    check_acknowledgements(running, epochs, cut_s + SESSION_S)
    assert running.links.held((leader, ZOOKEEPER)), "void: nothing met the cut"


async def heal(running: LinkedScenario) -> None:
    """Let everybody reach everybody again, and wait until all is as before."""
    running.links.heal()
    await running.full_isr()
    await running.load.progress()


@pytest.mark.scenario("S10")
async def test_s10_leader_then_follower_cut_off_from_zookeeper(seeded: Random) -> None:
    async with linked_scenario() as running:
        victim = await running.leader(seeded.randrange(6))
        await is_fenced(running, victim)
        await heal(running)
        assert await running.led_by(victim) == [], "void: it is no mere follower"
        running.links.cut_both(victim, ZOOKEEPER)
        await expired(running, victim)
        await out_of_isr(running, victim, list(range(6)))
        await running.load.progress()
        await heal(running)


@pytest.mark.soak
@pytest.mark.scenario("S10")
async def test_s10_active_controller_cut_off_from_zookeeper(seeded: Random) -> None:
    async with linked_scenario(controllers=2) as running:
        active = await running.cluster.active_controller()
        epoch = (await running.view()).controller_epoch
        running.links.cut_both(active, ZOOKEEPER)
        await taken_over(running, active, epoch)
        assert running.links.held((active, ZOOKEEPER)), "void: nothing met the cut"
        victim = await running.leader(seeded.randrange(6))
        await kill(running, victim)
        await led(running, running.topic, without=victim)
        running.links.heal()

        async def resigned() -> bool:
            answer = (await running.cluster.get(active, "/v1/controller")).json()
            known = answer["controller"]  # None until it has found out who is active
            return not answer["active"] and known is not None and known["epoch"] > epoch

        await wait_until(resigned, f"{active} knows that it was succeeded")
        await running.load.progress()


async def test_defect_51_active_controller_cut_off_from_brokers(seeded: Random) -> None:
    """Another one leads, although ZooKeeper sees nothing wrong, and replaces a dead leader."""
    settings = {"broker.contact.timeout.ms": "4000", "command.ack.timeout.ms": "1000"}
    async with linked_scenario(controllers=2, settings=settings) as running:
        active = await running.cluster.active_controller()
        epoch = (await running.view()).controller_epoch
        brokers = [f"broker-{number}" for number in (1, 2, 3)]
        for broker in brokers:
            running.links.cut_both(active, broker)
        victim = await running.leader(seeded.randrange(6))
        await kill(running, victim)
        await taken_over(running, active, epoch)
        await led(running, running.topic, without=victim)
        await running.load.progress()
        met = [(broker, active) for broker in brokers]
        assert running.links.held(*met), "void: nothing met the cut"
        running.links.heal()


@pytest.mark.slow
@pytest.mark.scenario("S13")
@pytest.mark.parametrize("seconds", [6.0, pytest.param(30.0, marks=pytest.mark.soak)])
async def test_s13_broker_isolated_from_everybody(seconds: float, seeded: Random) -> None:
    async with linked_scenario() as running:
        victim = await running.leader(seeded.randrange(6))
        led_before, before = await running.led_by(victim), await running.view()
        isolated_s = time.monotonic()
        running.links.isolate(victim)
        await expired(running, victim)
        await running.moved_away(victim, led_before)
        await running.load.progress()
        await asyncio.sleep(max(0.0, isolated_s + seconds - time.monotonic()))
        await heal(running)
        await elections_are_bounded(running, before, 1)


@pytest.mark.soak
@pytest.mark.scenario("S13")
@pytest.mark.parametrize("times", [2, 10])
async def test_s13_broker_isolated_again_and_again(times: int, seeded: Random) -> None:
    async with linked_scenario() as running:
        victim = await running.leader(seeded.randrange(6))
        before = await running.view()
        for _ in range(times):
            running.links.isolate(victim)
            await asyncio.sleep(FLAP_S)
            running.links.heal()
            await asyncio.sleep(FLAP_S)
        assert running.links.held((victim, ZOOKEEPER)), "void: nothing met the cut"
        await heal(running)
        await elections_are_bounded(running, before, times)


async def elections_are_bounded(running: LinkedScenario, before: ZkView, most: int) -> None:
    """Fail if a partition had more leaders, one after another, than there were faults."""
    after, elected = await running.view(), 0
    for _, partition in before.states:
        changes = changes_of(before, after, running.topic, partition)
        leaders = [change.leader_after for change in changes if change.leader_changed]
        assert len(leaders) <= most, f"partition {partition} was led by {leaders}"
        elected += len(leaders)
    assert elected, "void: no leader changed"


@pytest.mark.slow
@pytest.mark.scenario("S29")
@pytest.mark.parametrize("failovers", [2, pytest.param(5, marks=pytest.mark.soak)])
async def test_s29_clients_with_stale_metadata(failovers: int, seeded: Random) -> None:
    """Each knows one broker alone; its metadata never goes back, and nothing is read wrongly."""
    async with linked_scenario() as running, StaleClients(running) as clients:
        for _ in range(failovers):
            await running.full_isr()
            leader = await running.leader(seeded.randrange(6))
            led_before = await running.led_by(leader)
            running.links.cut_both(leader, ZOOKEEPER)
            await running.moved_away(leader, led_before)
            await running.load.progress()
            assert running.links.held((leader, ZOOKEEPER)), "void: nothing met the cut"
            await heal(running)
            await clients.go_on()
        assert clients.elections_seen() >= failovers, "void: a client missed elections"
        await clients.stop()
