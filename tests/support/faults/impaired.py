"""Requests between services that come late, twice or out of order, and answers that are lost.

    async with impaired(cluster, seeded) as channel:
        channel.paths = {REPLICA_FETCH_PATH}

The proxies end TLS on both sides, with the certificates of the services themselves, so that they
see whole requests and answers. They pass everything on unharmed as long as `paths` is empty.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Collection
from random import Random
from typing import Final
from urllib.parse import urlsplit

from leadline_common.identity import ServiceIdentity
from leadline_common.tcp_ports import LOOPBACK, ReservedPorts
from tests.support.faults.links import LinkThread, end, end_all, kill_all, restart_all
from tests.support.services.cluster import Cluster
from tests.support.services.identities import load_tls

KINDS: Final = ("delayed", "answer lost", "sent twice", "sent again later", "late")
_HARMED: Final = 0.25
"""The share of requests that something happens to."""
_LONGEST_S: Final = 0.8
_END_OF_HEAD: Final = b"\r\n\r\n"


class Channel:
    """What happens to requests; `done` counts each kind, `seen` all requests by path."""

    def __init__(self, cluster: Cluster, seeded: Random) -> None:
        self.cluster = cluster
        self.paths: Collection[str] = ()
        self.done: Counter[str] = Counter()
        self.seen: Counter[str] = Counter()
        self._seeded = seeded

    def fate_of(self, path: str) -> tuple[str, float]:
        """Return what is to happen to a request, and for how long (s)."""
        self.seen[path] += 1
        if path not in self.paths or self._seeded.random() > _HARMED:
            return "", 0.0
        kind = self._seeded.choice(KINDS)
        self.done[kind] += 1
        return kind, self._seeded.uniform(0.02, _LONGEST_S)


class MessageProxy:
    """Passes the requests for one service on, one after another for each connection."""

    def __init__(self, channel: Channel, target: ServiceIdentity, port: int) -> None:
        self._channel = channel
        self._target = target
        self._port = port
        self._tasks: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[int]:
        """Accept connections within the block; yield the port."""
        tls = load_tls(self._channel.cluster.credentials, self._target)
        server = await asyncio.start_server(self._accept, LOOPBACK, 0, ssl=tls.server)
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()
            await end_all(self._tasks)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._keep(asyncio.create_task(self._connection(reader, writer)))

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        certificate = writer.get_extra_info("peercert")
        caller = ServiceIdentity.of_certificate(certificate)
        assert caller is not None
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                async with self._upstream(caller) as upstream:
                    while answer := await self._answer(caller, await _message(reader), *upstream):
                        writer.write(answer)
                        await writer.drain()
        finally:
            await end(writer)

    async def _answer(
        self,
        caller: ServiceIdentity,
        request: bytes,
        answers: asyncio.StreamReader,
        requests: asyncio.StreamWriter,
    ) -> bytes:
        """Pass one request on, as its fate is; return the answer, b"" if the caller gets none."""
        kind, hold_s = self._channel.fate_of(_path_of(request))
        if kind in {"late", "sent again later"}:
            self._keep(asyncio.create_task(self._again(caller, request, hold_s)))
        if kind == "late":
            return b""
        answer = await _exchange(request, answers, requests)
        if kind == "sent twice":
            answer = await _exchange(request, answers, requests)
        if kind == "delayed":
            await asyncio.sleep(hold_s)
        return b"" if kind == "answer lost" else answer

    async def _again(self, caller: ServiceIdentity, request: bytes, hold_s: float) -> None:
        """Send a request once more, later, over a connection of its own; nobody gets the answer."""
        await asyncio.sleep(hold_s)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            async with self._upstream(caller) as (answers, requests):
                await _exchange(request, answers, requests)

    @contextlib.asynccontextmanager
    async def _upstream(
        self, caller: ServiceIdentity
    ) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        context: ssl.SSLContext = load_tls(self._channel.cluster.credentials, caller).client
        answers, requests = await asyncio.open_connection(
            LOOPBACK, self._port, ssl=context, server_hostname=self._target.host_name
        )
        try:
            yield answers, requests
        finally:
            await end(requests)


async def _exchange(
    request: bytes, answers: asyncio.StreamReader, requests: asyncio.StreamWriter
) -> bytes:
    requests.write(request)
    await requests.drain()
    return await _message(answers)


async def _message(reader: asyncio.StreamReader) -> bytes:
    """Read one request or answer, which says how long its body is."""
    head = await reader.readuntil(_END_OF_HEAD)
    fields = dict(line.partition(b":")[::2] for line in head.lower().split(b"\r\n")[1:])
    assert b"transfer-encoding" not in fields, head
    return head + await reader.readexactly(int(fields.get(b"content-length", b"0")))


def _path_of(request: bytes) -> str:
    return urlsplit(request.split(b" ", 2)[1].decode()).path


@contextlib.asynccontextmanager
async def impaired(cluster: Cluster, seeded: Random) -> AsyncIterator[Channel]:
    """Start brokers and controllers again behind proxies, which live as long as the block."""
    layout = cluster.supervisor.layout
    ports, stack = ReservedPorts(), contextlib.AsyncExitStack()
    channel = Channel(cluster, seeded)
    names = [one.name for one in (*layout.brokers, *layout.controllers)]
    with LinkThread() as thread:
        try:
            for identity in layout.identities:
                if identity.kind == "coordinator":
                    continue
                port = ports.take()
                proxy = MessageProxy(channel, identity, port)
                outside = await thread.run(stack.enter_async_context(proxy.serving()))
                url = f"https://{LOOPBACK}:{outside}"
                own = [f"internal.listen.port={port}", f"internal.advertised.url={url}"]
                child = cluster.child(f"{identity.kind}-{identity.id}")
                child.argv += [word for setting in own for word in ("--set", setting)]
            await restart_all(cluster, names)
            yield channel
        finally:
            channel.paths = ()
            await kill_all(cluster)
            await thread.run(stack.aclose())
            ports.release()
