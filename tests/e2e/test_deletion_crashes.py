"""The active controller is killed around every write of a deletion, a removal and a growth."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress
from itertools import count
from pathlib import Path

import httpx
import pytest

from leadline_client.errors import LeadlineError, NoController
from leadline_client.wire import NewTopic
from leadline_common import znodes
from tests.support.faults.scenario import TOPIC, loaded, running_cluster
from tests.support.faults.zk_proxy import CrashPoints, put_before_controllers
from tests.support.services.cluster import Cluster, wait_until

pytestmark = pytest.mark.slow

DOOMED = "doomed"
PARTITIONS = 4
SETTINGS = {"zookeeper.session.timeout.ms": "6000"}
"""Long enough that a busy machine ends no session but those of the killed."""
DEADLINE_S = 90.0


class Watch:
    """Asks every broker all the time whether a topic is there, once `hidden` everywhere."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self.sightings: list[str] = []
        self._cluster = cluster
        self._topic = topic
        self._hidden: set[str] = set()

    async def until_cancelled(self) -> None:
        """Note each broker that shows the topic again, or takes a record for it."""
        brokers = [broker.name for broker in self._cluster.supervisor.layout.brokers]
        await asyncio.gather(*map(self._follow, brokers))

    async def _follow(self, broker: str) -> None:
        path = f"/v1/topics/{self._topic}/partitions/0/records"
        record = {"records": [{"value": "late"}], "format": "string"}
        while True:
            with suppress(httpx.HTTPError):
                shown = await self._cluster.get(broker, "/v1/metadata", topics=self._topic)
                if shown.status_code == httpx.codes.OK and not shown.json()["topics"]:
                    self._hidden.add(broker)
                elif shown.status_code == httpx.codes.OK and broker in self._hidden:
                    self.sightings.append(f"{broker} shows {shown.text}")
                if broker in self._hidden:
                    answer = await self._cluster.post(broker, path, json=record)
                    if answer.status_code == httpx.codes.OK:
                        self.sightings.append(f"{broker} took a record")
            await asyncio.sleep(0.03)


def paths_of(topic: str) -> tuple[bytes, ...]:
    """Return what the transactions of a deletion name."""
    return (znodes.delete_topic_path(topic).encode(), f"{znodes.topic_path(topic)}/".encode())


async def delete_with_a_crash(
    cluster: Cluster, points: dict[str, CrashPoints], topic: str, n: int, *, after: bool
) -> bool:
    """Delete a topic; the controller is killed at the n-th write. False if it has fewer."""
    await created(cluster, topic)
    watch = Watch(cluster, topic)
    watching = asyncio.create_task(watch.until_cancelled())
    for point in points.values():  # Only the active controller writes.
        point.arm(n, after=after)
    try:
        with suppress(LeadlineError):
            await cluster.client.delete_topic(topic)
        await ended_or_gone(cluster, points, topic)
        killed = [name for name, point in points.items() if point.ended.is_set()]
        for name, point in points.items():
            point.arm(0, after=False)
            if name in killed:
                cluster.restart(name)
        await gone_for_good(cluster, topic)
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    assert not watch.sightings
    return bool(killed)


async def created(cluster: Cluster, topic: str) -> None:
    """Create a topic; brokers may forward to the killed controller until they hear of the next."""

    async def made() -> bool:
        with suppress(NoController):
            await cluster.client.create_topic(NewTopic(topic, PARTITIONS, 3))
            return True
        return False

    await wait_until(made, f"{topic} is created", DEADLINE_S)


async def ended_or_gone(cluster: Cluster, points: dict[str, CrashPoints], topic: str) -> None:
    """Wait until a controller is killed, or the deletion had fewer writes."""
    async with cluster.zookeeper() as session:

        async def over() -> bool:
            is_killed = any(point.ended.is_set() for point in points.values())
            return is_killed or await session.exists(znodes.topic_path(topic)) is None

        await wait_until(over, "the controller is killed, or the topic is gone", DEADLINE_S)
    for point in points.values():  # The topic is gone before the controller that deleted it.
        await point.finished()


async def gone_for_good(cluster: Cluster, topic: str) -> None:
    """Wait until a topic is deleted: its nodes, its tombstone, its logs and strays of them."""
    async with cluster.zookeeper() as session:
        paths = (znodes.topic_path(topic), znodes.delete_topic_path(topic))

        async def gone() -> bool:
            nodes = await session.get_many(paths)
            if nodes[0] is not None and nodes[1] is None:
                with suppress(LeadlineError):  # It was killed before the order was written.
                    await cluster.client.delete_topic(topic)
            return nodes == [None, None]

        await wait_until(gone, f"{topic} is deleted", DEADLINE_S)
    directories = [Path(broker.log_dir or "") for broker in cluster.file.brokers]

    async def no_logs() -> bool:
        return not [path for root in directories for path in root.glob(f"{topic}-*")]

    await wait_until(no_logs, f"nobody keeps a log of {topic}, nor a stray", DEADLINE_S)


@pytest.mark.timeout(900)
async def test_defect_03_a_topic_never_comes_back_whenever_its_controller_is_killed() -> None:
    """Under load on another topic, which loses nothing."""
    async with (
        running_cluster(controllers=2, settings=SETTINGS) as cluster,
        AsyncExitStack() as proxies,
        loaded(cluster, NewTopic(TOPIC, 6, 3)) as running,
    ):
        names = [f"{DOOMED}-{after}-{n}" for after in (False, True) for n in range(1, 5)]
        paths = [path for name in names for path in paths_of(name)]
        points = await put_before_controllers(cluster, paths, proxies)
        for after in (False, True):
            for n in count(1):
                topic = f"{DOOMED}-{after}-{n}"
                if not await delete_with_a_crash(cluster, points, topic, n, after=after):
                    break
                await running.load.progress()
            assert n > 3, "the order, the states, and the rest"
        await running.verify()
