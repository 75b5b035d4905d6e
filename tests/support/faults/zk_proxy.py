"""A proxy before ZooKeeper that ends a process just before, or just after, one of its writes.

It can also break the connection there, and leave the process alone.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from functools import partial
from typing import Final

from tests.support.services.cluster import Cluster

_LENGTH_BYTES: Final = 4
_XID: Final = slice(4, 8)
_OPCODE: Final = slice(8, 12)
_MULTI: Final = (14).to_bytes(4, "big")


class CrashPoints:
    """Passes on what one process and ZooKeeper say; counts the process's transactions.

    Only transactions that name one of `paths` count. At the n-th after `arm`, `end` is
    awaited, which kills the process: before ZooKeeper hears of the transaction, or when
    ZooKeeper has answered it and the process has not heard. `ended` is set then.
    """

    def __init__(
        self, zookeeper: str, paths: Collection[bytes], end: Callable[[], Awaitable[None]]
    ) -> None:
        host, _, port = zookeeper.partition(":")
        self._zookeeper = (host, int(port))
        self._paths = paths
        self._end = end
        self._left = 0
        self._after = False
        self._is_armed = False
        self.ended = asyncio.Event()

    def arm(self, n: int, *, after: bool) -> None:
        """End the process at its n-th transaction from now on."""
        self.ended.clear()
        self._left, self._after, self._is_armed = n, after, n > 0

    async def finished(self) -> None:
        """Wait until the process has ended, if it has come to its n-th transaction."""
        if self._is_armed and self._left <= 0:
            await self.ended.wait()

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        """Accept connections within the block; yield the address, `host:port`."""
        server = await asyncio.start_server(self._connection, "127.0.0.1", 0)
        try:
            host, port = server.sockets[0].getsockname()[:2]
            yield f"{host}:{port}"
        finally:
            server.close()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            answers, requests = await asyncio.open_connection(*self._zookeeper)
            link = _Link(answers, writer)
            back = asyncio.create_task(link.pass_on())
            try:
                await self._pass_on(reader, requests, link)
            finally:
                back.cancel()
                requests.close()
                writer.close()

    async def _pass_on(
        self, reader: asyncio.StreamReader, requests: asyncio.StreamWriter, link: _Link
    ) -> None:
        while True:
            request = await _frame(reader)
            last = self._is_the_last(request)
            if last:
                link.withheld = request[_XID]
            if not last or self._after:
                requests.write(request)
                await requests.drain()
            if last:
                if self._after:
                    await link.answered.wait()
                await self._end()
                self.ended.set()
                return

    def _is_the_last(self, request: bytes) -> bool:
        if request[_OPCODE] != _MULTI or not any(path in request for path in self._paths):
            return False
        self._left -= 1
        return self._left == 0


async def put_before_controllers(
    cluster: Cluster, paths: Collection[bytes], stack: contextlib.AsyncExitStack
) -> dict[str, CrashPoints]:
    """Start each controller again with a proxy of its own, which lives as long as `stack`."""
    services = cluster.supervisor.layout.controllers
    ends = {service.name: partial(cluster.kill, service.name) for service in services}
    return await _put_before(cluster, ends, paths, stack)


async def put_before_coordinators(
    cluster: Cluster, paths: Collection[bytes], stack: contextlib.AsyncExitStack
) -> dict[str, CrashPoints]:
    """Do the same with each coordinator, but break only its connection instead of killing it."""

    async def end() -> None:
        """Leave the process alone: after this the proxy closes the connection."""

    ends = {service.name: end for service in cluster.supervisor.layout.coordinators}
    return await _put_before(cluster, ends, paths, stack)


async def _put_before(
    cluster: Cluster,
    ends: Mapping[str, Callable[[], Awaitable[None]]],
    paths: Collection[bytes],
    stack: contextlib.AsyncExitStack,
) -> dict[str, CrashPoints]:
    direct, points = cluster.file.zookeeper.partition("/")[0], {}
    for name, end in ends.items():
        points[name] = proxy = CrashPoints(direct, paths, end)
        address = await stack.enter_async_context(proxy.serving())
        child = cluster.child(name)
        child.argv = [argument.replace(direct, address) for argument in child.argv]
        await cluster.terminate(name)
        cluster.restart(name)
        await cluster.until_ready(name)
    return points


class _Link:
    """The way back: passes on all answers but the one that is withheld, which is `answered`."""

    def __init__(self, answers: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._answers = answers
        self._writer = writer
        self.withheld = b""
        self.answered = asyncio.Event()

    async def pass_on(self) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                answer = await _frame(self._answers)
                if answer[_XID] == self.withheld:
                    self.answered.set()
                    return
                self._writer.write(answer)
                await self._writer.drain()
        self._writer.close()


async def _frame(reader: asyncio.StreamReader) -> bytes:
    length = await reader.readexactly(_LENGTH_BYTES)
    return length + await reader.readexactly(int.from_bytes(length, "big"))
