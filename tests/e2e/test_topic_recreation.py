"""A topic is deleted and recreated under its old name while a replica is away."""

from __future__ import annotations

from pathlib import Path

import pytest

from leadline_client.wire import NewTopic
from tests.support.faults.faults import kill
from tests.support.faults.scenario import TOPIC, loaded, running_cluster
from tests.support.services.cluster import Cluster

pytestmark = pytest.mark.slow


def topic_ids_on_disk(cluster: Cluster, broker: str) -> set[str]:
    """Return the topic ids of the replicas that a broker would serve."""
    log_dir = cluster.service(broker).log_dir
    assert log_dir is not None
    found = set()
    for metadata in Path(log_dir).glob("*/partition.metadata"):
        if metadata.parent.name.rpartition("-")[2].isdecimal():
            found.add(metadata.read_text())
    return found


@pytest.mark.scenario("S25")
@pytest.mark.parametrize("away", ["leader", "follower"])
async def test_records_of_a_deleted_topic_never_come_back(away: str) -> None:
    async with running_cluster() as cluster:
        async with loaded(cluster, NewTopic(TOPIC, 3, 3), label="old/") as old:
            victim = await (old.leader(0) if away == "leader" else old.follower(0))
            await old.load.progress(records=500)
            await old.load.stop()
            old_id = (await old.view()).topics[TOPIC].topic_id
            await kill(old, victim)
        await cluster.client.delete_topic(TOPIC)
        # Until the dead broker's session has expired the deletion waits for it.
        async with loaded(cluster, NewTopic(TOPIC, 3, 2), label="new/") as new:
            assert (await new.view()).topics[TOPIC].topic_id != old_id
            cluster.restart(victim)
            await cluster.until_ready(victim)
            await new.load.progress(records=500)
            # The checks know every value of the new topic: one of the old would be a stranger.
            await new.verify()
        for broker in cluster.supervisor.layout.brokers:
            served = topic_ids_on_disk(cluster, broker.name)
            assert not any(old_id in one for one in served), f"{broker.name} kept {served}"


@pytest.mark.scenario("S25")
async def test_recreated_with_every_broker_but_one_away() -> None:
    async with running_cluster() as cluster:
        async with loaded(cluster, NewTopic(TOPIC, 1, 3), label="old/") as old:
            await old.load.progress(records=500)
            await old.load.stop()
            for name in ("broker-2", "broker-3"):
                await kill(old, name)
        await cluster.client.delete_topic(TOPIC)
        assignment = {0: (2, 3, 1)}
        for name in ("broker-2", "broker-3"):
            cluster.restart(name)
            await cluster.until_ready(name)
        topic = NewTopic(TOPIC, replica_assignment=assignment)
        async with loaded(cluster, topic, label="new/") as new:
            await new.load.progress(records=1000)
            await new.verify()
