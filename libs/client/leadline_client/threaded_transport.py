"""An asynchronous transport over a blocking one: each request runs in a thread.

It serves event loops where the extra `http` is not installed, and shares the transport of a
blocking client.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from leadline_client.ending_process import is_ending
from leadline_client.errors import InvalidRequest
from leadline_client.transport import CLOSED, Request, Response, Transport

_MOST_THREADS: Final = 256
"""Every long poll takes a thread, so a consumer can read that many partitions at the same time."""


class ThreadedTransport:
    """Sends requests by a blocking transport that several threads may share.

    `owned`: closing this transport closes the other one too.
    """

    def __init__(self, transport: Transport, *, owned: bool) -> None:
        self._transport = transport
        self._owned = owned
        self._is_closed = False
        self._threads = ThreadPoolExecutor(_MOST_THREADS, thread_name_prefix="leadline-http")

    async def send(self, request: Request) -> Response:
        """Return the response; raises as `Transport.send` does, and InvalidRequest once closed."""
        self._check_open()
        loop = asyncio.get_running_loop()
        try:
            sent = loop.run_in_executor(self._threads, self._send, request)
        except RuntimeError as refusal:
            if not is_ending(refusal):
                raise
            return self._send(request)
        return await sent

    async def aclose(self) -> None:
        """Close the connections; a request under way ends by itself, one that waits is refused."""
        self._is_closed = True
        self._threads.shutdown(wait=False)
        if self._owned:
            self._transport.close()

    def _send(self, request: Request) -> Response:
        self._check_open()
        try:
            return self._transport.send(request)
        finally:
            if self._is_closed and self._owned:
                self._transport.close()  # The request may have left a connection to the next one.

    def _check_open(self) -> None:
        if self._is_closed:
            raise InvalidRequest(CLOSED)
