"""Connections of HTTP/1.1 that are kept between requests, for writes too.

A write that is sent on a connection which the other end has closed has an unknown outcome, although
a new connection would have been refused. So a kept connection is used only if nothing has arrived
on it, an end of file included, and only for a moment: shorter than any service keeps one, and than
it takes to notice that a host is gone.
"""

from __future__ import annotations

import asyncio
import math
import socket
import ssl
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple
from urllib.parse import SplitResult

from aiohappyeyeballs import AddrInfoType, start_connection

from leadline_client.ending_process import is_ending
from leadline_client.http_connection import HttpConnection, RawRequest
from leadline_client.transport import READS, Response

_CONGESTION: Final = b"cubic"
_PORTS: Final = {"http": 80, "https": 443}
_NEXT_ADDRESS_S: Final = 0.25
"""After this a name's next address is tried, too (RFC 8305)."""


class NotConnected(OSError):
    """There was no connection, so that nothing was sent."""


class Address(NamedTuple):
    """Where a connection leads, and as which client.

    `tls` is None for plain HTTP. `server_name`: whom the server's certificate has to name, if it is
    not `host`.
    """

    host: str
    port: int
    tls: ssl.SSLContext | None = None
    server_name: str | None = None

    @classmethod
    def of(
        cls, parts: SplitResult, tls: ssl.SSLContext | None, server_name: str | None = None
    ) -> Address:
        """Return where a URL leads; raises ValueError if it leads nowhere."""
        if parts.scheme not in _PORTS or not parts.hostname:
            raise ValueError("the address is no http:// or https:// URL of a host")
        return cls(parts.hostname, parts.port or _PORTS[parts.scheme], tls, server_name)


class HttpConnections:
    """The connections of one client. Owned by the event loop of the first request.

    `idle_s`: how long a connection is kept for the next request. Their number has no limit, because
    each long poll holds one, and all others would wait for those. One that the server ends is
    forgotten at once, although nobody may ever ask its address again: a buffer of TLS takes 256 KB.
    """

    def __init__(self, idle_s: float) -> None:
        self._idle_s = idle_s
        self._idle: dict[Address, deque[tuple[HttpConnection, float]]] = {}
        self._open: set[HttpConnection] = set()
        self._swept_s = 0.0
        self._times_closed = 0

    def __len__(self) -> int:
        return len(self._open)

    async def exchange(
        self,
        address: Address,
        request: RawRequest,
        *,
        connect_timeout_s: float,
        timeout_s: float,
        total_s: float = math.inf,
    ) -> Response:
        """Return the response, whatever its status; `timeout_s` limits the wait for each part.

        `total_s` limits the whole of it, from now on.

        What only reads is sent again, over a new connection, if its kept connection broke. Other
        requests are not: the caller has to know that the first may have been carried out (R15).

        Raises:
            NotConnected: nothing was sent.
            TimeoutError, OSError: the request was sent at least in part.

        """
        closed = self._times_closed
        give_up_s = asyncio.get_running_loop().time() + total_s
        kept = self._take(address)
        if kept is not None:
            try:
                return await self._ask(kept, address, request, timeout_s, give_up_s)
            except OSError as problem:
                is_sent_again = request.method in READS and not isinstance(problem, TimeoutError)
                if closed != self._times_closed or not is_sent_again:
                    raise
        fresh = await _connected(address, connect_timeout_s)
        if closed != self._times_closed:
            fresh.close()
            raise NotConnected("the client was closed")
        self._open.add(fresh)
        fresh.on_lost = partial(self._lost, address)
        return await self._ask(fresh, address, request, timeout_s, give_up_s)

    def close(self) -> None:
        """Close all connections; requests under way fail, also those that are being connected."""
        self._times_closed += 1
        for connection in tuple(self._open):
            self._close(connection)
        self._idle.clear()

    async def _ask(
        self,
        connection: HttpConnection,
        address: Address,
        request: RawRequest,
        timeout_s: float,
        give_up_s: float,
    ) -> Response:
        try:
            return await connection.exchange(request, timeout_s, give_up_s)
        finally:
            self._keep(address, connection)

    def _take(self, address: Address) -> HttpConnection | None:
        """Return a kept connection that is open beyond doubt, or None."""
        idle = self._idle.get(address)
        now_s = asyncio.get_running_loop().time()
        while idle:
            connection, since_s = idle.pop()
            is_recent = now_s - since_s < self._idle_s
            if is_recent and connection.is_reusable and not connection.has_input:
                return connection
            self._close(connection)
        self._idle.pop(address, None)  # An address of a former certificate is never asked again.
        return None

    def _keep(self, address: Address, connection: HttpConnection) -> None:
        """Keep a connection if it stays open, and close those that have been idle for too long."""
        if not connection.is_reusable or connection not in self._open:
            self._close(connection)
            return
        now_s = asyncio.get_running_loop().time()
        self._idle.setdefault(address, deque()).append((connection, now_s))
        if now_s - self._swept_s >= self._idle_s:
            self._swept_s = now_s
            for one in list(self._idle):
                self._close_old(one, now_s)

    def _close_old(self, address: Address, now_s: float) -> None:
        idle = self._idle[address]
        while idle and now_s - idle[0][1] >= self._idle_s:
            self._close(idle.popleft()[0])
        if not idle:
            del self._idle[address]

    def _lost(self, address: Address, connection: HttpConnection) -> None:
        """Forget a connection that has ended."""
        self._open.discard(connection)
        idle = self._idle.get(address)
        if idle is not None:
            left = deque(kept for kept in idle if kept[0] is not connection)
            if left:
                self._idle[address] = left
            else:
                del self._idle[address]

    def _close(self, connection: HttpConnection) -> None:
        self._open.discard(connection)
        connection.close()


