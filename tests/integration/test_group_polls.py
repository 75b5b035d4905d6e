"""Consumers that poll over HTTP beside the Python client's, with a coordinator that is killed."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
import pytest_asyncio

from leadline_client.channel import Protocol
from leadline_client.consumer import AsyncConsumer
from leadline_client.consumer_settings import ConsumerSettings
from leadline_client.errors import FencedInstance
from leadline_client.wire import NewTopic
from tests.support.faults.scenario import running_cluster
from tests.support.services.cluster import Cluster, wait_until

pytestmark = pytest.mark.asyncio(loop_scope="module")

PARTITIONS = 6
SETTINGS = {"group.min.session.timeout.ms": "1000"}
_names = itertools.count(1)
Place = tuple[str, int, int]


@dataclass
class Processed:
    """What consumers of one topic have processed, and whether two had a partition at once."""

    count: Counter[Place] = field(default_factory=Counter)
    owners: dict[tuple[str, int], tuple[str, float]] = field(default_factory=dict)
    clashes: list[str] = field(default_factory=list)

    def record(self, who: str, topic: str, partition: int, offset: int, until_s: float) -> None:
        """Count a record that a consumer may process until a time on the monotonic clock."""
        owner, lease_s = self.owners.get((topic, partition), (who, 0.0))
        if owner != who and time.monotonic() < lease_s:
            self.clashes.append(f"{topic}-{partition}: {owner} and {who}")
        self.owners[topic, partition] = who, until_s
        self.count[topic, partition, offset] += 1

    def gave_up(self, who: str, partitions: set[tuple[str, int]]) -> None:
        """Record that a consumer keeps only these partitions."""
        for one, (owner, _) in list(self.owners.items()):
            if owner == who and one not in partitions:
                del self.owners[one]


@dataclass
class HttpConsumer:
    """A consumer by the book, which asks another broker each time."""

    cluster: Cluster
    group: str
    processed: Processed
    joining: dict[str, Any]
    member: str = ""
    secret: str = ""
    cursor: str | None = None
    last: dict[str, Any] = field(default_factory=dict)
    rejoined: int = 0
    _brokers: itertools.cycle[int] = field(default_factory=lambda: itertools.cycle((1, 2, 3)))

    @property
    def owned(self) -> set[tuple[str, int]]:
        return {(row["topic"], row["partition"]) for row in self.last.get("assignment", [])}

    async def post(self, path: str, body: dict[str, Any]) -> httpx.Response:
        broker = f"broker-{next(self._brokers)}"
        return await self.cluster.post(
            broker, f"/v1/groups/{self.group}/consumers{path}", json=body, timeout=60
        )

    async def join(self) -> None:
        answer = await self.post("", {"session_timeout_ms": 5_000, **self.joining})
        assert answer.status_code == 201, answer.text
        body = answer.json()
        self.member, self.secret, self.cursor = body["consumer"], body["secret"], None

    async def ask(self, **options: Any) -> httpx.Response:
        body = {"secret": self.secret, "cursor": self.cursor, "wait_ms": 500, **options}
        return await self.post(f"/{self.member}/poll", body)

    async def poll(self, **options: Any) -> list[dict[str, Any]]:
        """Poll, and process the records as long as the lease allows."""
        sent_s = time.monotonic()
        answer = await self.ask(**options)
        if answer.status_code == 404:
            self.processed.gave_up(self.member, set())
            self.rejoined += 1
            await self.join()
            return []
        if answer.status_code in {503, 504}:
            await asyncio.sleep(0.05)
            return []
        assert answer.status_code == 200, answer.text
        self.last = answer.json()
        self.cursor = self.last["cursor"]
        until_s = sent_s + self.last["lease_ms"] / 1000
        for record in self.last["records"]:
            if time.monotonic() >= until_s:
                break
            place = record["topic"], record["partition"], record["offset"]
            self.processed.record(self.member, *place, until_s)
        self.processed.gave_up(self.member, self.owned)
        return list(self.last["records"])

    async def run(self) -> None:
        while True:
            await self.poll()

    async def leave(self) -> None:
        await self.poll(max_records=0)
        path = f"/v1/groups/{self.group}/members/{self.member}/leave"
        left = await self.cluster.post("broker-1", path, json={"secret": self.secret})
        assert left.status_code == 200, left.text
        self.processed.gave_up(self.member, set())


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def cluster() -> AsyncIterator[Cluster]:
    async with running_cluster(coordinators=2, settings=SETTINGS) as running:
        yield running


@dataclass
class World:
    """A topic of its own with its group, and what was produced."""

    cluster: Cluster
    topic: str
    group: str
    processed: Processed = field(default_factory=Processed)
    produced: set[Place] = field(default_factory=set)

    def consumer(self, **joining: Any) -> HttpConsumer:
        asked = {"topics": [self.topic], "offset_reset": "earliest", **joining}
        return HttpConsumer(self.cluster, self.group, self.processed, asked)

    async def produce(self, count: int) -> None:
        records = [{"key": f"k{n}", "value": f"v{n}"} for n in range(count)]
        path = f"/v1/topics/{self.topic}/records"
        answer = await self.cluster.post("broker-1", path, json={"records": records}, timeout=60)
        assert answer.status_code == 200, answer.text
        for row in answer.json()["records"]:
            self.produced.add((self.topic, row["partition"], row["offset"]))

    async def all_processed(self) -> bool:
        return self.produced <= self.processed.count.keys()

    async def committed(self) -> dict[int, int]:
        answer = await self.cluster.get("broker-2", f"/v1/groups/{self.group}/offsets")
        rows = answer.raise_for_status().json()["offsets"]
        return {row["partition"]: row["offset"] for row in rows}


@pytest_asyncio.fixture(loop_scope="module")
async def world(cluster: Cluster) -> World:
    number = next(_names)
    made = World(cluster, f"topic-{number}", f"group-{number}")
    await cluster.client.create_topic(NewTopic(made.topic, PARTITIONS, 3))
    await cluster.in_sync(made.topic, 3)
    return made


async def settled(*consumers: HttpConsumer, total: int = PARTITIONS) -> None:
    """Poll until these consumers own everything, each partition once."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        await asyncio.gather(*(one.poll(wait_ms=200) for one in consumers))
        owned = [place for one in consumers for place in one.owned]
        if len(owned) == len(set(owned)) == total and all(one.owned for one in consumers):
            return
    raise AssertionError([one.last for one in consumers])


