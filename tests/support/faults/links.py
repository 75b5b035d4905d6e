"""Links between the processes of a cluster that can be cut, delayed and slowed down, without root.

    async with linked(cluster) as links:
        links.cut(("broker-1", "broker-2"))     # what 1 sends to 2; 2 to 1 still passes
        links.isolate("broker-3")
        links.heal()

Every service is started again behind proxies: one before its internal listener, one before its
public listener, and one on its way to ZooKeeper, which are the addresses that it advertises and
uses. A proxy asks /proc who has connected. A cut is silent, as in a real network: connections
stay, new ones are accepted by the system, and nothing arrives; what was sent meanwhile arrives
when the link is healed, unless its connection was closed. Clients come under the name `client`,
unless they use the address of the service itself (`Cluster.url`).
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Final, Self, TypeVar
from urllib.parse import urlsplit

from leadline_cli.cluster_layout import ServiceSpec
from leadline_common.tcp_ports import LOOPBACK, ReservedPorts
from tests.support.faults.socket_owner import owner_of
from tests.support.services.cluster import Cluster

CLIENT: Final = "client"
ZOOKEEPER: Final = "zookeeper"
_CHUNK: Final = 16 * 1024
_SLOW_CHUNK: Final = 2 * 1024
_CLOSE_S: Final = 1.0
_LOOP_TURNS: Final = 4
T = TypeVar("T")

Pair = tuple[str, str]
"""Who sends, and who is to receive."""


@dataclass(slots=True)
class Pace:
    """How slow data arrives: a delay, and a rate that all links with this pace share."""

    delay_s: float
    bytes_per_s: float
    _free_at_s: float = 0.0

    def arrival_s(self, now_s: float, size: int) -> float:
        """Return when data that is sent now will have arrived."""
        self._free_at_s = max(self._free_at_s, now_s) + size / self.bytes_per_s
        return self._free_at_s + self.delay_s


@dataclass(slots=True)
class Link:
    """One direction between two processes; `held` counts what met a cut, `passed` what did not."""

    opened: asyncio.Event = field(default_factory=asyncio.Event)
    pace: Pace | None = None
    held: int = 0
    passed: int = 0

    def __post_init__(self) -> None:
        self.opened.set()

    async def wait(self) -> None:
        """Return when the link is not cut."""
        if not self.opened.is_set():
            self.held += 1
            await self.opened.wait()
        self.passed += 1


class Links:
    """All links of one cluster."""

    def __init__(self, cluster: Cluster, thread: LinkThread) -> None:
        self.cluster = cluster
        self._thread = thread
        self._links: dict[Pair, Link] = {}

    def between(self, sender: str, receiver: str) -> Link:
        """Return one direction of a link."""
        return self._links.setdefault((sender, receiver), Link())

    def cut(self, *pairs: Pair) -> None:
        """Let nothing through from the first to the second of each pair."""
        for sender, receiver in pairs:
            self.cluster.note("cut", f"{sender} to {receiver}")
            self._do(self.between(sender, receiver).opened.clear)

    def cut_both(self, one: str, other: str) -> None:
        """Let nothing through between two processes."""
        self.cut((one, other), (other, one))

    def isolate(self, name: str) -> None:
        """Cut a process off from everybody, clients and ZooKeeper included."""
        services = [one.name for one in self.cluster.supervisor.layout.services]
        for other in (*services, CLIENT, ZOOKEEPER):
            if other != name:
                self.cut_both(name, other)

    def slow_down(self, pace: Pace, pairs: Iterable[Pair]) -> None:
        """Let what these pairs send share a slow line."""
        for sender, receiver in pairs:
            self.cluster.note("slow", f"{sender} to {receiver}")
            self.between(sender, receiver).pace = pace

    def heal(self) -> None:
        """Let everything through again."""
        for (sender, receiver), link in list(self._links.items()):
            if not link.opened.is_set() or link.pace is not None:
                self.cluster.note("heal", f"{sender} to {receiver}")
            link.pace = None
            self._do(link.opened.set)

    def _do(self, change: Callable[[], object]) -> None:
        """Change a link where the proxies run, and return when it is done."""
        done = threading.Event()

        def act() -> None:
            change()
            done.set()

        self._thread.loop.call_soon_threadsafe(act)
        done.wait()

    def held(self, *pairs: Pair) -> int:
        """Return how often something met one of these cuts."""
        return sum(self.between(*pair).held for pair in pairs)

    def pids(self) -> dict[int, str]:
        """Return the services by process id."""
        services = (one.name for one in self.cluster.supervisor.layout.services)
        children = (self.cluster.child(name) for name in services)
        return {child.pid: child.name for child in children if child.pid is not None}


class Proxy:
    """Passes connections on to one address, over the links of those who open them.

    With `opened_by`, every connection is this process's, and nobody is asked.
    """

    def __init__(
        self, links: Links, target: str, address: tuple[str, int], opened_by: str = ""
    ) -> None:
        self._links = links
        self._target = target
        self._address = address
        self._opened_by = opened_by
        self._tasks: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def serving(self, port: int = 0) -> AsyncIterator[int]:
        """Accept connections within the block; yield the port."""
        server = await asyncio.start_server(self._accept, LOOPBACK, port)
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()
            await end_all(self._tasks)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._connection(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        source = self._opened_by or self._who(writer)
        there = self._links.between(source, self._target)
        back = self._links.between(self._target, source)
        try:
            await there.wait()
            answers, requests = await asyncio.open_connection(*self._address)
        except OSError:
            await end(writer)
            return
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_flow(reader, requests, there))
                group.create_task(_flow(answers, writer, back))
        except* OSError:
            pass  # One end is gone, so the other one is closed, too.
        finally:
            await end(requests, writer)

    def _who(self, writer: asyncio.StreamWriter) -> str:
        names = self._links.pids()
        port, own = (writer.get_extra_info(end)[1] for end in ("peername", "sockname"))
        pid = owner_of(port, own, names)
        return CLIENT if pid is None else names[pid]


async def _flow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, link: Link) -> None:
    """Pass on one direction of a connection until it ends; raise OSError to end the other, too."""
    loop = asyncio.get_running_loop()
    last_arrival_s = 0.0
    while True:
        data = await reader.read(_CHUNK if link.pace is None else _SLOW_CHUNK)
        await link.wait()
        pace = link.pace
        if data and pace is not None:
            last_arrival_s = max(last_arrival_s, pace.arrival_s(loop.time(), len(data)))
            loop.call_at(last_arrival_s, writer.write, data)
            await asyncio.sleep(last_arrival_s - pace.delay_s - loop.time())
            continue
        await asyncio.sleep(max(0.0, last_arrival_s - loop.time()))
        if not data:
            raise ConnectionResetError
        writer.write(data)
        await writer.drain()


async def end(*writers: asyncio.StreamWriter) -> None:
    """Close connections, whatever the other ends still have to read."""
    for writer in writers:
        writer.close()
    for writer in writers:
        try:
            async with asyncio.timeout(_CLOSE_S):
                await writer.wait_closed()
        except (OSError, TimeoutError):
            writer.transport.abort()


async def end_all(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Cancel what serves connections, and return when all of these are closed."""
    running = list(tasks)
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    for _ in range(_LOOP_TURNS):  # A transport that was aborted closes its socket in the next one.
        await asyncio.sleep(0)


