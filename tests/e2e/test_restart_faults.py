"""S8, S22, S25 and S26: services that are killed again and again, and what is changed meanwhile."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack, suppress
from itertools import count
from pathlib import Path
from random import Random

import pytest

from leadline_client.errors import LeadlineError
from leadline_client.payloads import OutgoingRecord
from leadline_client.wire import NewTopic
from leadline_common import znodes
from tests.support.checks.changes import changes_of
from tests.support.faults.faults import expired, kill
from tests.support.faults.load import read_partition
from tests.support.faults.scenario import TOPIC, Scenario, loaded, running_cluster, scenario
from tests.support.faults.zk_proxy import CrashPoints, put_before_controllers
from tests.support.services.cluster import Cluster, wait_until

pytestmark = pytest.mark.slow

CHURNED = [f"churn-{number}" for number in range(3)]
GROWN = "grown"


@pytest.mark.scenario("S8")
async def test_s8_controllers_killed_one_after_another() -> None:
    """The last one dies with a broker; whoever is back first decides."""
    async with scenario(controllers=3) as running:
        names = {one.name for one in running.cluster.supervisor.layout.controllers}
        epoch = (await running.view()).controller_epoch
        killed: list[str] = []
        while len(killed) < len(names):
            active = await running.cluster.active_controller(not_in=killed)
            await kill(running, active)
            killed.append(active)
            await asyncio.sleep(1.0)
        victim = await running.leader(0)
        led = await running.led_by(victim)
        await kill(running, victim)
        await expired(running, victim)
        states = (await running.view()).states
        assert all(states[running.topic, number][0].leader == int(victim[-1]) for number in led)
        for name in killed:
            running.cluster.restart(name)
            await asyncio.sleep(1.0)
        for number in led:
            await running.cluster.leader_of(running.topic, number, not_in=[victim])
        await running.load.progress(led)
        assert (await running.view()).controller_epoch >= epoch + len(killed)


@pytest.mark.soak
@pytest.mark.scenario("S22")
@pytest.mark.parametrize("seconds", [12, pytest.param(300, marks=pytest.mark.timeout(1200))])
async def test_s22_restart_storm(seconds: int, seeded: Random) -> None:
    async with scenario() as running:
        before, kills, end = await running.view(), 0, time.monotonic() + seconds
        while time.monotonic() < end:
            victim = f"broker-{seeded.randint(1, 3)}"
            await kill(running, victim)
            running.cluster.restart(victim)
            kills += 1
            await asyncio.sleep(2.0)
        await running.full_isr()
        await running.load.progress()
        after = await running.view()
        elected = 0
        for number in range(6):
            rows = changes_of(before, after, running.topic, number)
            growth = rows[-1].epoch_after - rows[0].epoch_before if rows else 0
            # A kill costs a leader at most its place, and the way back nobody's.
            assert growth <= 2 * kills, f"partition {number}: {growth} epochs for {kills} kills"
            elected += growth
        assert elected, "void: no leader was ever elected"


class Churn:
    """Creates, fills, deletes and recreates topics; knows what the latest life of each has."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.changes = 0
        self.written: dict[str, list[str]] = {}
        self.ids: dict[str, set[str]] = {}

    async def go_on(self, seconds: float) -> None:
        """Change the topics for so long, five changes a second if the cluster keeps up."""
        end = time.monotonic() + seconds
        for number in count():
            if time.monotonic() > end:
                return
            due_s = time.monotonic() + 0.2
            await self._change(CHURNED[number % len(CHURNED)], number)
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))

    async def _change(self, topic: str, number: int) -> None:
        if topic in self.written:
            await self._cluster.client.delete_topic(topic)
            self.changes += 1
            del self.written[topic]
        await self._cluster.client.create_topic(NewTopic(topic, 1, 2))
        self.changes += 1
        self.written[topic] = []
        value = f"{topic}/{number}"
        with suppress(LeadlineError):
            await self._cluster.client.produce(topic, 0, [OutgoingRecord(value.encode())])
            self.written[topic].append(value)

    async def check(self) -> None:
        """Every topic that is there has what was acknowledged in its latest life, and no more."""
        for topic, values in self.written.items():
            await self._cluster.in_sync(topic, 2)
            read = await read_partition(self._cluster.client, topic, 0)
            found = [value for _, value in read.records]
            assert found[: len(values)] == values
            assert len(found) <= 1, f"{topic} has records of another life: {found}"


