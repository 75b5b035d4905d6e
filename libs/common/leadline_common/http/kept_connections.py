"""Connections to another service that are kept between requests, for writes too.

A write that is sent on a connection which the other end has closed has an unknown outcome, although
a new connection would have been refused. So a kept connection is used only if nothing has arrived
on it, an end of file included, and only for a moment: much shorter than any service keeps one, and
than it takes to notice that a host is gone.
"""

from __future__ import annotations

import select
from typing import TYPE_CHECKING, Final

import aiohttp

if TYPE_CHECKING:
    from aiohttp.client_reqrep import ConnectionKey
    from aiohttp.connector import Connection
    from aiohttp.tracing import Trace

IDLE_S: Final = 0.5
"""Half of the shortest time that `connections.max.idle.ms` allows."""


class KeptConnections(aiohttp.TCPConnector):
    """aiohttp's connections, of which only those are used again that are open beyond doubt."""

    def __init__(self) -> None:
        # Requests in flight are bounded where they come in. A bound here would let event streams,
        # which last for hours, keep all other requests waiting.
        super().__init__(limit=0, keepalive_timeout=IDLE_S)

    async def _get(self, key: ConnectionKey, traces: list[Trace]) -> Connection | None:
        """Return a kept connection, None if there is none: the caller then opens one."""
        while (found := await super()._get(key, traces)) is not None:
            if not _has_input(found):
                return found
            found.close()
        return None


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
