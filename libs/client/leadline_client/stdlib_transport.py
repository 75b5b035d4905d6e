"""A blocking transport that needs only the standard library.

`http.client` sends and receives bodies of megabytes at the lowest cost per byte, and programs that
may have nothing else installed, such as tasks on Spark's executors, can use it.
"""

from __future__ import annotations

import atexit
import os
import ssl
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Final, NamedTuple
from urllib.parse import urlsplit
from weakref import WeakSet

from leadline_client.request_urls import target_of
from leadline_client.security import Authenticator, Security
from leadline_client.sockets import has_input
from leadline_client.timed_responses import Limit, limit_responses
from leadline_client.transport import (
    IDLE_TIMEOUT_S,
    LARGEST_BODY,
    READS,
    UNAUTHORIZED,
    Request,
    Response,
    connection_lost,
    unreachable,
)

_KEPT_PER_ADDRESS: Final = 4
_PIECE_BYTES: Final = 1 << 16
_TOO_LARGE: Final = "its body is too large"


class _Address(NamedTuple):
    """Where a connection leads, and as which client: others may not use it."""

    scheme: str
    netloc: str
    tls: ssl.SSLContext | None

    def connection(self, timeout_s: float) -> HTTPConnection:
        """Return a connection that is not open yet; raises ValueError or HTTPException."""
        if not self.netloc:
            raise ValueError("the address names no host")
        if self.scheme == "http":
            return HTTPConnection(self.netloc, timeout=timeout_s)
        if self.scheme == "https":
            return HTTPSConnection(self.netloc, timeout=timeout_s, context=self.tls)
        raise ValueError("the address begins with neither http:// nor https://")