@pytest.mark.soak
@pytest.mark.scenario("S25")
@pytest.mark.parametrize("seconds", [6.0, 60.0])
async def test_s25_topics_deleted_and_recreated_while_a_broker_is_down(seconds: float) -> None:
    async with scenario() as running:
        churn, victim = Churn(running.cluster), "broker-2"
        await churn.go_on(1.0)
        await kill(running, victim)
        await churn.go_on(seconds / 2)  # while it still counts as live, and afterwards
        await expired(running, victim)
        await churn.go_on(seconds / 2)
        running.cluster.restart(victim)
        await churn.go_on(2.0)
        await running.cluster.until_ready(victim)
        assert churn.changes >= 2 * seconds, f"void: only {churn.changes} changes"
        await running.full_isr()
        await churn.check()
        await no_deleted_topic_is_left(running)


async def no_deleted_topic_is_left(running: Scenario) -> None:
    """Wait until all deletions are done, and no broker has a log of a topic id that is gone.

    What it has set aside as a stray is served to nobody.
    """
    directories = [Path(broker.log_dir or "") for broker in running.cluster.file.brokers]

    async def gone() -> bool:
        view = await running.view()
        known = {topic.topic_id for topic in view.topics.values()}
        logs = [one for root in directories for one in root.glob("churn-*")]
        files = [one / "partition.metadata" for one in logs if not one.name.endswith("-stray")]
        texts = await asyncio.to_thread(lambda: [file.read_text() for file in files])
        served = [text for text in texts if not any(topic_id in text for topic_id in known)]
        return not view.deletions and not served

    await wait_until(gone, "no broker has a log of a deleted topic")


async def grow_with_a_crash(
    running: Scenario, points: dict[str, CrashPoints], n: int, *, after: bool
) -> bool:
    """Add two partitions; the controller is killed at the n-th write. False if it has fewer."""
    cluster = running.cluster
    before = len((await cluster.client.describe(GROWN)).partitions)
    for point in points.values():
        point.arm(n, after=after)
    path, body = f"/v1/topics/{GROWN}/partitions", {"partitions": before + 2}
    with suppress(LeadlineError):
        await cluster.client.administer("POST", path, body)

    async def over() -> bool:
        if any(point.ended.is_set() for point in points.values()):
            return True
        states = (await running.view()).states
        return all((GROWN, before + number) in states for number in (0, 1))

    await wait_until(over, "the controller is killed, or the partitions are there")
    killed = [name for name, point in points.items() if point.ended.is_set()]
    for name, point in points.items():
        point.arm(0, after=False)
        if name in killed:
            cluster.restart(name)
    await grown(running, before)
    return bool(killed)


async def grown(running: Scenario, before: int) -> None:
    """Wait until a topic has two more partitions and all are in sync; order it if it was lost."""

    async def complete() -> bool:
        with suppress(LeadlineError):
            count_now = len((await running.cluster.client.describe(GROWN)).partitions)
            if count_now == before:
                path, body = f"/v1/topics/{GROWN}/partitions", {"partitions": before + 2}
                await running.cluster.client.administer("POST", path, body)
            return count_now == before + 2
        return False

    await wait_until(complete, f"{GROWN} has {before + 2} partitions")
    await running.cluster.in_sync(GROWN, 3)
    intents = [znodes.topic_path(GROWN)]
    async with running.cluster.zookeeper() as session:
        assert all(await session.get_many(intents)), f"{GROWN} is gone"


@pytest.mark.soak
@pytest.mark.scenario("S26")
@pytest.mark.timeout(600)
async def test_s26_controller_killed_around_every_write_of_added_partitions() -> None:
    settings = {"zookeeper.session.timeout.ms": "3000"}
    async with (
        running_cluster(controllers=2, settings=settings) as cluster,
        AsyncExitStack() as proxies,
        loaded(cluster, NewTopic(TOPIC, 6, 3)) as running,
    ):
        points = await put_before_controllers(cluster, [f"/{GROWN}".encode()], proxies)
        await cluster.client.create_topic(NewTopic(GROWN, 1, 3))
        for after in (False, True):
            for n in count(1):
                if not await grow_with_a_crash(running, points, n, after=after):
                    break
                await running.load.progress()
            assert n > 1, "void: no write of it was seen"
        await running.verify()
