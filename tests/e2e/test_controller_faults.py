"""S6 and S7: the active controller dies or freezes; another one takes over without harm."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from random import Random

import httpx
import pytest

from leadline_client.wire import NewTopic
from tests.support.faults.faults import frozen, kill, kill_at_expiry_of
from tests.support.faults.scenario import TOPIC, Scenario, loaded, rounds, running_cluster, scenario
from tests.support.faults.zk_proxy import put_before_controllers
from tests.support.services.cluster import DEADLINE_S, wait_until

WIDE_TOPIC = "wide"
ELECTIONS = (b"/brokers/topics/",)


async def taken_over(running: Scenario, active: str, epoch: int) -> None:
    """Wait until another controller is active, with a later epoch (I12)."""
    successor = await running.cluster.active_controller(not_in=[active])
    assert successor != active
    assert (await running.view()).controller_epoch > epoch


async def led(running: Scenario, topic: str, *, without: str) -> None:
    """Wait until every partition of a topic has a leader other than `without`."""
    lost = int(without.rpartition("-")[2])

    async def all_led() -> bool:
        rows = (await running.cluster.client.describe(topic)).partitions
        return all(row.leader not in {-1, lost} for row in rows)

    await wait_until(all_led, f"every partition of {topic} is led without {without}")


async def refused_through(running: Scenario, broker: str) -> int:
    """Send a change without a name through a broker; return the status of its refusal.

    The broker may keep the connection on which it forwards; a lost request has an unknown outcome.
    """
    answer = await running.cluster.post(broker, "/v1/topics", json={})
    assert answer.json()["outcome"] == "refused", answer.text
    return answer.status_code


@pytest.mark.scenario("S6")
async def test_s6_idle_controller_killed(seeded: Random) -> None:
    async with scenario(controllers=2) as running:
        active = await running.cluster.active_controller()
        before = await running.view()
        assert await refused_through(running, "broker-1") == httpx.codes.BAD_REQUEST
        await kill(running, active)
        assert await refused_through(running, "broker-1") in {
            httpx.codes.SERVICE_UNAVAILABLE,  # Nobody is there, which the broker found out at once.
            httpx.codes.BAD_REQUEST,  # The next one has taken over already.
        }
        await taken_over(running, active, before.controller_epoch)
        await running.load.progress()
        # Nothing failed but the controller: the new one had no decision to take.
        after = await running.view()
        assert {key: state.leader_epoch for key, (state, _) in after.states.items()} == {
            key: state.leader_epoch for key, (state, _) in before.states.items()
        }
        # And it does decide when there is something to decide.
        victim = await running.leader(seeded.randrange(6))
        await kill(running, victim)
        await led(running, running.topic, without=victim)


@pytest.mark.scenario("S6")
@rounds(quick=1)
async def test_s6_controller_killed_during_a_failover_of_200_partitions(
    rounds: int, seeded: Random
) -> None:
    """It dies with new leaders elected but no broker informed, before that, or at any time."""
    async with (
        running_cluster(controllers=2) as cluster,
        AsyncExitStack() as proxies,
        loaded(cluster, NewTopic(TOPIC, 6, 3)) as running,
    ):
        points = await put_before_controllers(cluster, ELECTIONS, proxies)
        await cluster.client.create_topic(NewTopic(WIDE_TOPIC, 200, 3))
        for number in range(rounds):
            active = await cluster.active_controller()
            epoch = (await running.view()).controller_epoch
            victim = await running.leader(seeded.randrange(6))
            if number % 3 == 2:
                await kill_at_expiry_of(
                    running, victim, active, delay_s=0.004 * seeded.randrange(6)
                )
            else:
                points[active].arm(1, after=number % 3 == 0)
                await kill(running, victim)
                await asyncio.wait_for(points[active].ended.wait(), DEADLINE_S)
            await taken_over(running, active, epoch)
            await led(running, WIDE_TOPIC, without=victim)
            await led(running, running.topic, without=victim)
            await running.load.progress()
            cluster.restart(active)
            cluster.restart(victim)
            await running.full_isr()
            await cluster.in_sync(WIDE_TOPIC, 3)
        await running.verify()


@pytest.mark.scenario("S7")
async def test_s7_controller_frozen_past_its_session(seeded: Random) -> None:
    async with scenario(controllers=2) as running:
        active = await running.cluster.active_controller()
        epoch = (await running.view()).controller_epoch
        victim = await running.leader(seeded.randrange(6))
        # A decision is under way when the controller freezes, and late when it wakes up.
        await kill(running, victim)
        await frozen(running, active, 3.0)
        await taken_over(running, active, epoch)
        await led(running, running.topic, without=victim)
        running.cluster.restart(victim)
        await running.full_isr()

        async def resigned() -> bool:
            answer = (await running.cluster.get(active, "/v1/controller")).json()
            known = answer["controller"]  # None until its new session has looked for one
            return not answer["active"] and known is not None and known["epoch"] > epoch

        await wait_until(resigned, f"{active} knows that it was succeeded")
        await running.load.progress()
