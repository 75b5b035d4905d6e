"""Coordinators in this process against a real ZooKeeper, and consumers that only speak frames."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import httpx
import uvicorn
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from leadline_client import channel
from leadline_client.channel import Error, Hello, Ping, Pong, Start, Started, Stop, Stopped, Welcome
from leadline_client.wire import TopicPartition
from leadline_common import znodes
from leadline_common.clock import SystemClock
from leadline_common.http.listeners import Listener, bind
from leadline_common.identity import ServiceAddress
from leadline_common.settings import CoordinatorSettings
from leadline_common.zk.errors import NodeExists
from leadline_common.zk.ops import ANY_VERSION
from leadline_common.zk.session import ZkSession
from leadline_common.znodes import TopicAssignment
from leadline_coordinator.adapters.zk_store import ZkCoordinatorStore
from leadline_coordinator.api.app import build_app
from leadline_coordinator.domain.records import Ends
from leadline_coordinator.runtime.context import CoordinatorMetrics
from leadline_coordinator.runtime.elector import CoordinatorDependencies, CoordinatorElector
from leadline_coordinator.runtime.ports import CoordinatorStore
from leadline_coordinator.runtime.service import CoordinatorService
from tests.support.services.http_service import KEEP_ALIVE_S
from tests.support.services.zookeeper import until

SESSION_TIMEOUT_MS = 4000
SETTINGS: dict[str, Any] = {
    "zookeeper_session_timeout_ms": SESSION_TIMEOUT_MS,
    "group_ping_interval_ms": 200,
    "group_stop_limit_ms": 1500,
    "group_evict_limit_ms": 2000,
    "group_reconnect_grace_ms": 300,
    "group_initial_rebalance_delay_ms": 50,
    "group_topics_interval_ms": 500,
    "rebalance_answer_timeout_ms": 300,
}
"""GroupLimits that let a test wait for them."""


class KnownEnds:
    """Brokers that know where partitions begin and end."""

    def __init__(self) -> None:
        self.ends: dict[TopicPartition, Ends] = {}
        self.log_end_points: dict[TopicPartition, tuple[int, int] | None] = {}
        self.asked = asyncio.Event()
        self.answering = asyncio.Event()
        self.answering.set()

    async def offsets(
        self,
        brokers: Sequence[ServiceAddress],
        partitions: Collection[TopicPartition],
        timestamp: int | None,
    ) -> Mapping[TopicPartition, Ends]:
        del brokers, timestamp
        self.asked.set()
        await self.answering.wait()
        return {name: self.ends[name] for name in partitions if name in self.ends}

    async def log_ends(
        self, brokers: Sequence[ServiceAddress], partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, tuple[int, int]]:
        """Ends that no test commits beyond, unless it sets others; None: nobody answers."""
        del brokers
        found = {one: self.log_end_points.get(one, (1 << 40, 1 << 20)) for one in partitions}
        return {one: end for one, end in found.items() if end is not None}

    async def close(self) -> None:
        return


class CoordinatorRig:
    """One coordinator, served over HTTP by this process."""

    def __init__(self, hosts: str, coordinator_id: int = 1, **settings: Any) -> None:
        self.settings = CoordinatorSettings(
            coordinator_id=coordinator_id, zookeeper_connect=hosts, **(SETTINGS | settings)
        )
        self.brokers = KnownEnds()
        self.store: ZkCoordinatorStore | None = None
        self._listener: Listener = bind("127.0.0.1", 0)
        dependencies = CoordinatorDependencies(
            self._open_store, self.brokers, SystemClock(), lambda: uuid.uuid4().hex[:8]
        )
        self.elector = CoordinatorElector(
            self.settings, self._listener.url, dependencies, CoordinatorMetrics()
        )
        self.service = CoordinatorService(self.elector)
        self.app = build_app(self.service, self.elector.metrics, self.settings.request_max_bytes)
        self.http = httpx.AsyncClient(base_url=self.url, timeout=20)
        self._task: asyncio.Task[None] | None = None
        self._server: uvicorn.Server | None = None
        self._serving: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        return self._listener.url

    async def _open_store(self) -> CoordinatorStore:
        self.store = ZkCoordinatorStore()
        await self.store.start(
            self.settings.zookeeper_connect, self.settings.zookeeper_session_timeout_ms
        )
        return self.store

    async def start(self) -> None:
        config = uvicorn.Config(
            self.app,
            log_config=None,
            lifespan="off",
            ws="websockets-sansio",
            ws_ping_interval=None,
            timeout_graceful_shutdown=1,
            timeout_keep_alive=KEEP_ALIVE_S,
        )
        server = uvicorn.Server(config)
        server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]  # not ours
        self._server = server
        self._serving = asyncio.create_task(server.serve(sockets=[self._listener.socket]))
        self._task = asyncio.create_task(self.elector.election.run())
        await until(lambda: server.started, "the server starts")

    async def active(self) -> None:
        await until(lambda: self.service.is_active, "this coordinator is active")

    async def resign(self) -> None:
        """Give up leadership, as a coordinator that stops does; keep serving requests."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def stop(self) -> None:
        await self.resign()
        if self._server is not None and self._serving is not None:
            self._server.should_exit = True
            await self._serving
        await self.http.aclose()
        await self.app.forwarder.close()


