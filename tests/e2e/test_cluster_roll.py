"""`leadline cluster roll` under acks=all load: every process is restarted, and no produce fails."""

from __future__ import annotations

import json

import pytest

from leadline_client.wire import NewTopic
from tests.support.faults.scenario import TOPIC, loaded, running_cluster
from tests.support.services.cluster import Cluster
from tests.support.services.rolling import roll

pytestmark = pytest.mark.slow


def pids(cluster: Cluster) -> dict[str, int | None]:
    services = cluster.supervisor.layout.services
    return {one.name: cluster.child(one.name).pid for one in services}


async def _check_commands(cluster: Cluster) -> None:
    """A command of one's own gets the service's fields; one that fails ends the roll."""
    words = ("--only", "coordinator", "--restart-command")
    code, out, notes = await roll(cluster.data_dir, *words, "echo {service} {id} at {host}")
    assert code == 0, notes
    assert json.loads(out)["services"] == ["coordinator-1", "coordinator-2"]
    assert "coordinator 2 at 127.0.0.1" in notes
    code, _, notes = await roll(cluster.data_dir, *words, "false {name}")
    assert code == 3, notes
    assert "coordinator-1: `false coordinator-1` ended with 1" in notes
    assert (await roll(cluster.data_dir, *words, "true {port}"))[0] == 2


@pytest.mark.scenario("S23")
async def test_all_services_are_restarted_without_a_failed_produce() -> None:
    async with (
        running_cluster(controllers=3, coordinators=2) as cluster,
        cluster.supervisor.watched(print),
        loaded(cluster, NewTopic(TOPIC, 6, 3)) as running,
    ):
        await running.full_isr()
        await _check_commands(cluster)
        before = pids(cluster)
        active = await cluster.active_controller()

        # A broker that the cluster cannot spare is not restarted.
        await cluster.terminate("broker-3")
        code, _, notes = await roll(
            cluster.data_dir, "--only", "broker", "--skip", "broker-3", "--deadline", "1"
        )
        assert code == 1, notes
        assert "broker-1: should not stop now: " in notes
        assert "--skip broker-3" in notes
        assert pids(cluster) == before
        cluster.restart("broker-3")
        await running.full_isr()
        before = pids(cluster)

        code, out, notes = await roll(cluster.data_dir)
        assert code == 0, notes
        names = json.loads(out)["services"]
        assert sorted(names) == sorted(before)
        assert names[-1] == active
        after = pids(cluster)
        assert not [name for name in before if after[name] == before[name]]
        await running.load.progress()
        assert running.load.errors == {}
        await running.verify()
