"""The asynchronous transport: the only module that imports `httpx`."""

from __future__ import annotations

from ssl import SSLError

import httpx

from leadline_client.security import Authenticator, Security
from leadline_client.transport import (
    IDLE_TIMEOUT_S,
    UNAUTHORIZED,
    Request,
    Response,
    connection_lost,
    unreachable,
)

# Every long poll holds a connection, so their number has no limit.
_LIMITS = httpx.Limits(
    max_connections=None, max_keepalive_connections=50, keepalive_expiry=IDLE_TIMEOUT_S
)
_NOTHING_SENT = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.UnsupportedProtocol,
    httpx.InvalidURL,
)


class AsyncHttpxTransport:
    """Sends requests by an asynchronous httpx client; by default as the environment says."""

    def __init__(self, authenticator: Authenticator | None = None) -> None:
        self._authenticator = authenticator or Authenticator(Security.from_environment())
        self._client = httpx.AsyncClient(
            limits=_LIMITS, trust_env=False, verify=self._authenticator.tls
        )

    async def send(self, request: Request) -> Response:
        """Return the response; raises Unreachable, ConnectionLost or TokenNotSent."""
        response, shown = await self._send_once(request)
        if response.status == UNAUTHORIZED and self._authenticator.renew(shown):
            response, _ = await self._send_once(request)
        return response

    async def _send_once(self, request: Request) -> tuple[Response, dict[str, str]]:
        """Return the response, and the headers that showed who the client is."""
        try:
            made = _to_httpx(self._client, request)
            shown = self._authenticator.headers(made.url.scheme, made.url.host)
            made.headers.update(shown)
            answer = await self._client.send(made)
        except _NOTHING_SENT as failure:
            raise unreachable(request, failure) from failure
        # httpx passes on what TLS raises after the handshake, as a server that wants a certificate.
        except (httpx.HTTPError, SSLError) as failure:
            raise connection_lost(request, failure) from failure
        headers = {name.lower(): value for name, value in answer.headers.items()}
        return Response(answer.status_code, headers, answer.content), shown

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()


def _to_httpx(client: httpx.AsyncClient, request: Request) -> httpx.Request:
    connect_s = request.connect_timeout_s
    return client.build_request(
        request.method,
        request.url,
        params=dict(request.params) or None,
        headers=dict(request.headers),
        content=request.body or None,
        timeout=httpx.Timeout(request.timeout_s, connect=connect_s, pool=connect_s),
    )
