"""Accepting connections of the internal listener, of which few may be without an identity.

A connection takes a descriptor and memory before its other end has proven anything. So only some
may be in their handshake at a time: one more ends the oldest. A service of the cluster needs some
milliseconds for its handshake, so whoever opens many connections ends their own.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Final

from leadline_common.http.connection_bounds import ConnectionBounds

HANDSHAKE_TIMEOUT_S: Final = 5.0
"""How long a connection may take to prove its identity."""
MAX_HANDSHAKES: Final = 256
_ACCEPTED_AT_ONCE: Final = 64
"""Less than `MAX_HANDSHAKES`: a handshake that is ended has begun, and closes its socket."""
_PAUSE_S: Final = 0.1


class HandshakeListener:
    """Serves each connection whose certificate is verified with a protocol of its own.

    Owned by the running event loop.
    """

    def __init__(
        self,
        listening: socket.socket,
        tls: ssl.SSLContext,
        create_protocol: Callable[[], asyncio.Protocol],
        bounds: ConnectionBounds,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._socket = listening
        self._tls = tls
        self._create_protocol = create_protocol
        self._bounds = bounds
        self._handshakes: dict[asyncio.Task[None], str] = {}
        self._resume: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Accept connections from now on."""
        self._socket.setblocking(False)
        self._loop.add_reader(self._socket, self._accept)

    def close(self) -> None:
        """Accept no more connections, and end the handshakes; verified connections stay open."""
        if self._resume is not None:
            self._resume.cancel()
        self._loop.remove_reader(self._socket)
        self._socket.close()
        for handshake in list(self._handshakes):
            handshake.cancel()

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
            self._begin(connection, str(address[0]))

    def _begin(self, connection: socket.socket, peer: str) -> None:
        if len(self._handshakes) >= MAX_HANDSHAKES:
            oldest = next(iter(self._handshakes))
            self._bounds.refused("too many handshakes", self._handshakes.pop(oldest))
            oldest.cancel()
        handshake = self._loop.create_task(self._serve(connection, peer), name="handshake")
        self._handshakes[handshake] = peer
        handshake.add_done_callback(lambda ended: self._handshakes.pop(ended, None))

    async def _serve(self, connection: socket.socket, peer: str) -> None:
        connection.setblocking(False)
        try:
            await self._loop.connect_accepted_socket(
                self._create_protocol,
                connection,
                ssl=self._tls,
                ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S,
            )
        except ssl.SSLError as problem:
            self._bounds.refused(_reason(problem), peer)
        except OSError:  # too slow, or gone
            return


def _reason(problem: ssl.SSLError) -> str:
    """Return which certificate was refused and why, in words of OpenSSL, which has a few dozen."""
    if isinstance(problem, ssl.SSLCertVerificationError):
        return f"certificate refused: {problem.verify_message}"
    return f"handshake failed: {(problem.reason or 'unknown').lower().replace('_', ' ')}"
