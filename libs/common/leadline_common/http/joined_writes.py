"""Sends the head of a response together with the begin of its body.

uvicorn writes them one after the other: two packets, of which each wakes the other end, and two
records of TLS.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

JOINED_BYTES: Final = 16 * 1024
"""A larger body is not copied: the transport gets the head and the body as two pieces."""


class JoinedWrites:
    """What a response needs of its transport; what it writes first, its head, waits for the rest.

    It waits until the event loop goes on at most: a stream sends its head before it has a body.
    """

    __slots__ = ("_head", "_is_first", "_loop", "_transport")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._is_first = True
        self._head = b""

    def write(self, data: bytes) -> None:
        """Send data, the first of it together with the next."""
        if self._is_first:
            self._is_first = False
            self._head = data
            self._loop.call_soon(self._send_head)
            return
        head, self._head = self._head, b""
        if head and len(data) > JOINED_BYTES:
            self._transport.writelines((head, data))
        else:
            self._transport.write(head + data if head else data)

    def _send_head(self) -> None:
        if self._head:
            self.write(b"")

    def close(self) -> None:
        """Send what waits, and end the connection."""
        self._send_head()
        self._transport.close()

    def is_closing(self) -> bool:
        """Tell whether the connection was closed."""
        return self._transport.is_closing()


class JoinedResponses(HttpToolsProtocol):
    """uvicorn's connection, with such responses."""

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        cycle.transport = JoinedWrites(self.transport, self.loop)  # type: ignore[assignment]  # it needs no more
        super()._start_asgi_task(cycle, app)