class ConnectionPool:
    """Idle connections of this process, at most four per address; any threads may share it.

    A forked child starts with an empty pool: two processes that read from one socket would
    take parts of each other's responses. `clock` counts seconds (monotonic).
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # Appending to a deque and popping from it need no lock, which a fork could find taken.
        self._idle: dict[_Address, deque[tuple[HTTPConnection, float]]] = {}
        _pools.add(self)

    def take(self, address: _Address) -> HTTPConnection | None:
        """Return an idle connection that the server has not closed, or None."""
        while (idle := self._pop(address)) is not None:
            connection, since_s = idle
            if self._clock() - since_s < IDLE_TIMEOUT_S and not has_input(connection.sock.fileno()):
                return connection
            connection.close()
        return None

    def give(self, address: _Address, connection: HTTPConnection) -> None:
        """Keep a connection for the next request."""
        idle = self._idle.setdefault(address, deque())
        if len(idle) < _KEPT_PER_ADDRESS:
            idle.append((connection, self._clock()))
        else:
            connection.close()

    def close(self) -> None:
        """Close the idle connections."""
        for address in tuple(self._idle):
            while (idle := self._pop(address)) is not None:
                idle[0].close()

    def _pop(self, address: _Address) -> tuple[HTTPConnection, float] | None:
        try:
            return self._idle[address].pop()
        except (KeyError, IndexError):
            return None


_pools: WeakSet[ConnectionPool] = WeakSet()


def _close_all() -> None:
    """Close the idle connections of this process: at its end, and of what a fork inherited.

    A forked child closes only its copies of its parent's sockets, and the parent's stay open.
    """
    for pool in tuple(_pools):
        pool.close()


os.register_at_fork(after_in_child=_close_all)
atexit.register(_close_all)


class StdlibTransport:
    """Sends requests by `http.client`; any threads may share it.

    By default it connects as the environment says. Transports that are given the same `pool` share
    its connections, those of TLS only if they trust the same files and show the same certificate.
    """

    def __init__(
        self, authenticator: Authenticator | None = None, *, pool: ConnectionPool | None = None
    ) -> None:
        self._authenticator = authenticator or Authenticator(Security.from_environment())
        self._pool = pool or ConnectionPool()

    def send(self, request: Request) -> Response:
        """Return the response; see `Transport.send`. Raises TokenNotSent, too.

        A read that finds a kept connection closed is sent again over a new one. Other requests are
        not: the caller has to know that the first may have been carried out (rule R15).
        """
        response, shown = self._send_once(request)
        if response.status == UNAUTHORIZED and self._authenticator.renew(shown):
            response, _ = self._send_once(request)
        return response

    def _send_once(self, plain: Request) -> tuple[Response, dict[str, str]]:
        """Return the response, and the headers that showed who the client is."""
        address, target = self._parsed(plain)
        host = urlsplit(plain.url).hostname
        shown = self._authenticator.headers(address.scheme, host)
        return self._ask(address, target, _with(shown, plain)), shown

    def _ask(self, address: _Address, target: str, request: Request) -> Response:
        limit = Limit(request.timeout_s, time.monotonic() + request.total_s)
        kept = self._pool.take(address)
        if kept is not None:
            try:
                return self._exchange(kept, address, target, request, limit)
            except (OSError, HTTPException) as failure:
                if request.method not in READS or isinstance(failure, TimeoutError):
                    raise connection_lost(request, failure) from failure
        fresh = _connected(address, request)
        try:
            return self._exchange(fresh, address, target, request, limit)
        except (OSError, HTTPException) as failure:
            raise connection_lost(request, failure) from failure

    def close(self) -> None:
        """Close the idle connections, also those of other transports with the same pool."""
        self._pool.close()

    def _parsed(self, request: Request) -> tuple[_Address, str]:
        """Return where the request goes, and its path and query as HTTP sends them."""
        try:
            parts = urlsplit(request.url)
        except ValueError as failure:
            raise unreachable(request, failure) from failure
        tls = self._authenticator.tls if parts.scheme == "https" else None
        return _Address(parts.scheme, parts.netloc, tls), target_of(request, parts)

    def _exchange(
        self,
        connection: HTTPConnection,
        address: _Address,
        target: str,
        request: Request,
        limit: Limit,
    ) -> Response:
        try:
            response = self._response(connection, target, request, limit)
        except BaseException:
            # A response may still arrive on this connection: nobody may take it for the next one.
            connection.close()
            raise
        if connection.sock is not None:
            self._pool.give(address, connection)
        return response

    def _response(
        self, connection: HTTPConnection, target: str, request: Request, limit: Limit
    ) -> Response:
        """Return the response; a connection that cannot be used again is closed."""
        limit.apply(connection.sock)
        limit_responses(connection, limit)
        sent = True
        try:
            connection.request(request.method, target, request.body or None, dict(request.headers))
        except (BrokenPipeError, ConnectionResetError):
            # The server may have answered without reading the whole body, if it is too large.
            sent = False
        with connection.getresponse() as response:
            body = _body_of(response)
        if not sent:
            connection.close()
        names = {name.lower(): value for name, value in response.getheaders()}
        return Response(response.status, names, body)


def _body_of(response: HTTPResponse) -> bytes:
    """Return the body; raises OSError or HTTPException."""
    if (response.length or 0) > LARGEST_BODY:  # Python would take that memory at once.
        raise HTTPException(_TOO_LARGE)
    if response.length is not None:
        return response.read()
    # Of a chunk, `read` takes as much as the server says, or without an end if that is negative.
    piece, body = memoryview(bytearray(_PIECE_BYTES)), bytearray()
    while size := response.readinto(piece):
        body += piece[:size]
        if len(body) > LARGEST_BODY:
            raise HTTPException(_TOO_LARGE)
    return bytes(body)


def _with(headers: Mapping[str, str], request: Request) -> Request:
    return replace(request, headers={**headers, **request.headers}) if headers else request


def _connected(address: _Address, request: Request) -> HTTPConnection:
    connection: HTTPConnection | None = None
    try:
        connection = address.connection(request.connect_timeout_s)
        connection.connect()
    except (OSError, HTTPException, ValueError) as failure:
        if connection is not None:
            connection.close()
        raise unreachable(request, failure) from failure
    return connection
