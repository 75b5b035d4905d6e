"""Three brokers of Leadline with their controllers and coordinators, as `leadline up` runs them."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, Self

import httpx
import msgspec

from leadline_client import NewTopic
from leadline_common.zk.session import ZkSession
from peers.systems.system import BROKERS, NO_CONFIGS, REPLICATION, Partition, View
from peers.systems.waiting import until
from tests.support.services.cluster import Cluster

_MOST_S: Final = 120.0


class LeadlineCluster:
    """See `System`. Its controllers are processes of their own, one of them a standby."""

    name = "leadline"

    def __init__(
        self, directory: Path, zookeeper: str, session_ms: int, *, coordinators: int = 0
    ) -> None:
        self.start_s = 0.0
        self._cluster = Cluster(
            directory,
            brokers=len(BROKERS),
            controllers=2,
            coordinators=coordinators,
            zookeeper=zookeeper,
            settings={"zookeeper.session.timeout.ms": str(session_ms)},
        )
        self._http = httpx.AsyncClient(trust_env=False)
        self._killed_controller = ""
        self._views = MetadataViews()

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers, as the clients take them."""
        return self.bootstrap_without(0)

    def bootstrap_without(self, broker: int) -> str:
        """Return the addresses of the other brokers."""
        return ",".join(self._url(number) for number in BROKERS if number != broker)

    async def create_topic(
        self,
        name: str,
        partitions: int,
        *,
        configs: Mapping[str, str] = NO_CONFIGS,
        replicas: int = REPLICATION,
    ) -> None:
        """Create a topic, of whose replicas two must acknowledge."""
        await self._cluster.client.create_topic(
            NewTopic(name, partitions, replicas, configs=configs)
        )

    async def delete_topic(self, name: str) -> None:
        """Delete a topic."""
        await self._cluster.client.delete_topic(name)

    @asynccontextmanager
    async def zookeeper_session(self) -> AsyncIterator[ZkSession]:
        """Open a session that may read this system's nodes."""
        async with self._cluster.zookeeper() as session:
            yield session

    async def view(self, broker: int) -> View:
        """Return the whole metadata as one broker has it; only what changed is transferred."""
        return await self._views.read(self._http, self._url(broker))

    def broker_pid(self, broker: int) -> int:
        """Return the process id of a broker."""
        return self._cluster.child(f"broker-{broker}").pid or 0

    async def kill_broker(self, broker: int) -> None:
        """End a broker as a crash does."""
        await self._cluster.kill(f"broker-{broker}")

    async def restart_broker(self, broker: int) -> None:
        """Start a killed broker again, without waiting for it."""
        self._cluster.restart(f"broker-{broker}")

    async def controller_broker(self) -> int | None:
        """Return None: controllers are no brokers."""
        return None

    async def kill_controller(self) -> int | None:
        """End the active controller as a crash does; no broker ends with it."""
        self._killed_controller = await self._cluster.active_controller()
        await self._cluster.kill(self._killed_controller)
        return None

    async def restart_controller(self) -> None:
        """Start again what `kill_controller` killed, without waiting for it."""
        self._cluster.restart(self._killed_controller)

    async def __aenter__(self) -> Self:
        begun = time.monotonic()
        await self._cluster.__aenter__()
        try:
            self.start_s = await until(self._is_up, "Leadline is up") - begun
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *details: object) -> None:
        await self._http.aclose()
        await self._cluster.__aexit__(None, *details[1:])

    async def _is_up(self) -> bool:
        views = [await self.view(number) for number in BROKERS]
        return all(one.brokers == frozenset(BROKERS) for one in views)

    def _url(self, broker: int) -> str:
        return self._cluster.url(f"broker-{broker}")


class MetadataViews:
    """What brokers' metadata says. A document is transferred and decoded only if it has changed."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, View]] = {}

    async def read(self, http: httpx.AsyncClient, broker_url: str) -> View:
        """Return the whole metadata as a broker has it.

        Raises:
            ConnectionError: there was no answer, or it is an error.

        """
        known = self._known.get(broker_url)
        headers = {} if known is None else {"If-None-Match": known[0]}
        try:
            answer = await http.get(f"{broker_url}/v1/metadata", headers=headers, timeout=_MOST_S)
            if known is not None and answer.status_code == httpx.codes.NOT_MODIFIED:
                return known[1]
            answer.raise_for_status()
        except httpx.HTTPError as problem:
            raise ConnectionError(str(problem)) from problem
        found = view_of(answer.content)
        self._known[broker_url] = answer.headers["ETag"], found
        return found


def view_of(content: bytes) -> View:
    """Return the content of a metadata document."""
    document: dict[str, Any] = msgspec.json.decode(content)
    return View(
        frozenset(row["id"] for row in document["brokers"]),
        tuple(
            Partition(topic, number, -1 if leader is None else leader, tuple(isr))
            for topic, description in document["topics"].items()
            for number, leader, _, isr, *_ in description["partitions"]
        ),
    )
