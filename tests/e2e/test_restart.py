"""The whole cluster stops, or is killed, and a second start on its directory has all the data."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest

from leadline_client.wire import NewTopic
from tests.support.faults.faults import kill
from tests.support.faults.scenario import TOPIC, Scenario, loaded, running_cluster

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("how", ["stopped", "killed"])
async def test_whole_cluster_restarted_on_its_directory(how: str) -> None:
    directory = Path(tempfile.mkdtemp(prefix="leadline-e2e-"))
    async with running_cluster(controllers=2, data_dir=directory) as cluster:
        before = cluster.file
        async with loaded(cluster, NewTopic(TOPIC, 6, 3)) as running:
            await running.load.progress(records=500)
            if how == "killed":
                # Under load, and ZooKeeper first, so that no process can close its session.
                for name in cluster.supervisor.children:
                    await kill(running, name)
    async with running_cluster(controllers=2, data_dir=directory) as cluster:
        after = cluster.file
        assert after.cluster_id == before.cluster_id
        assert [one.id for one in after.brokers] == [one.id for one in before.brokers]
        again = Scenario(cluster, running.load)
        await again.verify()
        # And the cluster accepts new topics and records.
        async with loaded(cluster, NewTopic("more", 6, 3), label="more/") as more:
            await more.load.progress()
            await more.verify()
    shutil.rmtree(directory)