async def test_a_consumer_reads_commits_and_continues(world: World) -> None:
    await world.produce(30)
    consumer = world.consumer()
    await consumer.join()

    await wait_until(lambda: _step(consumer, world), "every record is processed")
    assert max(world.processed.count.values()) == 1
    await consumer.leave()
    ends = Counter(partition for _, partition, _ in world.produced)
    assert await world.committed() == {n: ends[n] for n in range(PARTITIONS)}

    await world.produce(10)
    successor = world.consumer()
    await successor.join()
    await wait_until(lambda: _step(successor, world), "the rest is processed")
    assert max(world.processed.count.values()) == 1
    await successor.leave()


async def _step(consumer: HttpConsumer, world: World) -> bool:
    await consumer.poll()
    return await world.all_processed()


async def test_a_lost_answer_loses_nothing(world: World) -> None:
    await world.produce(5)
    consumer = world.consumer()
    await consumer.join()
    await settled(consumer)
    first = consumer.cursor
    await world.produce(20)

    lost = (await consumer.ask(max_records=10)).json()
    assert consumer.cursor == first

    assert lost["records"]
    assert not _places(lost) & world.processed.count.keys()
    await wait_until(lambda: _step(consumer, world), "every record is processed")
    assert max(world.processed.count.values()) == 1
    await consumer.leave()


def _places(answer: dict[str, Any]) -> set[Place]:
    return {(row["topic"], row["partition"], row["offset"]) for row in answer["records"]}


@pytest.mark.parametrize("protocol", ["eager", "cooperative"])
async def test_consumers_of_both_kinds_share_a_topic(world: World, protocol: Protocol) -> None:
    await world.produce(40)
    pair = [world.consumer(protocol=protocol), world.consumer(protocol=protocol)]
    for one in pair:
        await one.join()
    await settled(*pair)
    settings = ConsumerSettings(protocol=protocol, auto_commit_ms=100)
    url = world.cluster.url("broker-1")
    async with AsyncConsumer(url, world.group, settings=settings) as third:
        await third.subscribe([world.topic])
        running = [asyncio.create_task(one.run()) for one in pair]
        running.append(asyncio.create_task(_consume(third, world.processed)))
        try:
            await wait_until(lambda: _shared(third, pair), "the three share the topic")
            await world.produce(60)
            await wait_until(world.all_processed, "every record is processed")
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
    assert world.processed.clashes == []
    for one in pair:
        await one.leave()


async def _shared(third: AsyncConsumer, pair: list[HttpConsumer]) -> bool:
    return len(third.assignment) == 2 and all(len(one.owned) == 2 for one in pair)


async def _consume(consumer: AsyncConsumer, processed: Processed) -> None:
    while True:
        for one in await consumer.poll(timeout_s=0.2):
            place = one.topic, one.partition, one.record.offset
            processed.record("python", *place, time.monotonic())


async def test_a_silent_consumer_loses_its_partitions_after_its_lease(world: World) -> None:
    await world.produce(40)
    silent, other = world.consumer(session_timeout_ms=1_500), world.consumer()
    await silent.join()
    await other.join()
    await settled(silent, other)
    lost = silent.owned

    task = asyncio.create_task(other.run())
    try:
        await wait_until(lambda: _owns(other, PARTITIONS), "the other takes over")
        await world.produce(20)
        await wait_until(world.all_processed, "every record is processed")
        woken = await silent.ask()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert lost
    assert (woken.status_code, woken.json()["error_code"]) == (404, 40451)
    assert world.processed.clashes == []
    await other.leave()


