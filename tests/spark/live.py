"""A live cluster for tests without an event loop: it runs on a loop in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from leadline_client.client import AsyncClient
from leadline_client.payloads import OutgoingRecord
from leadline_client.producer import AsyncProducer
from leadline_client.producer_settings import ProducerSettings
from leadline_client.wire import NewTopic
from tests.support.services.cluster import Cluster, wait_until

T = TypeVar("T")
DEADLINE_S = 60.0


class Live:
    """A started cluster. What it awaits, it awaits on its own loop."""

    def __init__(self, cluster: Cluster, loop: asyncio.AbstractEventLoop) -> None:
        self.cluster = cluster
        self._loop = loop

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers."""
        return self.cluster.bootstrap

    @property
    def client(self) -> AsyncClient:
        """A client, to be used through `run`."""
        return self.cluster.client

    def run(self, work: Coroutine[Any, Any, T], deadline_s: float = DEADLINE_S) -> T:
        """Await something of the cluster's."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(deadline_s)

    def topic(self, name: str, partitions: int = 1, replicas: int = 3, **configs: str) -> str:
        """Make a topic whose partitions are led and in sync, and return its name."""

        async def make() -> None:
            await self.client.create_topic(NewTopic(name, partitions, replicas, configs=configs))
            await self.cluster.in_sync(name, replicas)

        self.run(make())
        return name

    def send(
        self,
        topic: str,
        records: Iterable[OutgoingRecord],
        partition: int | None = None,
        **settings: Any,
    ) -> None:
        """Produce records, acknowledged by all in-sync replicas, with these ProducerSettings."""

        async def produce() -> None:
            async with AsyncProducer(self.client, ProducerSettings(**settings)) as producer:
                sent = [
                    await producer.send(
                        topic,
                        record.value,
                        key=record.key,
                        partition=partition,
                        headers=record.headers,
                        timestamp=record.timestamp,
                    )
                    for record in records
                ]
                await producer.flush()
                for place in sent:
                    place.result()

        self.run(produce())

    def delete(self, topic: str) -> None:
        """Delete a topic and wait until no broker speaks of it any more."""

        async def delete() -> None:
            await self.client.delete_topic(topic)
            await wait_until(gone, f"{topic} is gone everywhere")

        async def gone() -> bool:
            names = [broker.name for broker in self.cluster.supervisor.layout.brokers]
            asked = [await self.cluster.get(name, "/v1/metadata", topics=topic) for name in names]
            return not any(answer.json()["topics"] for answer in asked)

        self.run(delete())

    def group_offsets(self, group: str) -> list[dict[str, Any]]:
        """Return a group's committed offsets; none where nobody knows the group."""

        async def read() -> list[dict[str, Any]]:
            name = await self.cluster.active_coordinator()
            answer = await self.cluster.get(name, f"/v1/groups/{group}/offsets")
            return answer.json().get("offsets", []) if answer.status_code == 200 else []

        return self.run(read())

    def requests(self, *routes: str) -> int:
        """Return how many requests of these routes all brokers have answered."""

        async def count() -> int:
            names = [broker.name for broker in self.cluster.supervisor.layout.brokers]
            texts = [(await self.cluster.get(name, "/metrics")).text for name in names]
            return sum(_requests(text, routes) for text in texts)

        return self.run(count())

    def broker_requests(self, route: str) -> dict[str, int]:
        """Return how many requests of a route each broker has answered."""

        async def count() -> dict[str, int]:
            names = [broker.name for broker in self.cluster.supervisor.layout.brokers]
            texts = {name: (await self.cluster.get(name, "/metrics")).text for name in names}
            return {name: _requests(text, (route,)) for name, text in texts.items()}

        return self.run(count())

    def until_followers_have(self, topic: str, end: int) -> None:
        """Wait until every replica of partition 0 has this high watermark."""

        async def everywhere() -> bool:
            names = [broker.name for broker in self.cluster.supervisor.layout.brokers]
            asked = [(await self.cluster.get(name, "/v1/replicas")).json() for name in names]
            rows = [row for one in asked for row in one["replicas"] if row["topic"] == topic]
            return all(row["high_watermark"] == end for row in rows if row["partition"] == 0)

        self.run(wait_until(everywhere, f"the replicas of {topic}-0 have {end} records"))

    def leader_of(self, topic: str, partition: int, *, not_in: Sequence[str] = ()) -> str:
        """Return the name of a partition's leader."""
        return self.run(self.cluster.leader_of(topic, partition, not_in=not_in))

    def kill(self, name: str) -> None:
        """Kill -9 a service."""
        self.run(self.cluster.kill(name))

    def restart(self, name: str) -> None:
        """Start a killed service again and wait until it is ready."""

        async def back() -> None:
            self.cluster.restart(name)
            await self.cluster.until_ready(name)

        self.run(back())


def _requests(text: str, routes: Sequence[str]) -> int:
    return sum(
        int(float(line.rsplit(" ", 1)[1]))
        for line in text.splitlines()
        if line.startswith("leadline_http_requests_total")
        and any(f'route="{route}"' in line for route in routes)
    )


@contextmanager
def live_cluster(
    folder: Path, *, brokers: int = 3, settings: Mapping[str, str] | None = None, **options: Any
) -> Iterator[Live]:
    """Run a cluster for as long as the block lasts.

    The thread outlives the processes that it starts: they die with it.
    """
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="live cluster", daemon=True)
    thread.start()

    def run(work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, loop).result(DEADLINE_S)

    async def start() -> Cluster:
        return await Cluster(folder, brokers=brokers, settings=settings, **options).__aenter__()

    try:
        cluster = run(start())
        try:
            yield Live(cluster, loop)
        except BaseException:
            cluster.print_logs()
            raise
        finally:
            run(cluster.__aexit__(None, None, None))
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(DEADLINE_S)
        loop.close()
