"""The asynchronous transport, over connections of its own."""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import Final
from urllib.parse import SplitResult, urlsplit

from leadline_client.http_connection import BrokenResponse, RawRequest
from leadline_client.http_connections import Address, HttpConnections, NotConnected
from leadline_client.request_urls import target_of
from leadline_client.security import Authenticator, Security
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

_ASKS_FOR_GZIP: Final = {"accept-encoding": "gzip"}
"""Metadata of many partitions is megabytes, of which gzip leaves a fraction."""

_GZIP_WINDOW: Final = 31


class AsyncHttpTransport:
    """Sends requests on an event loop; by default as the environment says.

    All of its requests belong to the event loop of the first one.
    """

    def __init__(self, authenticator: Authenticator | None = None) -> None:
        self._authenticator = authenticator or Authenticator(Security.from_environment())
        self._connections = HttpConnections(IDLE_TIMEOUT_S)

    async def send(self, request: Request) -> Response:
        """Return the response; raises Unreachable, ConnectionLost or TokenNotSent."""
        try:
            parts = urlsplit(request.url)
            tls = self._authenticator.tls if parts.scheme == "https" else None
            address = Address.of(parts, tls)
        except ValueError as failure:
            raise unreachable(request, failure) from failure
        shown = self._authenticator.headers(parts.scheme, parts.hostname)
        response = await self._send_once(request, parts, address, shown)
        if response.status == UNAUTHORIZED and self._authenticator.renew(shown):
            renewed = self._authenticator.headers(parts.scheme, parts.hostname)
            response = await self._send_once(request, parts, address, renewed)
        return response

    async def _send_once(
        self, request: Request, parts: SplitResult, address: Address, shown: dict[str, str]
    ) -> Response:
        asked = _ASKS_FOR_GZIP if request.method in READS else {}
        headers = {**request.headers, **shown, **asked}
        host, target = parts.netloc.rpartition("@")[2], target_of(request, parts)
        try:
            response = await self._connections.exchange(
                address,
                RawRequest.of(request.method, target, host, headers, request.body),
                connect_timeout_s=request.connect_timeout_s,
                timeout_s=request.timeout_s,
                total_s=request.total_s,
            )
            return _plain(response)
        except (NotConnected, ValueError) as failure:
            raise unreachable(request, failure) from failure
        except (OSError, zlib.error) as failure:
            raise connection_lost(request, failure) from failure

    async def aclose(self) -> None:
        """Close the connections."""
        self._connections.close()


def _plain(response: Response) -> Response:
    """Return a response whose body is not compressed."""
    if response.headers.get("content-encoding", "").lower() != "gzip" or not response.body:
        return response  # One without a body, such as 304, may name the encoding all the same.
    return replace(response, body=_unpacked(response.body))


def _unpacked(packed: bytes) -> bytes:
    """Unpack a body of one gzip file; a few kilobytes may be gigabytes then."""
    unpacker = zlib.decompressobj(wbits=_GZIP_WINDOW)
    body = unpacker.decompress(packed, LARGEST_BODY + 1)
    if len(body) > LARGEST_BODY:
        raise BrokenResponse("its body is too large")
    if not unpacker.eof or unpacker.unused_data:
        raise BrokenResponse("its body is not one whole gzip file")
    return body
