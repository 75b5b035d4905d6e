"""How long a service's certificate is valid, and whom it names.

Services of one cluster accept nobody whose certificate has expired, and a connection that exists
stays open. So a broker whose certificate expires works on until one of its connections breaks:
whoever operates it has to know long before.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from leadline_common.http.health import Problem
from leadline_common.identity import ServiceIdentity, UnusableCredentials

WARN_BEFORE_S: Final = 30 * 86_400
"""How long before its end a certificate is reported."""
_NO_CHECK_TIME: Final = 0x200000
"""OpenSSL's X509_V_FLAG_NO_CHECK_TIME, for which Python has no name."""
_MOST_ROUNDS: Final = 10


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate in a file, valid from `begins_s` to `ends_s` (Unix time, seconds)."""

    path: Path
    begins_s: float
    ends_s: float
    renewal: str
    """What to do when it has ended."""

    def problem(self, now_s: float) -> str:
        """Return why no other service accepts it now, "" if they do."""
        if now_s < self.begins_s:
            return f"{self.path} is valid from {_utc(self.begins_s)} on: check this machine's clock"
        if now_s >= self.ends_s:
            return f"{self.path} expired at {_utc(self.ends_s)}: {self.renewal}"
        return ""

    def warning(self, now_s: float) -> str:
        """Return a warning if it ends soon, else ""."""
        if now_s < self.ends_s - WARN_BEFORE_S:
            return ""
        return f"{self.path} expires at {_utc(self.ends_s)}: {self.renewal}"


@dataclass(frozen=True, slots=True)
class CertificateChain:
    """A service's certificate and the authority's, and the service that it names, if any."""

    service: ServiceIdentity | None
    own: Certificate
    authority: Certificate

    @property
    def ends_s(self) -> float:
        """When the first of the two expires (Unix time, seconds)."""
        return min(self.own.ends_s, self.authority.ends_s)

    def require_valid(self, now_s: float) -> None:
        """Refuse a chain that no other service accepts.

        Raises:
            UnusableCredentials: a certificate has expired, or is not valid yet.

        """
        for certificate in (self.authority, self.own):
            if problem := certificate.problem(now_s):
                raise UnusableCredentials(problem)

    def require_names(self, service: ServiceIdentity) -> None:
        """Refuse the certificate of another service: others would not talk to this one.

        Raises:
            UnusableCredentials: it names another service, or none.

        """
        if self.service != service:
            raise UnusableCredentials(
                f"{self.own.path} is the certificate of {self.service or 'no service'}, and this "
                f"is {service}"
            )

    def problems(self, now_s: float) -> Iterator[Problem]:
        """Yield what `/readyz` shows; without an invalid certificate the service works on."""
        for certificate in (self.authority, self.own):
            if problem := certificate.problem(now_s):
                yield Problem(f"{problem}; other services accept no new connection")
            elif warning := certificate.warning(now_s):
                yield Problem(warning, serving=True)


def read_chain(certificate: Path, authority: Path) -> CertificateChain:
    """Read a service's certificate and the authority's, whether they are valid now or not.

    The standard library shows a certificate only after a handshake: this is one with oneself.

    Raises:
        OSError, ValueError: a file cannot be used, or the authority has not signed the certificate.

    """
    client, server = (
        _context(protocol, certificate, authority)
        for protocol in (ssl.PROTOCOL_TLS_CLIENT, ssl.PROTOCOL_TLS_SERVER)
    )
    own = _handshake(client, server)
    issuer = next(one for one in client.get_ca_certs() if one["subject"] == own["issuer"])
    recreate = "run `leadline credentials create`, and restart"
    return CertificateChain(
        ServiceIdentity.of_certificate(own),
        _certificate(certificate, own, f"remove it, {recreate} the service"),
        _certificate(
            authority,
            issuer,
            f"remove it, its key and the certificates that it signed, {recreate} all services",
        ),
    )


def _context(protocol: int, certificate: Path, authority: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= _NO_CHECK_TIME
    context.load_cert_chain(certificate)
    context.load_verify_locations(authority)
    return context


def _handshake(client: ssl.SSLContext, server: ssl.SSLContext) -> Mapping[str, Any]:
    """Return the certificate that the client has verified."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    calling = client.wrap_bio(to_client, to_server)
    called = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(_MOST_ROUNDS):
        if _advance(calling.do_handshake) and _advance(called.do_handshake):
            break
        _advance(called.do_handshake)
    return calling.getpeercert() or {}


def _advance(handshake: Callable[[], None]) -> bool:
    """Return whether a side has finished its handshake; it may wait for the other one."""
    try:
        handshake()
    except ssl.SSLWantReadError:
        return False
    return True


def _certificate(path: Path, found: Mapping[str, Any], renewal: str) -> Certificate:
    begins, ends = (ssl.cert_time_to_seconds(found[name]) for name in ("notBefore", "notAfter"))
    return Certificate(path, begins, ends, renewal)


def _utc(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
