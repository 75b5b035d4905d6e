"""The TLS of sessions with ZooKeeper, whose files may be replaced while they run."""

from __future__ import annotations

import ssl
from pathlib import Path

from leadline_common.identity import UnusableCredentials
from leadline_common.reloading import Reloaded


class ZkTls:
    """The TLS of sessions with ZooKeeper, by files that may be replaced at any time. Thread-safe.

    A server's certificate has to be of the authorities in the first file, and name the host in the
    connection string. The second file has a certificate to show, and its key.
    """

    def __init__(self, authorities: Path, certificate: Path | None = None) -> None:
        """Load the files.

        Raises:
            UnusableCredentials: a file cannot be read, or has another content.

        """
        files = [authorities] if certificate is None else [authorities, certificate]
        self._loaded = Reloaded("zookeeper", files, lambda: _load(authorities, certificate))

    def context(self) -> ssl.SSLContext:
        """Return the context of the next connection, by the files as they are now.

        Files that cannot be used are reported, and those of before go on to count.
        """
        self._loaded.reload_if_changed()
        return self._loaded.current


def _load(authorities: Path, certificate: Path | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    file = authorities
    try:
        context.load_verify_locations(authorities)
        if certificate is not None:
            file = certificate
            # An encrypted key is refused; without a password, ssl would ask on the terminal.
            context.load_cert_chain(certificate, password="")
    except ssl.SSLError as problem:
        what = "PEM certificates" if file == authorities else "a PEM certificate and its key"
        raise UnusableCredentials(f"{file} must have {what}: {problem.reason}") from None
    except OSError as problem:
        raise UnusableCredentials(f"{file} cannot be read: {problem.strerror}") from None
    return context
