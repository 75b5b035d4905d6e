"""Free TCP ports on this machine's loopback address, and errors of listening on one."""

from __future__ import annotations

import random
import socket
import sys
from typing import Final

LOOPBACK: Final = "127.0.0.1"

_FIRST: Final = 20_000
_LAST: Final = 32_767
"""Both are below the ephemeral port ranges of Linux and macOS.

An outgoing connection could take a port in these ranges while its service restarts, and a service
must restart on the same address.
"""
_ATTEMPTS: Final = 200


class CannotListen(OSError):
    """A service cannot listen on its configured address; the message says why."""


class UnsafeListener(CannotListen, ValueError):
    """The configured address could be reached from other machines without credentials."""


class ReservedPorts:
    """Ports that this process keeps for the services it starts, until `release`.

    Invariant: a port is handed out once. On Linux no other process that looks for a free port
    finds it either, even while its service restarts: a socket stays bound to it and never listens,
    and as it and the service both set SO_REUSEADDR, the service can listen there.
    """

    def __init__(self) -> None:
        self._kept: dict[int, socket.socket] = {}

    def keep(self, port: int) -> bool:
        """Reserve this port; return false if it is reserved here or something listens on it."""
        return self._reserve(port, reuse=True)

    def take(self) -> int:
        """Reserve a free port and return it.

        Raises:
            OSError: none was found.

        """
        for _ in range(_ATTEMPTS):
            port = random.randint(_FIRST, _LAST)
            if self._reserve(port, reuse=False):
                return port
        raise OSError(f"no free port found in {_FIRST}..{_LAST}")

    def release(self) -> None:
        """Give up all ports."""
        for holder in self._kept.values():
            holder.close()
        self._kept.clear()

    def _reserve(self, port: int, *, reuse: bool) -> bool:
        """Without `reuse`, a port that another process reserved counts as taken."""
        if port in self._kept:
            return False
        holder = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuse)
            holder.bind((LOOPBACK, port))
        except OSError:
            holder.close()
            return False
        if sys.platform == "linux":
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        else:
            holder.close()  # Elsewhere it would keep the service from listening.
        self._kept[port] = holder
        return True


def free_port() -> int:
    """Return a port that is free now; bind it soon.

    Raises:
        OSError: none was found.

    """
    ports = ReservedPorts()
    try:
        return ports.take()
    finally:
        ports.release()
