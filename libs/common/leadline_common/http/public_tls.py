"""TLS on the listeners for clients, and for calls of services to those listeners.

A client proves nothing by TLS unless the service has authorities of clients' certificates: then it
may show one, and its name is in the scope of its requests (`CLIENT_CERTIFICATE_KEY`).
"""

from __future__ import annotations

import re
import ssl
import time
from asyncio import BaseTransport
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlsplit

from leadline_common.http.certificates import Certificate, load_key, read_public
from leadline_common.identity import UnusableCredentials
from leadline_common.problems import Problem
from leadline_common.reloading import Reloaded
from leadline_common.settings.fields import ServiceSettings

CLIENT_CERTIFICATE_KEY: Final = "leadline.client_certificate"
"""The key of the ASGI scope (of HTTP and of WebSockets) with the name in the client's certificate.

Only verified certificates count: the scope of another client does not have the key.
"""
ALPN: Final = ("http/1.1",)
_USER_URI: Final = re.compile(r"leadline://user/([^/?#%\s]+)")
_OWN_URIS: Final = "leadline://"


@dataclass(frozen=True, slots=True)
class _Shown:
    """The context of one version of the files, and the certificate that it shows."""

    server: ssl.SSLContext
    certificate: Certificate


@dataclass(frozen=True, slots=True)
class PublicTls:
    """What a service has for its public listener."""

    files: Reloaded[_Shown]

    @classmethod
    def of(cls, settings: ServiceSettings) -> Self | None:
        """Load the files of a service's settings; None if it speaks plain HTTP.

        Raises:
            UnusableCredentials: a file is missing, is not what it should be, or has expired, the
                certificate does not name the host of the service's URL, or the settings
                contradict each other.

        """
        certificate, client_ca = (
            settings.listen_tls_certificate_file,
            settings.listen_tls_client_ca_file,
        )
        if not certificate:
            if client_ca:
                raise UnusableCredentials(
                    "listen.tls.client.ca.file needs listen.tls.certificate.file: clients show a "
                    "certificate only over TLS"
                )
            return None
        advertised = urlsplit(settings.advertised_url)
        if advertised.scheme == "http":
            raise UnusableCredentials(
                f"advertised.url is {settings.advertised_url}, but the listener speaks TLS: begin "
                "it with https://"
            )
        host = advertised.hostname or settings.listen_host
        made = cls.load(Path(certificate), Path(client_ca) if client_ca else None, host)
        made._accept(made.files.current)
        return made

    @classmethod
    def load(cls, certificate: Path, client_ca: Path | None, host: str) -> Self:
        """Load a certificate with its key (one PEM file) for a service that is reached as `host`.

        It may have expired. With `client_ca`, clients may show a certificate of its authorities.

        Raises:
            UnusableCredentials: a file is missing or not what it should be.

        """
        files = (certificate,) if client_ca is None else (certificate, client_ca)
        return cls(Reloaded("public", files, partial(_load, certificate, client_ca, host)))

    @property
    def server(self) -> ssl.SSLContext:
        """The context for a connection that was accepted."""
        return self.files.current.server

    @property
    def ends_s(self) -> float:
        """When the certificate in use expires (Unix time, seconds)."""
        return self.files.current.certificate.ends_s

    def reload_if_changed(self) -> None:
        """Use changed files, unless they have expired."""
        self.files.reload_if_changed(self._accept)

    def problems(self) -> Iterator[Problem]:
        """Yield what `/readyz` shows; with an invalid certificate, clients cannot connect."""
        certificate, now_s = self.files.current.certificate, time.time()
        if problem := certificate.problem(now_s):
            yield Problem(f"{problem}; clients accept no new connection")
        elif warning := certificate.warning(now_s):
            yield Problem(warning, serving=True)
        yield from self.files.problems()

    def _accept(self, new: _Shown) -> None:
        if problem := new.certificate.problem(time.time()):
            raise UnusableCredentials(problem)


@dataclass(frozen=True, slots=True)
class PublicTrust:
    """The authorities whose certificates services accept from the public listeners they call."""

    files: Reloaded[ssl.SSLContext]

    @classmethod
    def of(cls, settings: ServiceSettings) -> Self | None:
        """Load the file of a service's settings; None if the machine's authorities are to count.

        Raises:
            UnusableCredentials: the file is missing, or has no certificate.

        """
        return cls.load(Path(settings.tls_ca_file)) if settings.tls_ca_file else None

    @classmethod
    def load(cls, authorities: Path) -> Self:
        """Load the certificates of authorities (PEM).

        Raises:
            UnusableCredentials: the file is missing, or has no certificate.

        """
        return cls(Reloaded("trusted", (authorities,), partial(_load_trust, authorities)))

    @property
    def client(self) -> ssl.SSLContext:
        """The context for a new connection to a public listener."""
        return self.files.current

    def reload_if_changed(self) -> None:
        """Use a changed file."""
        self.files.reload_if_changed()


def client_name(transport: BaseTransport) -> str | None:
    """Return the name in the certificate that the other end of a connection has proven, if any."""
    session: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
    return name_in(session.getpeercert() or {}) if session is not None else None


def name_in(certificate: Mapping[str, Any]) -> str | None:
    """Return whom a verified certificate (`SSLSocket.getpeercert`) names, None if it is unclear.

    That is the user of the URI `leadline://user/NAME`, or else the common name of the subject. A
    certificate with several of these, or one that names a service, names nobody.
    """
    names = certificate.get("subjectAltName", ())
    own = [value for kind, value in names if kind == "URI" and value.startswith(_OWN_URIS)]
    if own:
        match = _USER_URI.fullmatch(own[0]) if len(own) == 1 else None
        return match[1] if match else None
    subject = [attribute for group in certificate.get("subject", ()) for attribute in group]
    common = [value for kind, value in subject if kind == "commonName"]
    return common[0] or None if len(common) == 1 else None


def _load(certificate: Path, client_ca: Path | None, host: str) -> _Shown:
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION
        context.set_alpn_protocols(ALPN)
        load_key(context, certificate)
        if client_ca is not None:
            context.verify_mode = ssl.CERT_OPTIONAL
            context.load_verify_locations(client_ca)
        return _Shown(context, read_public(certificate, host))
    except (OSError, ValueError) as problem:  # SSLError is an OSError
        files = f"{certificate} (certificate and key)"
        if client_ca is not None:
            files += f" and {client_ca} (authorities of clients)"
        raise UnusableCredentials(f"{files} cannot be used: {_reason(problem)}") from None


def _load_trust(authorities: Path) -> ssl.SSLContext:
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_verify_locations(authorities)
    except (OSError, ValueError) as problem:
        raise UnusableCredentials(
            f"{authorities} (tls.ca.file) cannot be used: {_reason(problem)}"
        ) from None
    return context


def _reason(problem: OSError | ValueError) -> str:
    if isinstance(problem, ssl.SSLCertVerificationError):
        message = problem.verify_message.rstrip(".")
        return f"{message}; it has to name the host of advertised.url, or else of listen.host"
    if isinstance(problem, OSError) and problem.strerror:
        return problem.strerror
    return str(problem)
