"""Which process of this machine has the other end of a connection, by /proc."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

_ADDRESS, _REMOTE, _INODE = 1, 2, 9
"""Columns of /proc/net/tcp: the local and the remote address, the socket's inode."""


def owner_of(port: int, remote: int, pids: Iterable[int]) -> int | None:
    """Return which of these processes has the connection from one port of 127.0.0.1 to another.

    None: none of them has it, or it is closed already. The processes must be this user's. The
    local port alone says nothing: connections to different ports may share it.
    """
    inode = _inode_of(port, remote)
    if inode is None:
        return None
    return next((pid for pid in pids if _has(pid, f"socket:[{inode}]")), None)


def _inode_of(port: int, remote: int) -> str | None:
    """Return the inode of the socket of a connection."""
    wanted = [f"0100007F:{one:04X}" for one in (port, remote)]
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        columns = line.split()
        if columns[_ADDRESS : _REMOTE + 1] == wanted and columns[_INODE] != "0":
            return columns[_INODE]
    return None


def _has(pid: int, target: str) -> bool:
    try:
        descriptors = list(Path(f"/proc/{pid}/fd").iterdir())
    except (FileNotFoundError, PermissionError):
        return False
    return any(_points_at(one, target) for one in descriptors)


def _points_at(descriptor: Path, target: str) -> bool:
    try:
        return str(descriptor.readlink()) == target
    except (FileNotFoundError, PermissionError):
        return False  # it was closed meanwhile, or is another user's
