"""The narrow door between the client's decisions and the network.

A transport carries one request and answers with one response. It knows nothing
of leaders, retries or JSON; whatever carries HTTP can stand behind it. Failures
come in two kinds that must never be mixed up (rule R15): `Unreachable`, nothing
was sent, and `ConnectionLost`, the server may have acted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

JSON = "application/json"
OCTETS = "application/octet-stream"


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request; `timeout_s` covers the wait for each part of the answer."""

    method: str
    url: str
    params: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    timeout_s: float = 10.0


@dataclass(frozen=True, slots=True)
class Response:
    """One HTTP response; header names are lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Transport(Protocol):
    """Carries requests, blocking the caller."""

    def send(self, request: Request) -> Response:
        """Return the response, whatever its status.

        Raises:
            Unreachable: no connection; nothing was sent.
            ConnectionLost: sent at least in part, and no complete answer came.

        """

    def close(self) -> None:
        """Release the connections."""


class AsyncTransport(Protocol):
    """Carries requests on an event loop."""

    async def send(self, request: Request) -> Response:
        """Return the response; raises as `Transport.send` does."""

    async def aclose(self) -> None:
        """Release the connections."""
