"""Accepting connections, also when the process has no descriptor left for one.

uvloop's own servers cannot be used for that: without a descriptor they close new connections at
once, or try to accept them again and again without a pause, and log neither.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Final

from leadline_common.http.connection_bounds import ConnectionBounds

_ACCEPTED_AT_ONCE: Final = 64
"""Less than `MAX_HANDSHAKES`: a handshake that is ended has begun, and closes its socket."""
_PAUSE_S: Final = 0.1


class Acceptor:
    """Gives each accepted connection, and its peer, to `on_connection`.

    A failed accept, such as one without a descriptor, is counted and logged by `bounds`. The
    connections wait in the kernel meanwhile. Owned by the running event loop.
    """

    def __init__(
        self,
        listening: socket.socket,
        bounds: ConnectionBounds,
        on_connection: Callable[[socket.socket, str], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._socket = listening
        self._bounds = bounds
        self._on_connection = on_connection
        self._resume: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Accept connections from now on."""
        self._socket.setblocking(False)
        self._loop.add_reader(self._socket, self._accept)

    def close(self) -> None:
        """Accept no more connections, and close the listening socket."""
        if self._resume is not None:
            self._resume.cancel()
        self._loop.remove_reader(self._socket)
        self._socket.close()

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                connection, address = self._socket.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as problem:  # such as no descriptor: it stays readable
                self._bounds.refused(problem.strerror or "accept failed", "")
                self._loop.remove_reader(self._socket)
                self._resume = self._loop.call_later(_PAUSE_S, self.start)
                return
            self._on_connection(connection, str(address[0]))


class PlainListener:
    """Serves each connection with a protocol of its own, without TLS.

    Owned by the running event loop.
    """

    def __init__(
        self,
        listening: socket.socket,
        create_protocol: Callable[[], asyncio.Protocol],
        bounds: ConnectionBounds,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._create_protocol = create_protocol
        self._acceptor = Acceptor(listening, bounds, self._begin)
        self._beginning: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Accept connections from now on."""
        self._acceptor.start()

    def close(self) -> None:
        """Accept no more connections; those that are open stay open."""
        self._acceptor.close()

    async def all_begun(self) -> None:
        """Wait until each connection that was accepted has its protocol."""
        if self._beginning:
            await asyncio.wait(self._beginning)

    def _begin(self, connection: socket.socket, _: str) -> None:
        task = self._loop.create_task(self._serve(connection), name="connection")
        self._beginning.add(task)
        task.add_done_callback(self._beginning.discard)

    async def _serve(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        try:
            await self._loop.connect_accepted_socket(self._create_protocol, connection)
        except OSError:  # it is gone
            connection.close()