async def _connected(address: Address, timeout_s: float) -> HttpConnection:
    """Return a new connection; `timeout_s` limits each of its two steps. Raises NotConnected."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(timeout_s):
            opened = await start_connection(
                await _addresses(loop, address.host, address.port),
                happy_eyeballs_delay=_NEXT_ADDRESS_S,
                interleave=1,
                loop=loop,
                socket_factory=open_socket,
            )
        connection = await _connection_over(opened, address, timeout_s)
    except (OSError, UnicodeError) as problem:  # A TimeoutError is an OSError.
        raise NotConnected(str(problem) or f"no connection in {timeout_s:g} s") from problem
    if not connection.is_reusable:
        raise NotConnected("the server closed the connection at once")
    return connection


async def _connection_over(
    opened: socket.socket, address: Address, timeout_s: float
) -> HttpConnection:
    """Return the connection over an open socket, which belongs to the event loop from now on.

    A cancellation does not reach the loop's part. What it closes then, and whether it does so at
    once, depends on how far the handshake of TLS is, and on the kind of loop.
    """
    loop = asyncio.get_running_loop()
    name = address.server_name or address.host
    making = asyncio.ensure_future(
        loop.create_connection(
            HttpConnection,
            sock=opened,
            ssl=address.tls,
            server_hostname=name if address.tls else None,
            ssl_handshake_timeout=timeout_s if address.tls else None,
        )
    )
    try:
        _, connection = await asyncio.shield(making)
    except asyncio.CancelledError:
        making.add_done_callback(_close_unused)
        raise
    return connection


def _close_unused(made: asyncio.Future[tuple[asyncio.Transport, HttpConnection]]) -> None:
    """Close a connection that was made for a request which was given up meanwhile."""
    if not made.cancelled() and made.exception() is None:
        made.result()[1].close()


async def _addresses(
    loop: asyncio.AbstractEventLoop, host: str, port: int
) -> Sequence[AddrInfoType]:
    """Return the addresses of a host; a number needs no thread that asks for it."""
    kind = socket.SOCK_STREAM
    try:
        return socket.getaddrinfo(host, port, type=kind, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        pass
    try:
        return await loop.getaddrinfo(host, port, type=kind)
    except RuntimeError as refusal:
        if not is_ending(refusal):
            raise
        return socket.getaddrinfo(host, port, type=kind)


def open_socket(address: AddrInfoType) -> socket.socket:
    """Create the socket of a connection that is kept.

    Some hosts default to a congestion control that paces short transfers; on a fast network
    cubic is up to twice as fast. The socket works without it.
    """
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    option = getattr(socket, "TCP_CONGESTION", None)
    if option is not None:
        try:
            made.setsockopt(socket.IPPROTO_TCP, option, _CONGESTION)
        except OSError:
            return made
    return made
