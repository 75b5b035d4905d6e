"""I14 over a fault run: every state node's whole life is in the history of every controller."""

from __future__ import annotations

import time
from collections import Counter
from random import Random

import httpx
import pytest

from leadline_common.znodes import StateChange
from tests.support.checks.audit_records import broken_chains, replay
from tests.support.checks.invariants import stored_history
from tests.support.faults.faults import expired, kill
from tests.support.faults.scenario import TOPIC, Scenario, scenario
from tests.support.services.cluster import Cluster, wait_until

pytestmark = pytest.mark.slow

SEED = 7


async def one_fault(running: Scenario, random: Random) -> str:
    """Kill a broker or the active controller, and bring it back."""
    if random.random() < 0.4:
        victim = await running.cluster.active_controller()
        await kill(running, victim)
        await running.cluster.active_controller(not_in=[victim])
    else:
        victim = f"broker-{random.randint(1, 3)}"
        await kill(running, victim)
        if random.random() < 0.7:
            await expired(running, victim)
    running.cluster.restart(victim)
    await running.load.progress()
    return victim


@pytest.mark.parametrize(
    "seconds", [10, pytest.param(600, marks=[pytest.mark.soak, pytest.mark.timeout(1800)])]
)
async def test_the_history_is_whole_after_controllers_and_brokers_were_killed(
    seconds: int,
) -> None:
    random = Random(SEED)
    async with scenario(controllers=2) as running:
        end = time.monotonic() + seconds
        killed: Counter[str] = Counter()
        while time.monotonic() < end or len(killed) < 2:
            killed[(await one_fault(running, random)).partition("-")[0]] += 1
            await wait_until(lambda: all_run(running.cluster), "everybody is back", 60.0)
        await running.load.stop()
        await running.settle()
        await histories_are_whole(running)
    assert len(killed) == 2, killed


async def all_run(cluster: Cluster) -> bool:
    """Tell whether every process is ready."""
    async with httpx.AsyncClient(timeout=5, trust_env=False) as http:
        try:
            answers = [
                await http.get(service.url + "/readyz")
                for service in cluster.supervisor.layout.services
            ]
        except httpx.HTTPError:
            return False
    return all(answer.status_code == 200 for answer in answers)


async def histories_are_whole(running: Scenario) -> None:
    """Compare what each controller has stored with ZooKeeper, and with the other's.

    ZooKeeper is read first: whatever changes meanwhile only adds to the histories.
    """
    view = await running.view()
    first = await stored_history(running.cluster, "controller-1")
    second = await stored_history(running.cluster, "controller-2")
    shared = min(len(first), len(second))
    assert first[:shared] == second[:shared]
    assert [record.id for record in first] == list(range(len(first)))
    assert list(broken_chains(first)) == []
    written: dict[int, list[StateChange]] = {}
    for change in (change for r in first for change in r.entry.changes if change.topic == TOPIC):
        written.setdefault(change.partition, []).append(change)
    states = {number: node for (topic, number), node in view.states.items() if topic == TOPIC}
    past = replay(first).topics[TOPIC].partitions
    assert states.keys() == written.keys() == past.keys()
    for number, (state, version) in states.items():
        assert len(written[number]) > version, f"{TOPIC}-{number}: each version has its entry"
        entry = written[number][version]
        assert (entry.state_version, entry.after) == (
            version,
            (state.leader, state.leader_epoch, state.isr),
        )
        last, known = written[number][-1], past[number]
        assert (known.leader, known.leader_epoch, known.isr) == last.after
