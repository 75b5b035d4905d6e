"""The asynchronous transport, by aiohttp."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

import aiohttp
from yarl import URL

from leadline_client.kept_connections import KeptConnections, SentOnce
from leadline_client.request_urls import encoded_url
from leadline_client.security import Authenticator, Security
from leadline_client.transport import (
    IDLE_TIMEOUT_S,
    UNAUTHORIZED,
    Request,
    Response,
    connection_lost,
    unreachable,
)

_READ_BUFFER: Final = 1 << 20
_PIECE: Final = 256 * 1024
_NOTHING_SENT: Final = (
    aiohttp.ClientConnectorError,
    aiohttp.ConnectionTimeoutError,
    aiohttp.InvalidURL,
    aiohttp.NonHttpUrlClientError,
)
_REPEATED: Final = frozenset({"PUT", "DELETE"})
"""Writes that aiohttp would repeat by itself."""


class AsyncAiohttpTransport:
    """Sends requests by aiohttp; by default as the environment says.

    All of its requests belong to the event loop of the first one.
    """

    def __init__(self, authenticator: Authenticator | None = None) -> None:
        self._authenticator = authenticator or Authenticator(Security.from_environment())
        self._session: aiohttp.ClientSession | None = None

    async def send(self, request: Request) -> Response:
        """Return the response; raises Unreachable, ConnectionLost or TokenNotSent."""
        try:
            url = URL(encoded_url(request), encoded=True)
            host = url.host
        except ValueError as failure:
            raise unreachable(request, failure) from failure
        shown = self._authenticator.headers(url.scheme, host)
        response = await self._send_once(request, url, shown)
        if response.status == UNAUTHORIZED and self._authenticator.renew(shown):
            renewed = self._authenticator.headers(url.scheme, host)
            response = await self._send_once(request, url, renewed)
        return response

    async def _send_once(self, request: Request, url: URL, shown: dict[str, str]) -> Response:
        try:
            async with self._open().request(
                request.method,
                url,
                headers={**request.headers, **shown, **_length(request.body)},
                data=_content(request.body),
                allow_redirects=False,
                ssl=self._authenticator.tls if url.scheme == "https" else False,
                timeout=_timeout(request),
                middlewares=(SentOnce(),) if request.method in _REPEATED else None,
            ) as answer:
                body = await answer.read()
        except _NOTHING_SENT as failure:
            raise unreachable(request, failure) from failure
        except (aiohttp.ClientError, TimeoutError, OSError) as failure:
            raise connection_lost(request, failure) from failure
        headers = {name.lower(): value for name, value in answer.headers.items()}
        return Response(answer.status, headers, body)

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=KeptConnections(IDLE_TIMEOUT_S),
                cookie_jar=aiohttp.DummyCookieJar(),
                read_bufsize=_READ_BUFFER,
            )
        return self._session

    async def aclose(self) -> None:
        """Close the connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()


def _timeout(request: Request) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(
        total=None, sock_connect=request.connect_timeout_s, sock_read=request.timeout_s
    )


def _content(body: bytes) -> bytes | AsyncIterator[memoryview] | None:
    """Return a large body in pieces, between which the event loop runs other tasks."""
    return _pieces(body) if len(body) > _PIECE else body or None


def _length(body: bytes) -> dict[str, str]:
    """Return the header without which a body in pieces is sent as chunks."""
    return {"content-length": str(len(body))} if len(body) > _PIECE else {}


async def _pieces(body: bytes) -> AsyncIterator[memoryview]:
    view = memoryview(body)
    for start in range(0, len(body), _PIECE):
        yield view[start : start + _PIECE]
