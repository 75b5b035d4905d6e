"""httpx behind the transports: the one place that knows an HTTP library."""

from __future__ import annotations

import ssl
from functools import cache

import httpx

from leadline_client.errors import ConnectionLost, LeadlineError, Unreachable
from leadline_client.transport import Request, Response

# No cap: every long poll holds a connection. Kept for less time than a server keeps an idle one,
# or a request might meet it being closed.
_LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=50, keepalive_expiry=2.0)
_CONNECT_TIMEOUT_S = 3.0
_NOTHING_SENT = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.UnsupportedProtocol,
    httpx.InvalidURL,
)


@cache
def _tls() -> ssl.SSLContext:
    """Return the trust in this machine's certificate authorities, loaded once: it is slow."""
    return ssl.create_default_context()


class HttpxTransport:
    """Carries requests by a blocking httpx client."""

    def __init__(self) -> None:
        self._client = httpx.Client(limits=_LIMITS, trust_env=False, verify=_tls())

    def send(self, request: Request) -> Response:
        """Return the response; raises Unreachable or ConnectionLost."""
        try:
            answer = self._client.send(_to_httpx(self._client, request))
        except (httpx.HTTPError, httpx.InvalidURL) as failure:
            raise _translated(request, failure) from failure
        return _from_httpx(answer)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


class AsyncHttpxTransport:
    """Carries requests by an asynchronous httpx client."""

    def __init__(self) -> None:
        self._client = httpx.AsyncClient(limits=_LIMITS, trust_env=False, verify=_tls())

    async def send(self, request: Request) -> Response:
        """Return the response; raises Unreachable or ConnectionLost."""
        try:
            answer = await self._client.send(_to_httpx(self._client, request))
        except (httpx.HTTPError, httpx.InvalidURL) as failure:
            raise _translated(request, failure) from failure
        return _from_httpx(answer)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()


def _to_httpx(client: httpx.Client | httpx.AsyncClient, request: Request) -> httpx.Request:
    connect_s = min(_CONNECT_TIMEOUT_S, request.timeout_s)
    return client.build_request(
        request.method,
        request.url,
        params=dict(request.params) or None,
        headers=dict(request.headers),
        content=request.body or None,
        timeout=httpx.Timeout(request.timeout_s, connect=connect_s, pool=connect_s),
    )


def _from_httpx(answer: httpx.Response) -> Response:
    headers = {name.lower(): value for name, value in answer.headers.items()}
    return Response(answer.status_code, headers, answer.content)


def _translated(request: Request, failure: httpx.HTTPError | httpx.InvalidURL) -> LeadlineError:
    what = f"{request.method} {request.url}: {failure or type(failure).__name__}"
    if isinstance(failure, _NOTHING_SENT):
        return Unreachable(f"no connection, nothing was sent: {what}")
    return ConnectionLost(f"no complete answer: {what}")
