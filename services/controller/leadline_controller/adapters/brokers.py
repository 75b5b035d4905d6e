"""Requests to brokers: JSON RPC over one aiohttp session."""

from __future__ import annotations

import contextlib
from typing import Any

import aiohttp
import msgspec

from leadline_client.errors import ConnectionLost, error_from_body
from leadline_common.rpc import JSON

_CONNECT_TIMEOUT_S = 2.0


class BrokerRpcClient:
    """Implements `runtime.ports.CommandGateway`; connections are kept alive and reused."""

    def __init__(self) -> None:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"Content-Type": JSON},
        )

    async def post(self, url: str, path: str, body: bytes, timeout_ms: int) -> bytes:
        """Send a JSON body and return the body of the response.

        Raises:
            ConnectionLost: the broker did not respond in time.
            LeadlineError: the broker responded with this error.

        """
        timeout = aiohttp.ClientTimeout(
            total=timeout_ms / 1000, sock_connect=min(_CONNECT_TIMEOUT_S, timeout_ms / 1000)
        )
        try:
            async with self._session.post(url + path, data=body, timeout=timeout) as response:
                content = await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as problem:
            raise ConnectionLost(f"no response from {url}{path}: {problem!r}") from problem
        if response.status != 200:
            raise error_from_body(response.status, _json(content))
        return content

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()


def _json(content: bytes) -> Any:
    with contextlib.suppress(msgspec.DecodeError):
        return msgspec.json.decode(content)
    return None
