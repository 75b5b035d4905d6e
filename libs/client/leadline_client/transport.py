"""The interface between the client's logic and the network. Pure.

A transport sends one request and returns one response. It knows nothing of
leaders, retries or JSON, and any HTTP library can implement it. Failures are of
two kinds that must never be confused (rule R15): `Unreachable`, nothing was
sent, and `ConnectionLost`, the server may have acted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from leadline_client.errors import ConnectionLost, ServerNotTrusted, Unreachable

JSON = "application/json"
OCTETS = "application/octet-stream"

READS: Final = frozenset({"GET", "HEAD"})
"""The methods of requests that change nothing, so that they may be sent again."""

UNAUTHORIZED: Final = 401
"""The status of a refused or missing token: nothing was done, so another token may be tried."""

_NOT_VERIFIED: Final = "CERTIFICATE_VERIFY_FAILED"
"""OpenSSL's name of the reason, which every HTTP library passes on."""

CLUSTER_ID_HEADER: Final = "x-leadline-cluster-id"
"""Names the cluster: in a request the one that the client knows, in a response the server's."""

LARGEST_BODY: Final = 1 << 31
"""In bytes; a response that states a longer body is an error."""

CLOSED: Final = "the client is closed"
"""Why a request is refused whose client was closed before it was sent."""

TOO_SLOW: Final = "the whole answer did not come in time"
"""Why a response is given up of which parts still come."""

CONNECT_TIMEOUT_S: Final = 3.0
"""How long a transport waits for a connection, if the request does not allow less."""

IDLE_TIMEOUT_S: Final = 2.0
"""How long a transport keeps an idle connection.

It is shorter than a server keeps one, or a request might be sent just when the server closes it.
"""


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request; `timeout_s` limits the wait for each part of the response.

    `total_s` limits the whole exchange, once there is a connection.
    Its text has neither the headers nor the body, as they may hold a token or a secret.
    """

    method: str
    url: str
    params: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes = field(default=b"", repr=False)
    timeout_s: float = 10.0
    total_s: float = math.inf

    @property
    def connect_timeout_s(self) -> float:
        """The limit for making a connection."""
        return min(CONNECT_TIMEOUT_S, self.timeout_s)


@dataclass(frozen=True, slots=True)
class Response:
    """One HTTP response; header names are lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Transport(Protocol):
    """Sends requests and blocks the caller meanwhile."""

    def send(self, request: Request) -> Response:
        """Return the response, whatever its status.

        Raises:
            Unreachable: there was no connection; nothing was sent.
            ConnectionLost: the request was sent at least in part, and no complete response came.

        """

    def close(self) -> None:
        """Close the connections."""


class AsyncTransport(Protocol):
    """Sends requests on an event loop."""

    async def send(self, request: Request) -> Response:
        """Return the response; raises as `Transport.send` does."""

    async def aclose(self) -> None:
        """Close the connections."""


def unreachable(request: Request, failure: Exception) -> Unreachable:
    """Return the error for a request of which nothing was sent."""
    return no_connection(f"{request.method} {request.url}", failure)


def no_connection(purpose: str, failure: Exception) -> Unreachable:
    """Return the error for a connection that failed; `purpose` says what it was for."""
    reason = _described(purpose, failure)
    if _NOT_VERIFIED in str(failure):
        return ServerNotTrusted(
            "no connection to a server whose certificate is refused, nothing was sent: "
            f"{reason}; LEADLINE_CA_FILE names the cluster's authority, and an address has to name "
            "a host of the certificate"
        )
    return Unreachable(f"no connection, nothing was sent: {reason}")


def connection_lost(request: Request, failure: Exception) -> ConnectionLost:
    """Return the error for a request that was sent at least in part."""
    purpose = f"{request.method} {request.url}"
    return ConnectionLost(f"no complete answer: {_described(purpose, failure)}")


def _described(purpose: str, failure: Exception) -> str:
    return f"{purpose}: {str(failure) or type(failure).__name__}"
