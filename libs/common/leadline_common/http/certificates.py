"""How long a service's certificate is valid, and whom it names.

Services of one cluster accept nobody whose certificate has expired, and a connection that exists
stays open. So a broker whose certificate expires works on until one of its connections breaks:
whoever operates it has to know long before.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from leadline_common.identity import ServiceIdentity, UnusableCredentials
from leadline_common.problems import Problem

WARN_BEFORE_S: Final = 30 * 86_400
"""How long before its end a certificate is reported."""
_NO_CHECK_TIME: Final = 0x200000
"""OpenSSL's X509_V_FLAG_NO_CHECK_TIME, for which Python has no name."""
_MOST_ROUNDS: Final = 10
_PEM: Final = re.compile("-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


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
    """The one that has signed `own`; its file may have others, too."""

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

    The file `authority` may have several authorities, as while one replaces another. The standard
    library shows a certificate only after a handshake: this is one with oneself.

    Raises:
        OSError, ValueError: a file cannot be used, or no authority has signed the certificate.

    """
    server = _context(ssl.PROTOCOL_TLS_SERVER, certificate, authority)
    own = _handshake(_context(ssl.PROTOCOL_TLS_CLIENT, certificate, authority), server)
    recreate = "and run `leadline credentials create`"
    return CertificateChain(
        ServiceIdentity.of_certificate(own),
        _certificate(certificate, own, f"remove it, {recreate}"),
        _certificate(
            authority,
            _issuer(authority, certificate),
            f"remove it, its key and the certificates that it signed, {recreate} for all services",
        ),
    )


def read_public(certificate: Path, host: str) -> Certificate:
    """Read the certificate that a service shows to clients, whether it is valid now or not.

    The authority need not be in the file, and is not checked: that is up to the clients.
    Certificates of authorities in the file, which are sent along, have to be valid as well.

    Raises:
        OSError, ValueError: the file cannot be used, or the certificate is not one of a server
            that clients reach as `host`.

    """
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_key(server, certificate)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.verify_flags |= _NO_CHECK_TIME | ssl.VERIFY_X509_PARTIAL_CHAIN
    client.load_verify_locations(cadata="\n".join(certificates_in(certificate)))
    own = _handshake(client, server, host)
    renewal = "replace the file; the service reads it again"
    found = [_certificate(certificate, one, renewal) for one in (own, *client.get_ca_certs())]
    begins, ends = max(one.begins_s for one in found), min(one.ends_s for one in found)
    return Certificate(certificate, begins, ends, renewal)


def load_key(context: ssl.SSLContext, certificate: Path) -> None:
    """Load a certificate and its key, both in one file.

    Raises:
        OSError, ValueError: the file cannot be used, or its key has a password, which otherwise
            would be asked for on the terminal.

    """
    context.load_cert_chain(certificate, password=_refuse_password)


def certificates_in(path: Path) -> list[str]:
    """Return the certificates of a file, each as PEM.

    Raises:
        OSError, ValueError: it cannot be read, or has none.

    """
    found = _PEM.findall(path.read_text(encoding="ascii", errors="replace"))
    if not found:
        raise ValueError(f"{path} has no certificate in PEM")
    return found


def _refuse_password() -> str:
    raise ValueError("the key has a password: store it without one, readable by its owner only")


def _context(protocol: int, certificate: Path, authority: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= _NO_CHECK_TIME
    load_key(context, certificate)
    context.load_verify_locations(authority)
    return context


def _issuer(authority: Path, certificate: Path) -> Mapping[str, Any]:
    """Return the authority that has signed a certificate; several may have the same name."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_key(server, certificate)
    for one in certificates_in(authority):
        client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        client.check_hostname = False
        client.verify_flags |= _NO_CHECK_TIME
        client.load_verify_locations(cadata=one)
        with suppress(ssl.SSLCertVerificationError):
            _handshake(client, server)
            for found in client.get_ca_certs():
                return found
    raise ValueError(f"no authority of {authority} has signed {certificate}")


def _handshake(
    client: ssl.SSLContext, server: ssl.SSLContext, host: str | None = None
) -> Mapping[str, Any]:
    """Return the certificate that the client has verified."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    calling = client.wrap_bio(to_client, to_server, server_hostname=host)
    called = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(_MOST_ROUNDS):
        if _advance(calling.do_handshake) and _advance(called.do_handshake):
            break
        _advance(called.do_handshake)
    found = calling.getpeercert()
    if not found:
        raise ValueError("the certificate cannot be read")
    return found


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
