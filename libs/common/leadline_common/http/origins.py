"""Which requests a page in a browser may cause.

A service on a loopback address can be reached by any page that its user visits: by a request
across origins, which needs no answer to take effect, or by a name that the page's author lets
resolve to 127.0.0.1 (DNS rebinding). `Host` must therefore name this server, and what browsers
state about the page (`Origin`, `Sec-Fetch-Site`) must name the same origin. Other clients send
none of that, and are not affected.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

from leadline_client.errors import (
    HostNotAllowed,
    LeadlineError,
    OriginNotAllowed,
    UnsupportedFormat,
)
from leadline_common.settings.fields import ServiceSettings

_READS: Final = frozenset({"GET", "HEAD"})
_WEBSOCKET: Final = "WEBSOCKET"


@dataclass(frozen=True, slots=True)
class AllowedNames:
    """The host names of this server besides loopback ones, and the origins of trusted pages."""

    hosts: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()

    @classmethod
    def of(cls, settings: ServiceSettings) -> AllowedNames:
        """Return the names in a service's settings; its listener and advertised URL count."""
        advertised = urlsplit(settings.advertised_url).hostname if settings.advertised_url else ""
        hosts = [settings.listen_host, advertised or "", *_listed(settings.listen_allowed_hosts)]
        origins = _listed(settings.listen_allowed_origins)
        return cls(frozenset(filter(None, map(_lower, hosts))), frozenset(map(_lower, origins)))

    def allow_host(self, host: str) -> bool:
        """Tell whether a `Host` header, a name with or without a port, names this server."""
        name = host_name(host)
        return name in self.hosts or name == "localhost" or _is_loopback(name)


def _listed(setting: str) -> Iterable[str]:
    return (name.strip() for name in setting.split(",") if name.strip())


def _lower(name: str) -> str:
    return name.lower().rstrip("./")


@lru_cache(maxsize=1024)
def host_name(host: str) -> str:
    """Return the name in a `Host` header in lower case, "" if the header is malformed."""
    if host.startswith("["):
        name, bracket, port = host[1:].partition("]")
        port = port.removeprefix(":") if bracket else "malformed"
    else:
        name, _, port = host.partition(":")
    return name.lower().removesuffix(".") if not port or port.isdecimal() else ""


@lru_cache(maxsize=1024)
def _is_loopback(name: str) -> bool:
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def refusal(
    method: str, headers: Mapping[bytes, bytes], names: AllowedNames
) -> LeadlineError | None:
    """Return the error for a request that no client of this server sent; None if it may proceed.

    `method` is WEBSOCKET for a handshake; `headers` have lower-case names.
    """
    host = headers.get(b"host", b"").decode("latin-1")
    if host and not names.allow_host(host):
        return HostNotAllowed(
            "the Host header does not name this server: use its address, or add the name to "
            "listen.allowed.hosts"
        )
    origin = headers.get(b"origin")
    if origin is not None or b"sec-fetch-site" in headers:
        stated = None if origin is None else origin.decode("latin-1").lower()
        if stated not in names.origins and _is_foreign(method, stated, host, headers):
            return OriginNotAllowed(
                "a page of another origin must not send this request: use the pages of this "
                "server, or add the page's origin to listen.allowed.origins"
            )
    if b"content-type" not in headers and method not in _READS and _has_body(headers):
        return UnsupportedFormat("a request with a body must state its Content-Type")
    return None


def _is_foreign(method: str, origin: str | None, host: str, headers: Mapping[bytes, bytes]) -> bool:
    if headers.get(b"sec-fetch-site") == b"cross-site":
        return not _is_link(method, headers)
    if origin is None or method in _READS:
        return False  # Without CORS headers in the response, no page can read it.
    return origin not in (f"http://{host.lower()}", f"https://{host.lower()}")


def _is_link(method: str, headers: Mapping[bytes, bytes]) -> bool:
    """Tell whether the user followed a link, as to the documentation; no page sees the answer."""
    return (
        method in _READS
        and headers.get(b"sec-fetch-mode") == b"navigate"
        and headers.get(b"sec-fetch-dest", b"document") == b"document"
    )


def _has_body(headers: Mapping[bytes, bytes]) -> bool:
    return b"transfer-encoding" in headers or headers.get(b"content-length", b"0").strip() != b"0"


def handshake_refusal(headers: Mapping[bytes, bytes], names: AllowedNames) -> LeadlineError | None:
    """Return the error for a WebSocket handshake, which browsers send across origins, too."""
    return refusal(_WEBSOCKET, headers, names)
