"""Mutual TLS between services: each side proves its identity by a certificate of the cluster's CA.

The contexts are made again when the files change (`reloading`). TLS 1.3 only: all peers are
Leadline's own.
"""

from __future__ import annotations

import ssl
import time
from asyncio import BaseTransport
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import httptools

from leadline_common.http.certificates import CertificateChain, load_key, read_chain
from leadline_common.http.internal import PEER_KEY
from leadline_common.http.joined_writes import JoinedResponses
from leadline_common.identity import ServiceIdentity, UnusableCredentials
from leadline_common.reloading import Reloaded


@dataclass(frozen=True, slots=True)
class _Contexts:
    """The TLS contexts of one version of the files."""

    server: ssl.SSLContext
    client: ssl.SSLContext
    chain: CertificateChain


@dataclass(frozen=True, slots=True)
class InternalTls:
    """What one service has for its internal listener, and for its calls to others'."""

    files: Reloaded[_Contexts]

    @classmethod
    def load(cls, certificate: Path, authority: Path) -> Self:
        """Load the service's certificate with its key (one PEM file), and those of its CAs.

        They may have expired: see `CertificateChain.require_valid`.

        Raises:
            UnusableCredentials: a file is missing or not what it should be, or no CA has signed
                the certificate.

        """
        load = partial(_load, certificate, authority)
        return cls(Reloaded("internal", (certificate, authority), load))

    @property
    def server(self) -> ssl.SSLContext:
        """The context for a connection that was accepted."""
        return self.files.current.server

    @property
    def client(self) -> ssl.SSLContext:
        """The context for a new connection to another service."""
        return self.files.current.client

    @property
    def chain(self) -> CertificateChain:
        """Whose certificate is in use, and how long it is valid."""
        return self.files.current.chain

    def reload_if_changed(self) -> None:
        """Use changed files, unless they have expired or name another service."""
        self.files.reload_if_changed(self._accept)

    def _accept(self, new: _Contexts) -> None:
        if self.chain.service is not None:
            new.chain.require_names(self.chain.service)
        new.chain.require_valid(time.time())


def _load(certificate: Path, authority: Path) -> _Contexts:
    try:
        contexts = [
            ssl.SSLContext(protocol)
            for protocol in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT)
        ]
        for context in contexts:
            context.minimum_version = ssl.TLSVersion.TLSv1_3
            context.verify_mode = ssl.CERT_REQUIRED
            load_key(context, certificate)
            context.load_verify_locations(authority)
        chain = read_chain(certificate, authority)
    except (OSError, ValueError) as problem:  # SSLError is an OSError
        reason = problem.strerror if isinstance(problem, OSError) else str(problem)
        raise UnusableCredentials(
            f"{certificate} (certificate and key) and {authority} (CA) cannot be used: "
            f"{reason}; `leadline credentials create` makes both"
        ) from None
    server, client = contexts
    return _Contexts(server, client, chain)


def peer_of(transport: BaseTransport) -> ServiceIdentity | None:
    """Return the service at the other end of a TLS connection, None if it has no identity."""
    session: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
    certificate: Mapping[str, Any] | None = session.getpeercert() if session is not None else None
    return ServiceIdentity.of_certificate(certificate or {})


class InternalProtocol(JoinedResponses):
    """uvicorn's connection on the internal listener: each request has the identity of its sender.

    A connection without one is closed at once.
    """

    def connection_made(self, transport: Any) -> None:
        """Read the identity from the certificate that the handshake has verified."""
        super().connection_made(transport)
        self._peer = peer_of(transport)
        if self._peer is None:
            transport.abort()

    def on_message_begin(self) -> None:
        """Begin a request."""
        super().on_message_begin()
        if self._peer is None:
            raise httptools.HttpParserError("no identity")
        self.scope[PEER_KEY] = self._peer  # type: ignore[typeddict-unknown-key]  # an extension of ours
