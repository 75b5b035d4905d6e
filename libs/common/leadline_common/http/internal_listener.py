"""The listener for the requests of other services: its socket and its certificate."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from leadline_common.http.app import ServiceApp
from leadline_common.http.listeners import Listener, bind
from leadline_common.http.tls import InternalTls
from leadline_common.identity import ServiceIdentity, UnusableCredentials
from leadline_common.metrics import Metrics
from leadline_common.problems import Problem
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

    def problems(self) -> Iterator[Problem]:
        """Yield what is wrong with the certificate now; see `CertificateChain.problems`."""
        yield from self.tls.chain.problems(time.time())
        yield from self.tls.files.problems()

    def report_to(self, app: ServiceApp) -> None:
        """Show the certificate's problems in `/readyz`, and its end among the metrics."""
        app.checks.append(self.problems)
        show_certificate_end(app.metrics, lambda: self.tls.chain.ends_s)


def show_certificate_end(metrics: Metrics, read: Callable[[], float]) -> None:
    """Add a gauge that `read` returns: the end of the internal listener's certificates."""
    metrics.gauge_from(
        "internal_certificate_not_after_timestamp_seconds",
        "When the certificate of the internal listener, or of its authority, expires (Unix time).",
        read,
    )


def bind_internal(settings: ServiceSettings, service: ServiceIdentity) -> InternalListener:
    """Bind the internal listener of a service.

    Raises:
        CannotListen: the address is taken.
        UnusableCredentials: no certificate is set, or one cannot be used: it is damaged, has
            expired, or is that of another service.

    """
    certificate, authority = settings.internal_certificate_file, settings.internal_ca_file
    if not certificate or not authority:
        raise UnusableCredentials(
            "internal.certificate.file and internal.ca.file are required: services prove their "
            "identity to each other; `leadline credentials create` makes both files"
        )
    tls = InternalTls.load(Path(certificate), Path(authority))
    tls.chain.require_names(service)
    tls.chain.require_valid(time.time())
    return InternalListener(bind(settings.listen_host, settings.internal_listen_port), tls)