class LinkThread:
    """Runs proxies beside the test, whose own loop is too busy to pass on heartbeats in time."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="links", daemon=True)

    async def run(self, work: Coroutine[object, object, T]) -> T:
        """Return what a coroutine returns in this thread's loop."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self.loop))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


@contextlib.asynccontextmanager
async def linked(cluster: Cluster) -> AsyncIterator[Links]:
    """Start every service again behind proxies, which live as long as the block."""
    services = cluster.supervisor.layout.services
    ports, stack = ReservedPorts(), contextlib.AsyncExitStack()
    with LinkThread() as thread:
        links = Links(cluster, thread)
        try:
            for service in services:
                own = await thread.run(_proxies(links, service, ports.take(), stack))
                flags = [part for name in own for part in ("--set", f"{name}={own[name]}")]
                cluster.child(service.name).argv += flags
            await restart_all(cluster, [service.name for service in services])
            yield links
        finally:
            links.heal()
            await kill_all(cluster)
            await thread.run(stack.aclose())
            ports.release()


async def _proxies(
    links: Links, service: ServiceSpec, internal: int, stack: contextlib.AsyncExitStack
) -> dict[str, str]:
    """Start the proxies of a service; return the settings that lead others, and it, to them."""
    public = urlsplit(service.url).port or 0
    zookeeper, _, chroot = links.cluster.file.zookeeper.partition("/")
    assert "," not in zookeeper, "one proxy leads to one ZooKeeper server"
    host, _, port = zookeeper.partition(":")
    before_internal = Proxy(links, service.name, (LOOPBACK, internal)).serving()
    before_public = Proxy(links, service.name, (LOOPBACK, public), opened_by=CLIENT).serving()
    to_zookeeper = Proxy(links, ZOOKEEPER, (host, int(port)), opened_by=service.name).serving()
    address = f"{LOOPBACK}:{await stack.enter_async_context(to_zookeeper)}"
    return {
        "internal.listen.port": str(internal),
        "internal.advertised.url": f"https://{LOOPBACK}:"
        f"{await stack.enter_async_context(before_internal)}",
        "advertised.url": f"http://{LOOPBACK}:{await stack.enter_async_context(before_public)}",
        "zookeeper.connect": f"{address}/{chroot}" if chroot else address,
    }


async def kill_all(cluster: Cluster) -> None:
    """Kill all services: without the proxies a clean stop would wait for ZooKeeper in vain."""
    services = cluster.supervisor.layout.services
    await asyncio.gather(*(cluster.child(service.name).kill() for service in services))


async def restart_all(cluster: Cluster, names: Iterable[str]) -> None:
    """Stop services cleanly, and start them with what their argv is now."""
    names = sorted(names)  # brokers before controllers, of whom they take leave
    for kind in ("broker", "coordinator", "controller"):
        same = [name for name in names if name.startswith(kind)]
        await asyncio.gather(*(cluster.child(name).stop() for name in same))
    for name in names:
        cluster.restart(name)
    await asyncio.gather(*(cluster.until_ready(name) for name in names))
