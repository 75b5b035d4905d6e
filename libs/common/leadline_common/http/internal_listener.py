"""The listener for the requests of other services: its socket and its certificate."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path

from leadline_common.http.listeners import Listener, bind
from leadline_common.http.tls import InternalTls
from leadline_common.identity import UnusableCredentials
from leadline_common.settings import ServiceSettings


@dataclass(frozen=True, slots=True)
class InternalListener:
    """A bound socket that speaks mutual TLS; `tls` also serves this service's own calls."""

    listener: Listener
    tls: InternalTls

    @property
    def url(self) -> str:
        """`https://host:port`, with the actual port."""
        return self.listener.url.replace("http:", "https:", 1)

    @property
    def socket(self) -> socket.socket:
        """The socket."""
        return self.listener.socket


def bind_internal(settings: ServiceSettings) -> InternalListener:
    """Bind the internal listener of a service.

    Raises:
        CannotListen: the address is taken, or is no loopback address.
        UnusableCredentials: no certificate is set, or one cannot be used.

    """
    certificate, authority = settings.internal_certificate_file, settings.internal_ca_file
    if not certificate or not authority:
        raise UnusableCredentials(
            "internal.certificate.file and internal.ca.file are required: services prove their "
            "identity to each other; `leadline credentials create` makes both files"
        )
    tls = InternalTls.load(Path(certificate), Path(authority))
    return InternalListener(bind(settings.listen_host, settings.internal_listen_port), tls)
