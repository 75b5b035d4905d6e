"""Connections of aiohttp that are kept between forwarded requests, for writes too.

Forwarders stream responses, and pass on headers as they came; `HttpConnections` of the client
library, which does neither, says when a connection may be used again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import aiohttp

from leadline_client.http_connections import open_socket
from leadline_client.sockets import has_input

if TYPE_CHECKING:
    from aiohttp.client_reqrep import ConnectionKey
    from aiohttp.connector import Connection
    from aiohttp.tracing import Trace


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


def _has_input(connection: Connection) -> bool:
    """Tell whether something waits to be read, which the event loop has not handled yet."""
    transport = connection.transport
    if transport is None or transport.is_closing():
        return True
    return has_input(transport.get_extra_info("socket").fileno())
