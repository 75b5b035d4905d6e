"""Controlled shutdown of one broker after another under load: no produce request is refused.

A batch that leadership left behind has an unknown outcome (docs/decisions/replication.md):
idempotent writers send it again, and `Load.left_behind` counts those of the others.
"""

from __future__ import annotations

import pytest

from tests.support.faults.scenario import Scenario, scenario
from tests.support.services.cluster import wait_until

BALANCE = {
    "auto.leader.rebalance.enable": "false",
    "leader.imbalance.check.interval.ms": "200",
    "controlled.shutdown.timeout.ms": "15000",
}


async def preferred_everywhere(running: Scenario) -> bool:
    rows = (await running.cluster.client.describe(running.topic)).partitions
    return all(row.leader == row.replicas[0] for row in rows)


async def stopped(running: Scenario, name: str) -> None:
    """Stop a broker, and check that all its leaders had moved before it ended."""
    led = await running.led_by(name)
    assert led, f"void: {name} leads nothing"
    before = await running.view()
    assert await running.cluster.terminate(name) == 0
    view = await running.view()
    number = int(name.rpartition("-")[2])
    for key, (state, _) in view.states.items():
        assert state.leader != number
        assert len(state.isr) == 2
        # Leaders move once: when the broker ends, there is nothing left to elect.
        moved = state.leader_epoch - before.states[key][0].leader_epoch
        assert moved <= 1, f"{key}: {moved} epochs"
    assert '"still_led": 0' in running.cluster.log(name)


@pytest.mark.slow
@pytest.mark.scenario("S23")
async def test_a_rolling_restart_refuses_no_produce_and_leaders_go_back() -> None:
    """SIGTERM for each broker under acks=all; then leaders return, by request and by themselves."""
    async with scenario(settings=BALANCE) as running:
        cluster = running.cluster
        await running.full_isr()
        for number in (1, 2, 3):
            name = f"broker-{number}"
            if number == 2:  # everything has gone round by then: see that it leads again
                await cluster.client.elect("preferred")
                await wait_until(lambda: preferred_everywhere(running), "an election restores it")
            if number == 3:
                changes = {"set": {"auto.leader.rebalance.enable": "true"}}
                answer = await cluster.request("PATCH", "controller-1", "/v1/configs", json=changes)
                assert answer.status_code == 200, answer.text
                await wait_until(lambda: preferred_everywhere(running), "the balance restores it")
            await stopped(running, name)
            await running.load.progress()
            cluster.restart(name)
            await cluster.until_ready(name)
            await running.full_isr()
            await running.load.progress()
        assert running.load.errors == {}
