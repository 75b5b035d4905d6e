"""TCP ports on this machine's loopback address: free ones, and what keeps one from being had."""

from __future__ import annotations

import random
import socket
from typing import Final

LOOPBACK: Final = "127.0.0.1"

_FIRST: Final = 20_000
_LAST: Final = 32_767
"""Below the ranges from which Linux and macOS pick the ports of outgoing connections.

A port inside them may be taken by somebody's connection while its owner restarts,
and a process has to come back on the address that it had.
"""
_ATTEMPTS: Final = 200


class CannotListen(OSError):
    """A service cannot have the address that it was told to listen on; the message says why."""


class UnsafeListener(CannotListen, ValueError):
    """The service was asked to listen where anyone could reach it without credentials."""


def free_port() -> int:
    """Return a port that nobody listens on now; bind it soon.

    Raises:
        OSError: none was found.

    """
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Return `count` different ports that nobody listens on now.

    Raises:
        OSError: not enough were found.

    """
    found: set[int] = set()
    for _ in range(_ATTEMPTS + count):
        port = random.randint(_FIRST, _LAST)
        if port not in found and _can_bind(port):
            found.add(port)
        if len(found) == count:
            return sorted(found)
    raise OSError(f"only {len(found)} of {count} ports found free in {_FIRST}..{_LAST}")


def _can_bind(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True
