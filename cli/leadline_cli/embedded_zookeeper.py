"""A real ZooKeeper server from pip-installed files, on this machine's loopback address.

The PySpark wheel contains the server's jars. `python -m leadline_cli.embedded_zookeeper
--data-dir DIR --port PORT` writes the configuration into DIR, then replaces itself with the
server (same pid). The same command, run again, serves the same data.

For one machine only: there is no authentication, and the server listens on loopback.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from leadline_cli.zookeeper_config import TICK_TIME_MS, EnsembleMember, ServerConfig
from leadline_client.file_lock import FileLock, FileLockHeld
from leadline_common.tcp_ports import LOOPBACK


def server_mode(port: int, timeout_s: float = 1.0) -> str | None:
    """Return `standalone`, `leader` or `follower`, or None while the server does not serve.

    It sends `srvr`, because a server answers `ruok` before it serves requests.
    """
    for line in four_letter_word(port, b"srvr", timeout_s).splitlines():
        if line.startswith("Mode: "):
            return line.removeprefix("Mode: ")
    return None


def four_letter_word(port: int, command: bytes, timeout_s: float = 1.0) -> str:
    """Return the server's answer to a command such as `ruok`, empty if there is none."""
    with suppress(OSError), socket.create_connection((LOOPBACK, port), timeout_s) as connection:
        connection.settimeout(timeout_s)
        connection.sendall(command)
        return b"".join(iter(lambda: connection.recv(4096), b"")).decode(errors="replace")
    return ""


def main(argv: Sequence[str] | None = None) -> None:
    """Replace this process with the server that the arguments describe; does not return."""
    parser = argparse.ArgumentParser(prog="python -m leadline_cli.embedded_zookeeper")
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--tick-time-ms", type=int, default=TICK_TIME_MS)
    parser.add_argument("--member", type=EnsembleMember.decode, help="ID;ID=QUORUM:ELECTION,…")
    arguments = parser.parse_args(argv)
    config = ServerConfig(
        arguments.data_dir.resolve(), arguments.port, arguments.tick_time_ms, arguments.member
    )
    try:
        config.write()
    except OSError as problem:
        sys.exit(f"cannot use {config.data_dir} ({problem.strerror})")
    try:
        # ZooKeeper itself does not lock the directory, and two servers would corrupt the data.
        FileLock.acquire(config.data_dir / "lock", blocking=False, inheritable=True)
    except FileLockHeld:
        sys.exit(f"{config.data_dir} is in use by another server")
    command = config.java_command()
    os.execv(command[0], command)  # noqa: S606 -- no shell is wanted


if __name__ == "__main__":
    main()
