"""A second SIGTERM to a broker whose leaders cannot move: it still stops in good order."""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable

from leadline_client.wire import NewTopic
from tests.support.faults.load import Load
from tests.support.faults.scenario import TOPIC, running_cluster
from tests.support.services.cluster import Cluster, wait_until


def says(cluster: Cluster, name: str, line: str) -> Callable[[], Awaitable[bool]]:
    """Return the condition that a service has logged a line."""

    async def said() -> bool:
        return line in cluster.log(name)

    return said


async def test_a_second_signal_ends_a_broker_that_waits_for_others() -> None:
    """Its followers are frozen: live by their sessions, so it waits for them, but not in sync."""
    settings = {
        "zookeeper.session.timeout.ms": "30000",
        "replica.lag.time.max.ms": "500",
        "controlled.shutdown.timeout.ms": "60000",
    }
    async with running_cluster(settings=settings) as cluster:
        topic = NewTopic(TOPIC, 1, 3, configs={"min.insync.replicas": "1"})
        await cluster.client.create_topic(topic)
        leader = await cluster.leader_of(TOPIC, 0)
        for broker in {"broker-1", "broker-2", "broker-3"} - {leader}:
            cluster.pause(broker)
        async with Load(cluster.url(leader), TOPIC, 1, rate=100, batch_size=10) as load:
            await load.progress(records=20)
            cluster.send_signal(leader, signal.SIGTERM)
            await wait_until(
                says(cluster, leader, "controlled shutdown started"), "its shutdown has begun"
            )
            await load.progress(records=20)
            await load.stop()
        assert cluster.child(leader).running

        cluster.send_signal(leader, signal.SIGTERM)

        await wait_until(says(cluster, leader, '"clean": true'), "it has closed its logs")
