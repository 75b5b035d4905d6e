"""The TLS of sessions with ZooKeeper, whose files may be replaced while they run."""

from __future__ import annotations

import ssl
from pathlib import Path

import structlog

from leadline_common.identity import UnusableCredentials

logger = structlog.get_logger(__name__)


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
        self._authorities = authorities
        self._certificate = certificate
        self._loaded = self._stamps()
        self._context = self._load()

    def context(self) -> ssl.SSLContext:
        """Return the context of the next connection, by the files as they are now.

        Files that cannot be used are reported, and those of before go on to count.
        """
        stamps = self._stamps()
        if stamps != self._loaded:
            try:
                self._context = self._load()
            except UnusableCredentials as problem:
                logger.error("ZooKeeper's new TLS files are not used", reason=str(problem))
            else:
                self._loaded = stamps
                logger.info("ZooKeeper's TLS files are loaded again")
        return self._context

    def _stamps(self) -> list[tuple[int, int, int] | None]:
        """Return what changes with a file; None for one that is not there."""
        stamps: list[tuple[int, int, int] | None] = []
        for path in (self._authorities, self._certificate):
            try:
                found = path.stat() if path else None
            except OSError:
                found = None
            stamps.append(found and (found.st_ino, found.st_mtime_ns, found.st_size))
        return stamps

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        file = self._authorities
        try:
            context.load_verify_locations(file)
            if self._certificate is not None:
                file = self._certificate
                # An encrypted key is refused; without a password, ssl would ask on the terminal.
                context.load_cert_chain(file, password="")
        except ssl.SSLError as problem:
            is_first = file == self._authorities
            what = "PEM certificates" if is_first else "a PEM certificate and its key"
            raise UnusableCredentials(f"{file} must have {what}: {problem.reason}") from None
        except OSError as problem:
            raise UnusableCredentials(f"{file} cannot be read: {problem.strerror}") from None
        return context
