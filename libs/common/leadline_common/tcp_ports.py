"""Free TCP ports on this machine's loopback address, and errors of listening on one."""

from __future__ import annotations

import random
import socket
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


def free_port() -> int:
    """Return a port that is free now; bind it soon.

    Raises:
        OSError: none was found.

    """
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Return `count` different ports that are free now, sorted.

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
