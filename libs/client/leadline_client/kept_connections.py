"""Connections of aiohttp that are kept between requests, for writes too.

A write that is sent on a connection which the other end has closed has an unknown outcome, although
a new connection would have been refused. So a kept connection is used only if nothing has arrived
on it, an end of file included, and only for a moment: shorter than any service keeps one, and than
it takes to notice that a host is gone.
"""

from __future__ import annotations

import select
import socket
from typing import TYPE_CHECKING, Final

import aiohttp

if TYPE_CHECKING:
    from aiohttp.client_reqrep import ConnectionKey
    from aiohttp.connector import Connection
    from aiohttp.tracing import Trace

_CONGESTION: Final = b"cubic"


class KeptConnections(aiohttp.TCPConnector):
    """aiohttp's connections, of which only those are used again that are open beyond doubt.

    `idle_s`: how long a connection is kept for the next request. Their number has no limit, because
    each long poll and each stream of events holds one, and all others would wait for those.
    """

    def __init__(self, idle_s: float) -> None:
        super().__init__(limit=0, keepalive_timeout=idle_s, socket_factory=open_socket)

    async def _get(self, key: ConnectionKey, traces: list[Trace]) -> Connection | None:
        """Return a kept connection, None if there is none: the caller then opens one."""
        while (found := await super()._get(key, traces)) is not None:
            if not _has_input(found):
                return found
            found.close()
        return None


class SentOnce:
    """A middleware for one request, which stops aiohttp from repeating it.

    aiohttp repeats a PUT or DELETE whose kept connection broke. The answer to the second one says
    nothing about the first, which may have been carried out (rule R15).
    """

    def __init__(self) -> None:
        self._sent = False

    async def __call__(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """Send the request; the second time raise ClientConnectionError."""
        if self._sent:
            raise aiohttp.ClientConnectionError("the connection broke")
        self._sent = True
        return await handler(request)


def open_socket(address: aiohttp.AddrInfoType) -> socket.socket:
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


def _has_input(connection: Connection) -> bool:
    """Tell whether something waits to be read, which the event loop has not handled yet.

    Between requests nothing may arrive but the end of the connection.
    """
    transport = connection.transport
    if transport is None or transport.is_closing():
        return True
    poll = select.poll()  # `select` cannot watch descriptors above 1,023.
    poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)
    return bool(poll.poll(0))
