"""Forwarding requests to the service that can answer them.

A client may send any request to any process of a service: standbys forward it to the active
one. They do not redirect, because the client may not be able to reach that address.

A connection is kept for a moment after its response, because a new one costs as much as the rest
of the request, and several times as much with TLS.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import aiohttp
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from yarl import URL

from leadline_client.errors import ConnectionLost, LeadlineError, NoController, error_from_body
from leadline_client.transport import CLUSTER_ID_HEADER
from leadline_common import cause
from leadline_common.access.caller import current_caller
from leadline_common.http.access import PRINCIPAL_HEADER, is_known_still
from leadline_common.http.errors import error_of_status, error_response
from leadline_common.http.kept_connections import KeptConnections, SentOnce
from leadline_common.http.middleware import WITHOUT_BODY
from leadline_common.http.peer_connections import PeerConnections
from leadline_common.http.route_index import ROUTE_KEY, IndexedRoute
from leadline_common.identity import ServiceAddress
from leadline_common.tracing import spans
from leadline_common.tracing.calls import STATUS, call_span
from leadline_common.waiting import CountedWait

Forward: TypeAlias = Callable[[Request], Coroutine[Any, Any, Response]]
"""Sends a request to the service that can answer it, and returns the response."""

FORWARDED = "X-Leadline-Forwarded"
"""Marks a forwarded request, which is never forwarded again: that would allow loops."""

EVENT_STREAM = "text/event-stream"
"""The media type of responses that are forwarded as a stream."""

_IDLE_S: Final = 0.5
"""How long a connection is kept: much less than the least of `connections.max.idle.ms`."""

_API = "/v1/"
_RETRY_AFTER = "Retry-After"
_CONNECT_TIMEOUT_S = 2.0
_DROPPED = frozenset(
    {
        "authorization",
        "connection",
        "content-length",
        "date",
        "host",
        "keep-alive",
        "origin",
        "proxy-authenticate",
        "proxy-authorization",
        "referer",
        "sec-fetch-dest",
        "sec-fetch-mode",
        "sec-fetch-site",
        "sec-fetch-user",
        "server",
        "te",
        "traceparent",
        "tracestate",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "cookie",
        cause.HEADER.lower(),
        CLUSTER_ID_HEADER,
        PRINCIPAL_HEADER.lower(),
    }
)
"""Headers of one connection, those that every service checks or sets itself (also the trace, which
the other service would trust), those that prove who the caller is, and those by which a browser
states the page, against the address that it used."""

_NO_AUTO_HEADERS = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")
"""Headers that aiohttp would add: only those of the caller are forwarded."""


class OutgoingRequest(NamedTuple):
    """A request to another service; `target` is the path and the query, encoded for a URL."""

    method: str
    target: str
    headers: Sequence[tuple[str, str]] = ()
    body: bytes = b""


@dataclass(eq=False, slots=True)
class Forwarder:
    """Forwards requests over one HTTP session, which opens at the first use.

    `target` names the service in error messages; `unavailable` is raised if it cannot answer.
    With authentication, a request carries its principal, and never the credentials of its caller.
    Without `names_caller`, the service asks for itself: only for what it may answer to the caller.
    """

    target: str = "the active controller"
    unavailable: type[LeadlineError] = NoController
    connections: PeerConnections = field(default_factory=PeerConnections)
    names_caller: bool = True
    _session: aiohttp.ClientSession | None = field(default=None, init=False)

    async def forward(self, request: Request, to: ServiceAddress, *, timeout_s: float) -> Response:
        """Send a request to another service, and return its response.

        Raises `unavailable` if the request was forwarded before, if the target cannot be
        reached, or if a read gets no response. Raises ConnectionLost, an unknown outcome, if
        a write was sent and got no response.
        """
        if FORWARDED in request.headers:
            raise self.unavailable(f"{self.target} is changing")
        body = b"" if request.method in WITHOUT_BODY else await request.body()
        kept = [(name, value) for name, value in request.headers.items() if name not in _DROPPED]
        outgoing = OutgoingRequest(
            request.method, _target_of(request), [*kept, *self._own_headers()], body
        )
        with self._outcomes(request.method):
            with CountedWait(asked="wait" in request.query_params):
                answer = await self._send(outgoing, to, timeout_s)
            if answer.content_type == EVENT_STREAM:
                stream = _stream(answer, partial(is_known_still, request.scope))
                return StreamingResponse(stream, answer.status, _response_headers(answer))
            async with answer:
                content = await answer.read()
        return Response(content, answer.status, _response_headers(answer))

    async def call(
        self, request: OutgoingRequest, to: ServiceAddress, *, timeout_s: float
    ) -> bytes:
        """Make a request of this service's own, and return the body of the response.

        The rights of the caller of the request that is being handled count, or, without
        `names_caller`, those of this service.

        Raises:
            LeadlineError: the error that the other service returned; `unavailable` if it cannot be
                reached or a read gets no response; ConnectionLost, an unknown outcome, if a write
                was sent and got none.

        """
        outgoing = request._replace(headers=[*request.headers, *self._own_headers()])
        with self._outcomes(request.method):
            answer = await self._send(outgoing, to, timeout_s)
            async with answer:
                content = await answer.read()
        if answer.status >= HTTPStatus.BAD_REQUEST:
            retry_after = answer.headers.get(_RETRY_AFTER)
            raise error_from_body(answer.status, _decoded(content), retry_after)
        return content

    @contextlib.contextmanager
    def _outcomes(self, method: str) -> Iterator[None]:
        """Turn failures of a connection into errors that state whether anything was changed."""
        try:
            yield
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as problem:
            raise self.unavailable(f"{self.target} cannot be reached") from problem
        except (aiohttp.ClientError, TimeoutError) as problem:
            if method in ("GET", "HEAD"):
                raise self.unavailable(f"{self.target} did not answer") from problem
            raise ConnectionLost(
                f"{self.target} did not answer; the request may have taken effect"
            ) from problem

    async def _send(
        self, outgoing: OutgoingRequest, to: ServiceAddress, timeout_s: float
    ) -> aiohttp.ClientResponse:
        connection = self.connections.to(to)
        if connection is None:
            raise self.unavailable(f"{self.target} has no internal listener")
        url = URL(connection.url.rstrip("/") + outgoing.target, encoded=True)
        plain = str(url.with_query(None)) if spans.is_on() else ""
        with call_span(f"forward {outgoing.method}", outgoing.method, plain, self.target) as span:
            answer = await self._started().request(
                outgoing.method,
                url,
                headers=[*outgoing.headers, *spans.propagation().items()],
                data=outgoing.body or None,
                allow_redirects=False,
                ssl=connection.ssl,
                server_hostname=connection.server_hostname,
                middlewares=(SentOnce(),),
                timeout=aiohttp.ClientTimeout(sock_read=timeout_s, sock_connect=_CONNECT_TIMEOUT_S),
            )
            span.set({STATUS: answer.status})
        return answer

    def _own_headers(self) -> list[tuple[str, str]]:
        own = [(cause.HEADER, cause.current_cause()), (FORWARDED, "1")]
        if self.connections.authenticated and self.names_caller:
            own.append((PRINCIPAL_HEADER, str(current_caller().principal)))
        return own

    def _started(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=KeptConnections(_IDLE_S),
                auto_decompress=False,
                skip_auto_headers=_NO_AUTO_HEADERS,
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session

    async def close(self) -> None:
        """Close the session."""
        if self._session is not None:
            await self._session.close()
            self._session = None


async def _stream(
    answer: aiohttp.ClientResponse, may_go_on: Callable[[], bool]
) -> AsyncIterator[bytes]:
    """Forward events as they arrive, until either side closes or the caller may not have more."""
    async with answer:
        # A reader reconnects after the end of its stream, whatever ended it.
        with contextlib.suppress(aiohttp.ClientError, TimeoutError):
            while True:
                with CountedWait():
                    chunk = await answer.content.readany()
                if not chunk or not may_go_on():
                    return
                yield chunk


def _target_of(request: Request) -> str:
    """Return path and query as they came, because decoding and encoding again may change them."""
    path: str = request.scope["raw_path"].decode()
    query = request.scope["query_string"].decode()
    return path + (f"?{query}" if query else "")


def _decoded(content: bytes) -> Any:
    """Return the JSON of an error response, None if it is something else."""
    try:
        return json.loads(content)
    except ValueError:
        return None


def _response_headers(answer: aiohttp.ClientResponse) -> dict[str, str]:
    return {name: value for name, value in answer.headers.items() if name.lower() not in _DROPPED}


class ElectedService(Protocol):
    """A service of which one process is active at a time."""

    @property
    def is_active(self) -> bool:
        """Whether this process is active and ready to serve."""

    def active_address(self) -> ServiceAddress:
        """Return the address of the active process.

        Raises:
            LeadlineError: none is known, or it is this one and not ready yet.

        """


@dataclass(frozen=True, slots=True)
class LocalPaths:
    """The paths below `/v1/` that a standby answers itself; it answers all others there too."""

    exact: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    suffixes: tuple[str, ...] = ()

    def contain(self, path: str) -> bool:
        """Tell whether a standby answers a path itself."""
        if not path.startswith(_API) or path in self.exact:
            return True
        return path.startswith(self.prefixes) or path.endswith(self.suffixes)


@dataclass(frozen=True, slots=True)
class StandbyGate:
    """The ASGI layer that forwards HTTP requests which only the active process can answer."""

    app: ASGIApp
    service: ElectedService
    forwarder: Forwarder
    local: LocalPaths
    timeout_s: float

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request here, or forward it."""
        if scope["type"] != "http" or self.service.is_active or self.local.contain(scope["path"]):
            await self.app(scope, receive, send)
            return
        await _answer(self._forward, scope, receive, send)

    async def _forward(self, request: Request) -> Response:
        active = self.service.active_address()
        return await self.forwarder.forward(request, active, timeout_s=self.timeout_s)


@dataclass(frozen=True, slots=True)
class ForwardingLayer:
    """The ASGI layer that forwards the operations of another service, before the framework routes.

    The framework's routing would cost as much as the rest of what this service does for them.
    `forwards` has what sends each of them, by operation id. An outer layer has found the route.
    """

    app: ASGIApp
    forwards: Mapping[str, Forward]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward one request, or pass it on."""
        route: IndexedRoute | None = scope[ROUTE_KEY] if scope["type"] == "http" else None
        forward = self.forwards.get(route.operation) if route is not None else None
        if route is None or forward is None:
            await self.app(scope, receive, send)
            return
        scope["endpoint"] = route.endpoint  # As the framework does; metrics name the route by it.
        await _answer(forward, scope, receive, send)


async def _answer(forward: Forward, scope: Scope, receive: Receive, send: Send) -> None:
    """Forward a request and send the response, or the error, to its caller."""
    try:
        response = await forward(Request(scope, receive))
    except LeadlineError as error:
        response = error_response(error)
    except HTTPException as error:  # this service does not accept the body
        response = error_response(error_of_status(error))
    await response(scope, receive, send)
