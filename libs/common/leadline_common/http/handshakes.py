"""Accepting connections over TLS, of which few may be without a finished handshake.

A connection takes a descriptor and memory before its other end has proven anything. So only some
may be in their handshake at a time: one more ends the oldest one of the address that has most. A
service of the cluster needs some milliseconds for its handshake, so whoever opens many connections
ends their own.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import Final

from leadline_common.http.accepting import Acceptor
from leadline_common.http.connection_bounds import ConnectionBounds
from leadline_common.reloading import ServerTls

HANDSHAKE_TIMEOUT_S: Final = 5.0
"""How long a connection may take for its handshake."""
MAX_HANDSHAKES: Final = 256
"""How many may be in their handshake at a time, where only services of the cluster connect."""
_CLOSE_TIMEOUT_S: Final = 30.0
_HANDSHAKE_RECORD: Final = b"\x16"
"""The first byte of a TLS connection."""
_PLAIN_BYTES: Final = 64 * 1024


class HandshakeListener:
    """Serves each connection whose handshake succeeds with a protocol of its own.

    Each handshake has the context of `tls` at its time, and there are at most `most` at a time.
    `plain_answer` is sent to those that speak plain HTTP, before they are closed.
    `close_timeout_s` is how long a connection that the protocol has closed may take to send what
    waits, and to confirm that. Owned by the running event loop.
    """

    def __init__(
        self,
        listening: socket.socket,
        tls: ServerTls,
        create_protocol: Callable[[], asyncio.Protocol],
        bounds: ConnectionBounds,
        *,
        plain_answer: bytes = b"",
        most: int = MAX_HANDSHAKES,
        close_timeout_s: float = _CLOSE_TIMEOUT_S,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._acceptor = Acceptor(listening, bounds, self._begin)
        self._tls = tls
        self._create_protocol = create_protocol
        self._bounds = bounds
        self._plain_answer = plain_answer
        self._most = most
        self._close_timeout_s = close_timeout_s
        self._handshakes: dict[str, dict[asyncio.Task[None], None]] = {}
        """By address, each in the order of their beginning."""
        self._unfinished = 0

    def start(self) -> None:
        """Accept connections from now on."""
        self._acceptor.start()

    def close(self) -> None:
        """Accept no more connections, and end the handshakes; verified connections stay open."""
        self._acceptor.close()
        for handshakes in self._handshakes.values():
            for handshake in handshakes:
                handshake.cancel()

    def _begin(self, connection: socket.socket, peer: str) -> None:
        if self._unfinished >= self._most:
            busiest = max(self._handshakes, key=lambda one: len(self._handshakes[one]))
            oldest = next(iter(self._handshakes[busiest]))
            self._bounds.refused("too many handshakes", busiest)
            self._forget(busiest, oldest)
            oldest.cancel()
        handshake = self._loop.create_task(self._serve(connection, peer), name="handshake")
        self._handshakes.setdefault(peer, {})[handshake] = None
        self._unfinished += 1
        handshake.add_done_callback(partial(self._forget, peer))

    def _forget(self, peer: str, handshake: asyncio.Task[None]) -> None:
        """Count a handshake no longer, unless that was done when it was ended."""
        handshakes = self._handshakes.get(peer, {})
        if handshake in handshakes:
            del handshakes[handshake]
            self._unfinished -= 1
            if not handshakes:
                del self._handshakes[peer]

    async def _serve(self, connection: socket.socket, peer: str) -> None:
        connection.setblocking(False)
        try:
            async with asyncio.timeout(HANDSHAKE_TIMEOUT_S):
                if self._plain_answer and await self._begins_plainly(connection):
                    await self._answer_plainly(connection, peer)
                else:
                    await self._handshake(connection)
        except ssl.SSLError as problem:
            self._bounds.refused(_reason(problem), peer)
        except OSError:  # too slow, or gone
            return

    async def _handshake(self, connection: socket.socket) -> None:
        await self._loop.connect_accepted_socket(
            self._create_protocol,
            connection,
            ssl=self._tls.server,
            ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S,
            ssl_shutdown_timeout=self._close_timeout_s,
        )

    async def _begins_plainly(self, connection: socket.socket) -> bool:
        """Tell whether the first byte of a connection is none of TLS; the byte is not taken."""
        arrived = self._loop.create_future()
        self._loop.add_reader(connection, _resolve, arrived)
        try:
            try:
                await arrived
            finally:
                self._loop.remove_reader(connection)
            return connection.recv(1, socket.MSG_PEEK) != _HANDSHAKE_RECORD
        except BaseException:
            connection.close()
            raise

    async def _answer_plainly(self, connection: socket.socket, peer: str) -> None:
        with connection:
            self._bounds.refused("no TLS", peer)
            await self._loop.sock_sendall(connection, self._plain_answer)
            connection.shutdown(socket.SHUT_WR)
            # Closing with unread data would discard the answer.
            while await self._loop.sock_recv(connection, _PLAIN_BYTES):
                pass


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _reason(problem: ssl.SSLError) -> str:
    """Return which certificate was refused and why, in words of OpenSSL, which has a few dozen."""
    if isinstance(problem, ssl.SSLCertVerificationError):
        return f"certificate refused: {problem.verify_message}"
    return f"handshake failed: {(problem.reason or 'unknown').lower().replace('_', ' ')}"
