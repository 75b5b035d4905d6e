"""Requests of one service to another: over mutual TLS to an internal listener, or to a public one.

Connections are kept alive; each long poll uses a separate one.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from leadline_client.errors import ConnectionLost, error_from_body
from leadline_client.http_connection import RawRequest
from leadline_client.http_connections import Address, HttpConnections, NotConnected
from leadline_common import cause
from leadline_common.access.caller import current_caller
from leadline_common.http.access import PRINCIPAL_HEADER
from leadline_common.http.peer_connections import Connection, PeerConnections
from leadline_common.identity import InternalAddress, ServiceAddress
from leadline_common.tracing import spans
from leadline_common.tracing.calls import STATUS, call_span

_CONNECT_TIMEOUT_S: Final = 2.0
_IDLE_S: Final = 15.0
"""Long enough that heartbeats need no new connections."""


class NotSent(ConnectionLost):
    """The service could not be reached, so that the request was certainly not sent."""


@dataclass(eq=False, slots=True)
class ServiceCalls:
    """Sends POST requests; opens no connection before the first one.

    A call's `timeout_ms` limits the wait for each part of the response.
    """

    connections: PeerConnections = field(default_factory=PeerConnections)
    _kept: HttpConnections = field(init=False)

    def __post_init__(self) -> None:
        self._kept = HttpConnections(_IDLE_S)

    async def post_internal(
        self, to: InternalAddress, path: str, body: bytes, content_type: str, timeout_ms: int
    ) -> bytes:
        """Return the body of a successful response of the service `to`, and of no other one.

        Raises:
            LeadlineError: the error that the service returned, or ConnectionLost, which is
                NotSent if the service cannot have received the request.

        """
        connection = self.connections.internally(ServiceAddress(to.service, "", to.url))
        if connection is None:
            raise NotSent(f"{to.service} has no internal listener at {to.url!r}")
        with call_span(f"POST {path}", "POST", connection.url + path, str(to.service)) as span:
            return await self._post(connection, path, body, content_type, timeout_ms, span)

    async def post(
        self, to: ServiceAddress, path: str, body: bytes, content_type: str, timeout_ms: int
    ) -> bytes:
        """Return the body of a successful response of a route for clients.

        Raises:
            LeadlineError: the error that the service returned, or ConnectionLost, which is
                NotSent if the service cannot have received the request.

        """
        connection = self.connections.to(to)
        if connection is None:
            raise NotSent(f"{to.service} cannot be called: it has no internal listener")
        with call_span(f"POST {path}", "POST", connection.url + path, str(to.service)) as span:
            return await self._post(connection, path, body, content_type, timeout_ms, span)

    async def post_for_client(
        self, to: ServiceAddress, path: str, body: bytes, content_type: str, timeout_ms: int
    ) -> bytes:
        """Send a request on behalf of the client whose request is being handled; see `post`.

        With authentication the other service checks the rights of that client.
        """
        connection = self.connections.to(to)
        if connection is None:
            raise NotSent(f"{to.service} cannot be called: it has no internal listener")
        principal = str(current_caller().principal) if self.connections.authenticated else None
        with call_span(f"POST {path}", "POST", connection.url + path, str(to.service)) as span:
            return await self._post(
                connection, path, body, content_type, timeout_ms, span, principal
            )

    async def _post(
        self,
        to: Connection,
        path: str,
        body: bytes,
        content_type: str,
        timeout_ms: int,
        span: spans.Span,
        principal: str | None = None,
    ) -> bytes:
        url = to.url + path
        headers = _headers(content_type)
        if principal is not None:
            headers[PRINCIPAL_HEADER] = principal
        timeout_s = timeout_ms / 1000
        try:
            address, host = _address_of(to)
            response = await self._kept.exchange(
                address,
                RawRequest.of("POST", path, host, headers, body),
                connect_timeout_s=min(_CONNECT_TIMEOUT_S, timeout_s),
                timeout_s=timeout_s,
            )
        except (NotConnected, ValueError) as problem:
            raise NotSent(f"{url} cannot be reached: {problem}") from problem
        except OSError as problem:
            raise ConnectionLost(f"no response from {url}: {problem!r}") from problem
        span.set({STATUS: response.status})
        if response.status != 200:
            raise error_from_body(response.status, _json(response.body))
        return response.body

    async def close(self) -> None:
        """Close all connections."""
        self._kept.close()


@lru_cache(maxsize=256)
def _address_of(to: Connection) -> tuple[Address, str]:
    """Return where a connection leads, and the `Host` of its requests."""
    parts = urlsplit(to.url)
    if parts.scheme != "https":
        return Address.of(parts, None), parts.netloc
    tls = to.ssl if isinstance(to.ssl, ssl.SSLContext) else ssl.create_default_context()
    return Address.of(parts, tls, to.server_hostname), parts.netloc


def _headers(content_type: str) -> dict[str, str]:
    """Return the headers of a request, which name its cause and its trace if it has them."""
    headers = {"Content-Type": content_type, **spans.propagation()}
    if causing := cause.current_cause():
        headers[cause.HEADER] = causing
    return headers


def _json(content: bytes) -> Any:
    try:
        return msgspec.json.decode(content)
    except msgspec.MsgspecError:
        return None