async def _owns(consumer: HttpConsumer, count: int) -> bool:
    return len(consumer.owned) == count


async def test_a_stop_waits_for_the_poll_that_knows_of_it(world: World) -> None:
    first = world.consumer(protocol="cooperative")
    await first.join()
    await settled(first)
    stale = first.cursor
    second = world.consumer(protocol="cooperative")
    await second.join()

    await wait_until(lambda: _is_revoking(first), "the first is told to give up partitions")
    known, first.cursor = first.cursor, stale
    delayed = (await first.ask(wait_ms=0)).json()  # as a proxy might repeat it
    await second.poll(wait_ms=300)
    assert delayed["revoked"]
    assert second.owned == set()

    first.cursor = known
    await settled(first, second)
    await first.leave()
    await second.leave()


async def _is_revoking(consumer: HttpConsumer) -> bool:
    await consumer.poll(wait_ms=100)
    return bool(consumer.last["revoked"])


async def test_an_older_poll_that_waits_is_superseded(world: World) -> None:
    consumer = world.consumer()
    await consumer.join()
    await settled(consumer)
    waiting = asyncio.create_task(consumer.ask(wait_ms=1_500))
    await asyncio.sleep(0.3)

    newer = await consumer.ask(wait_ms=0)
    older = await waiting

    assert newer.status_code == 200
    assert (older.status_code, older.json()["error_code"]) == (409, 40979)
    await consumer.leave()


async def test_what_is_wrong_is_refused(world: World) -> None:
    consumer = world.consumer()
    path = f"/v1/groups/{world.group}/consumers"
    for body in (
        {"offset_reset": "earliest"},
        {"topics": [world.topic]},
        {"topics": [world.topic], "offset_reset": "middle"},
        {"topics": [world.topic], "offset_reset": "latest", "session_timeout_ms": 10},
        {"pattern": "(", "offset_reset": "latest"},
    ):
        assert (await world.cluster.post("broker-1", path, json=body)).status_code == 400
    assert (await world.cluster.get("broker-1", f"/v1/groups/{world.group}")).status_code == 404
    await consumer.join()
    await consumer.poll(wait_ms=0)
    generation = consumer.last["generation"]

    assert (await consumer.ask(secret="f" * 43)).json()["error_code"] == 40360
    for cursor in ("x", "e30=", "W10=", "//8=", "!" * 20):
        assert (await consumer.ask(cursor=cursor)).status_code == 400
    assert (await consumer.ask(wait_ms=10**9)).status_code == 400
    assert (await consumer.ask(colour="red")).status_code == 400
    seek = [{"topic": world.topic, "partition": 0, "offset": 10**9}]
    sought = (await consumer.ask(seek=seek)).json()
    assert {row["partition"]: row["reset_to"] for row in sought["resets"]} in ({0: 0}, {})
    assert sought["generation"] >= generation
    await consumer.leave()


async def test_a_replaced_consumer_ends_also_after_a_failover(world: World) -> None:
    instance = {"instance_id": "i", "instance_secret": "what the operator has given to it"}
    replaced, successor = world.consumer(**instance), world.consumer(**instance)
    await replaced.join()
    await settled(replaced)
    await successor.join()
    await settled(successor)
    await successor.poll(wait_ms=0)

    async def is_refused() -> bool:
        answer: dict[str, Any] = (await replaced.ask(wait_ms=0)).json()
        return answer.get("error_code") == FencedInstance.code

    assert await is_refused()
    active = await world.cluster.active_coordinator()
    await world.cluster.kill(active)
    await world.cluster.active_coordinator(not_in=[active])

    await wait_until(is_refused, "the next coordinator refuses it, too")
    await settled(successor)
    assert successor.rejoined == 0
    await successor.leave()
    world.cluster.restart(active)


async def test_members_survive_the_coordinator(world: World) -> None:
    await world.produce(40)
    pair = [world.consumer(), world.consumer()]
    for one in pair:
        await one.join()
    await settled(*pair)
    members = {one.member for one in pair}
    active = await world.cluster.active_coordinator()
    running = [asyncio.create_task(one.run()) for one in pair]
    try:
        await world.cluster.kill(active)
        await world.produce(30)
        await wait_until(world.all_processed, "every record is processed")
        await world.cluster.active_coordinator(not_in=[active])
        await world.produce(30)
        await wait_until(world.all_processed, "every record is processed after the failover")
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    assert world.processed.clashes == []
    assert {one.member for one in pair} == members
    for one in pair:
        await one.leave()
