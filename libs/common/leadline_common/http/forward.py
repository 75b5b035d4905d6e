"""Passing a request on to the service that can answer it.

A standby controller answers what it knows and forwards the rest to the active
one, because a redirect would name an address that the caller may not reach.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import aiohttp
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from yarl import URL

from leadline_client.errors import ConnectionLost, LeadlineError, NoController
from leadline_common import cause

FORWARDED = "X-Leadline-Forwarded"
"""Marks a forwarded request: it is never forwarded again, so requests cannot run in circles."""

EVENT_STREAM = "text/event-stream"
"""What is passed on as it comes, instead of whole."""

_CONNECT_TIMEOUT_S = 2.0
_HOP_BY_HOP = frozenset(
    {
        "connection",
        "content-length",
        "date",
        "host",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "server",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)

_LEFT_TO_THE_CALLER = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")
"""What the HTTP library would add: an answer is compressed for the caller, or not at all."""


class Forwarder:
    """Forwards requests over one HTTP session, made at the first use.

    `whom` is forwarded to, and `unavailable` raised where that is not to be had.
    """

    def __init__(
        self,
        whom: str = "the active controller",
        unavailable: type[LeadlineError] = NoController,
    ) -> None:
        self._whom = whom
        self._unavailable = unavailable
        self._session: aiohttp.ClientSession | None = None

    async def forward(self, request: Request, target_url: str, *, timeout_s: float) -> Response:
        """Return the answer of the same request at `target_url` (scheme, host and port).

        Raises `unavailable` when the request was forwarded before, when the
        target cannot be reached, or when a read gets no answer; ConnectionLost,
        an unknown outcome, when a write was sent and no answer came.
        """
        if FORWARDED in request.headers:
            raise self._unavailable(f"{self._whom} is changing")
        body = await request.body()
        try:
            answer = await self._started().request(
                request.method,
                _target(request, target_url),
                headers=_onward(request),
                data=body or None,
                allow_redirects=False,
                middlewares=(_Once(),),
                timeout=aiohttp.ClientTimeout(sock_read=timeout_s, sock_connect=_CONNECT_TIMEOUT_S),
            )
            if answer.content_type == EVENT_STREAM:
                return StreamingResponse(_events(answer), answer.status, _backward(answer))
            async with answer:
                content = await answer.read()
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as problem:
            raise self._unavailable(f"{self._whom} cannot be reached") from problem
        except (aiohttp.ClientError, TimeoutError) as problem:
            if request.method in ("GET", "HEAD"):
                raise self._unavailable(f"{self._whom} did not answer") from problem
            raise ConnectionLost(
                f"{self._whom} did not answer; the request may have taken effect"
            ) from problem
        return Response(content, answer.status, _backward(answer))

    def _started(self) -> aiohttp.ClientSession:
        if self._session is None:
            # A fresh connection each time: what dies on a stale one has an unknown outcome.
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(force_close=True),
                auto_decompress=False,
                skip_auto_headers=_LEFT_TO_THE_CALLER,
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session

    async def close(self) -> None:
        """Close the session."""
        if self._session is not None:
            await self._session.close()
            self._session = None


class _Once:
    """Keeps the HTTP library from repeating a PUT or DELETE whose outcome it does not know."""

    def __init__(self) -> None:
        self._sent = False

    async def __call__(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        if self._sent:
            raise aiohttp.ClientConnectionError("the connection broke")
        self._sent = True
        return await handler(request)


async def _events(answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """Pass events on as they come, until either side ends."""
    async with answer:
        with contextlib.suppress(aiohttp.ClientError, TimeoutError):  # the reader comes again
            async for chunk in answer.content.iter_any():
                yield chunk


def _target(request: Request, target_url: str) -> URL:
    # As it came, byte for byte: decoding and encoding again would not always give the same.
    path = request.scope["raw_path"].decode()
    query = request.scope["query_string"].decode()
    return URL(target_url.rstrip("/") + path + (f"?{query}" if query else ""), encoded=True)


def _onward(request: Request) -> list[tuple[str, str]]:
    dropped = _HOP_BY_HOP | {cause.HEADER.lower()}
    kept = [(name, value) for name, value in request.headers.items() if name not in dropped]
    return [*kept, (cause.HEADER, cause.current_cause()), (FORWARDED, "1")]


def _backward(answer: aiohttp.ClientResponse) -> dict[str, str]:
    dropped = _HOP_BY_HOP | {cause.HEADER.lower()}
    return {name: value for name, value in answer.headers.items() if name.lower() not in dropped}
