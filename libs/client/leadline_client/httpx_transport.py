"""The asynchronous transport: the only module that imports `httpx`."""

from __future__ import annotations

import httpx

from leadline_client.stdlib_transport import tls_context
from leadline_client.transport import (
    IDLE_TIMEOUT_S,
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
    """Sends requests by an asynchronous httpx client."""

    def __init__(self) -> None:
        self._client = httpx.AsyncClient(limits=_LIMITS, trust_env=False, verify=tls_context())

    async def send(self, request: Request) -> Response:
        """Return the response; raises Unreachable or ConnectionLost."""
        try:
            answer = await self._client.send(_to_httpx(self._client, request))
        except _NOTHING_SENT as failure:
            raise unreachable(request, failure) from failure
        except httpx.HTTPError as failure:
            raise connection_lost(request, failure) from failure
        headers = {name.lower(): value for name, value in answer.headers.items()}
        return Response(answer.status_code, headers, answer.content)

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