@contextlib.asynccontextmanager
async def coordinator(hosts: str, coordinator_id: int = 1, **settings: Any) -> AsyncIterator[Any]:
    """A coordinator, active or standby, for the length of the `with` statement."""
    rig = CoordinatorRig(hosts, coordinator_id, **settings)
    await rig.start()
    try:
        yield rig
    finally:
        await rig.stop()


class FrameConsumer:
    """A consumer that answers what it is asked, as far as it is let, and remembers it all."""

    def __init__(self, url: str, group: str, **hello: Any) -> None:
        self.group = group
        self.hello = Hello(**({"topics": ("orders",)} | hello))
        self.welcome: Welcome | None = None
        self.secret: str | None = None
        self.frames: list[channel.Frame] = []
        self.starts: list[Start] = []
        self.stops: list[Stop] = []
        self.error: Error | None = None
        self.owned: set[tuple[str, int]] = set()
        self.answers_pings = self.answers_stops = self.answers_starts = True
        self.closed = asyncio.Event()
        self._url = url
        self._socket: ClientConnection | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def member(self) -> str:
        assert self.welcome is not None
        return self.welcome.member

    @property
    def generation(self) -> int:
        return self.starts[-1].generation if self.starts else -1

    async def connect(self, url: str | None = None) -> None:
        """Open the channel and say hello; answers go on by themselves."""
        self._url = url or self._url
        path = channel.CHANNEL_PATH.format(group=self.group)
        self._socket = await connect(
            "ws" + self._url.removeprefix("http") + path, ping_interval=None
        )
        self.closed.clear()
        await self._socket.send(channel.encode(self.hello))
        self._task = asyncio.create_task(self._answer(self._socket))

    async def reconnect(self, url: str | None = None) -> None:
        """Come back with what it had."""
        await self.drop()
        assert self.welcome is not None
        owned = channel.group_partitions(self.owned)
        kept = ("topics", "pattern", "instance_id", "instance_secret")
        known = {name: getattr(self.hello, name) for name in kept}
        self.hello = Hello(
            **known,
            member=self.member,
            secret=self.secret,
            owned=owned,
            assignor=self.hello.assignor,
            protocol=self.hello.protocol,
            coordinator_epoch=self.welcome.coordinator_epoch,
            generation=self.generation,
        )
        await self.connect(url)

    async def answer_start(self) -> None:
        """Answer the last Start by hand."""
        assert self._socket is not None
        await self._socket.send(channel.encode(started(self.starts[-1])))

    async def drop(self) -> None:
        """Lose the connection without a word, as a process does that is killed."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._socket is not None:
            self._socket.transport.abort()

    async def _answer(self, socket: ClientConnection) -> None:
        try:
            with contextlib.suppress(ConnectionClosed):
                async for text in socket:
                    answer = self._on_frame(channel.decode(text))
                    if answer is not None:
                        await socket.send(channel.encode(answer))
        finally:
            self.closed.set()

    def _on_frame(self, frame: channel.Frame) -> channel.Frame | None:
        self.frames.append(frame)
        match frame:
            case Welcome():
                self.welcome = frame
                self.secret = frame.secret or self.secret
            case Error():
                self.error = frame
            case Ping() if self.answers_pings:
                return Pong(
                    id=frame.id,
                    coordinator_epoch=frame.coordinator_epoch,
                    generation=frame.generation,
                )
            case Stop():
                self.stops.append(frame)
                if self.answers_stops:
                    self.owned -= set(channel.partition_pairs(frame.partitions))
                    return stopped(frame)
            case Start():
                self.starts.append(frame)
                self.owned = set(channel.partition_pairs(frame.assignment))
                if self.answers_starts:
                    return started(frame)
            case _:
                pass
        return None


def started(start: Start) -> Started:
    """The answer to a Start."""
    return Started(
        id=start.id,
        coordinator_epoch=start.coordinator_epoch,
        generation=start.generation,
        attempt=start.attempt,
    )


def stopped(stop: Stop) -> Stopped:
    """The answer to a Stop."""
    return Stopped(
        id=stop.id,
        coordinator_epoch=stop.coordinator_epoch,
        generation=stop.generation,
        attempt=stop.attempt,
        partitions=stop.partitions,
    )


async def make_topic(
    session: ZkSession,
    name: str,
    partitions: int,
    topic_id: str = "",
    first_epochs: Mapping[int, int] = MappingProxyType({}),
) -> None:
    """Write the node of a topic, as a controller does."""
    await session.ensure_path(znodes.TOPICS)
    assignment = TopicAssignment(
        topic_id or uuid.uuid4().hex,
        dict.fromkeys(range(partitions), (1,)),
        first_epochs=dict(first_epochs),
    )
    data = znodes.encode_topic(assignment)
    try:
        await session.create(znodes.topic_path(name), data)
    except NodeExists:
        await session.set(znodes.topic_path(name), data, ANY_VERSION)


def all_of(topic: str, partitions: int) -> set[TopicPartition]:
    """All partitions of a topic."""
    return {TopicPartition(topic, number) for number in range(partitions)}
