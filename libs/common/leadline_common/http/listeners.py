"""Sockets that are bound before a server starts: a service publishes its address first."""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass, replace

from leadline_common.http.connection_bounds import BACKLOG
from leadline_common.http.public_tls import PublicTls
from leadline_common.settings.fields import ServiceSettings
from leadline_common.tcp_ports import CannotListen, UnsafeListener


@dataclass(frozen=True, slots=True)
class Listener:
    """A bound socket with its URL; with `tls` it speaks TLS only."""

    socket: socket.socket
    host: str
    port: int
    tls: PublicTls | None = None

    @property
    def url(self) -> str:
        """`http://host:port` or `https://host:port`, with the actual port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}"


def bind_public(settings: ServiceSettings) -> Listener:
    """Bind the listener of a service for clients.

    Raises:
        CannotListen: the address is taken, or is not safe without authentication and TLS.
        UnusableCredentials: a file of `listen.tls.*` cannot be used.

    """
    tls = PublicTls.of(settings)
    _require_safe(settings, encrypted=tls is not None)
    return replace(bind(settings.listen_host, settings.listen_port), tls=tls)


def bind(host: str, port: int) -> Listener:
    """Bind a socket and listen on it; port 0 takes a free one.

    Raises:
        CannotListen: the address is taken.

    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # Accepted sockets inherit it.
        bound.bind((host, port))
        # Listening at once reveals a port in use, and lets early clients wait for the server
        # instead of refusing them.
        bound.listen(BACKLOG)
    except OSError as problem:
        bound.close()
        raise CannotListen(
            f"cannot listen on {host}:{port} ({problem.strerror}): is another service running "
            "there? listen.port chooses another port, and 0 a free one"
        ) from problem
    return Listener(bound, host, bound.getsockname()[1])


def _require_safe(settings: ServiceSettings, *, encrypted: bool) -> None:
    """Refuse to serve other machines unless requests are authenticated and encrypted.

    Raises:
        UnsafeListener: they are not.

    """
    if is_loopback(settings.listen_host):
        return
    begin = f"listen.host is {settings.listen_host}, which is not a loopback address: "
    if settings.authentication != "required":
        raise UnsafeListener(
            begin + "without authentication anyone who can reach it could read and delete "
            "everything; set authentication=required, or use 127.0.0.1"
        )
    if not encrypted:
        raise UnsafeListener(
            begin + "without TLS anyone on the way could read tokens and records; set "
            "listen.tls.certificate.file, or use 127.0.0.1"
        )


def is_loopback(host: str) -> bool:
    """Tell whether a host is this machine by its name or address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
