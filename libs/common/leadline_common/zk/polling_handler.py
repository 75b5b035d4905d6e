"""kazoo's threads and sockets, with `poll` and with Leadline's own TLS."""

from __future__ import annotations

from collections.abc import Sequence
from select import POLLIN, POLLOUT, poll
from socket import socket
from ssl import SSLSocket

import structlog
from kazoo.handlers.threading import SequentialThreadingHandler

from leadline_common.zk.tls import ZkTls

logger = structlog.get_logger(__name__)


class PollingHandler(SequentialThreadingHandler):
    """kazoo's threads, waiting for sockets with `poll`.

    kazoo's own `select` creates and closes an epoll object for every read and write, which is
    nearly half of the cost of a small request. kazoo's own TLS trusts every public authority.
    """

    def __init__(self, tls: ZkTls | None) -> None:
        super().__init__()
        self._tls = tls
        self.connect_within_s: float | None = None
        """How long a connection may take, and its TLS; None is kazoo's own: the session timeout."""

    def create_connection(
        self,
        address: tuple[str, int],
        hostname: str | None = None,
        timeout: float | None = None,
        **_: object,
    ) -> socket:
        """Connect to one server; with TLS, its certificate has to name `hostname`."""
        if self.connect_within_s is not None:
            timeout = self.connect_within_s
        plain = super().create_connection(address=address, timeout=timeout)
        if self._tls is None:
            return plain
        try:
            plain.settimeout(timeout)
            return self._tls.context().wrap_socket(plain, server_hostname=hostname)
        except OSError as problem:
            plain.close()
            logger.warning("no TLS with ZooKeeper", server=hostname, reason=str(problem))
            raise

    def select(
        self,
        readers: Sequence[socket],
        writers: Sequence[socket],
        _: Sequence[socket],
        timeout: float | None = None,
    ) -> tuple[list[socket], list[socket], list[socket]]:
        """Wait for sockets; return those that can be read, those that can be written, and none."""
        held: list[socket] = [
            reader for reader in readers if isinstance(reader, SSLSocket) and reader.pending()
        ]
        if held:  # Decrypted already, so that the socket itself may have nothing to read.
            return held, [], []
        poller = poll()
        for reader in readers:
            poller.register(reader, POLLIN)
        for writer in writers:
            poller.register(writer, POLLOUT)
        ready = {fd for fd, _ in poller.poll(None if timeout is None else timeout * 1000)}
        return (
            [reader for reader in readers if reader.fileno() in ready],
            [writer for writer in writers if writer.fileno() in ready],
            [],
        )
