"""How a service reaches the routes that other services have for clients.

In a cluster with authentication it calls their internal listeners, where its own certificate shows
who it is. Otherwise it calls them as any client does.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import NamedTuple

from leadline_common.identity import ServiceAddress
from leadline_common.reloading import ClientTls


class Connection(NamedTuple):
    """Where to connect, and what aiohttp needs for it (`ssl`, `server_hostname`)."""

    url: str
    ssl: ssl.SSLContext | bool
    server_hostname: str | None


@dataclass(frozen=True, slots=True)
class PeerConnections:
    """What one service has for its calls of others.

    `tls` has its own certificate: without it, for instance in a document's application, no internal
    listener can be called. `trust` has the authorities of public listeners; without it, those of
    this machine count. Both are asked for each call: a new certificate has new connections.
    """

    tls: ClientTls | None = None
    trust: ClientTls | None = None
    authenticated: bool = False

    def to(self, address: ServiceAddress) -> Connection | None:
        """Return how to connect to a service; None if it has no listener for this service."""
        if self.authenticated:
            return self.internally(address)
        trusted = True if self.trust is None else self.trust.client
        return Connection(address.url, trusted, None) if address.url else None

    def internally(self, address: ServiceAddress) -> Connection | None:
        """Return how to connect to the internal listener of a service, None if it has none."""
        if self.tls is None or not address.internal_url.startswith("https://"):
            return None
        return Connection(address.internal_url, self.tls.client, address.service.host_name)
