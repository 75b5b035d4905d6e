"""A real ZooKeeper server from pip-installed files, on this machine's loopback address.

The PySpark wheel contains the server's jars. `python -m leadline_cli.embedded_zookeeper
--data-dir DIR --port PORT` writes the configuration into DIR, then replaces itself with the
server (same pid). `EmbeddedZooKeeper` runs that command as a child, and `EmbeddedEnsemble` runs
three of them. The same command, run again, serves the same data.

For one machine only: there is no authentication, and the server listens on loopback.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final

from leadline_cli.zookeeper_config import TICK_TIME_MS, EnsembleMember, ServerConfig
from leadline_client.file_lock import FileLock, FileLockHeld
from leadline_common.tcp_ports import LOOPBACK, free_port, free_ports

START_DEADLINE_S: Final = 60.0
STOP_DEADLINE_S: Final = 10.0


class ZooKeeperDidNotStart(RuntimeError):
    """The server ended or missed the deadline; the message contains its output."""


def server_mode(port: int, timeout_s: float = 1.0) -> str | None:
    """Return `standalone`, `leader` or `follower`, or None while the server does not serve.

    It sends `srvr`, because a server answers `ruok` before it serves requests.
    """
    for line in _ask(port, b"srvr", timeout_s).splitlines():
        if line.startswith("Mode: "):
            return line.removeprefix("Mode: ")
    return None


def _ask(port: int, command: bytes, timeout_s: float) -> str:
    """Return the answer to a four-letter command, empty if there is none."""
    with suppress(OSError), socket.create_connection((LOOPBACK, port), timeout_s) as connection:
        connection.settimeout(timeout_s)
        connection.sendall(command)
        return b"".join(iter(lambda: connection.recv(4096), b"")).decode(errors="replace")
    return ""


class EmbeddedZooKeeper:
    """One server as a child process, in its own session so that Ctrl-C does not reach it."""

    def __init__(
        self,
        data_dir: Path,
        port: int | None = None,
        *,
        tick_time_ms: int = TICK_TIME_MS,
        member: EnsembleMember | None = None,
    ) -> None:
        self.config = ServerConfig(
            data_dir.resolve(), port or free_port(), tick_time_ms=tick_time_ms, member=member
        )
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def hosts(self) -> str:
        """The connection string for clients."""
        return f"{LOOPBACK}:{self.config.port}"

    @property
    def argv(self) -> list[str]:
        """The command that runs this server, with its data, again."""
        return self.config.command()

    @property
    def pid(self) -> int | None:
        """The process id, or None if it was not started or has ended."""
        return self._process.pid if self._process and self._process.poll() is None else None

    def launch(self) -> None:
        """Start the process without waiting for it to serve.

        Raises:
            ZooKeeperDidNotStart: it runs already, or another server uses its port.

        """
        if self.pid is not None or _ask(self.config.port, b"ruok", 1.0):
            raise ZooKeeperDidNotStart(f"a server answers at {self.hosts} already")
        self.config.data_dir.mkdir(parents=True, exist_ok=True)
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(  # noqa: S603 -- our own command, no shell
                self.argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait_until_serving(self, deadline_s: float = START_DEADLINE_S) -> None:
        """Wait until the server answers requests.

        Raises:
            ZooKeeperDidNotStart: it ended, or `deadline_s` seconds passed.

        """
        give_up = time.monotonic() + deadline_s
        while not self._serves() or self.pid is None:
            if self.pid is None or time.monotonic() > give_up:
                why = "ended" if self.pid is None else f"did not serve in {deadline_s:.0f} s"
                self.stop()
                raise ZooKeeperDidNotStart(f"ZooKeeper {why}:\n{self._tail()}")
            time.sleep(0.02)

    def start(self, deadline_s: float = START_DEADLINE_S) -> None:
        """Start the process and wait until it serves.

        Raises:
            ZooKeeperDidNotStart: it ended, or `deadline_s` seconds passed.

        """
        self.launch()
        self.wait_until_serving(deadline_s)

    def stop(self, deadline_s: float = STOP_DEADLINE_S) -> None:
        """Terminate the process, and kill it after `deadline_s` seconds. Idempotent."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def kill(self) -> None:
        """Kill the process, as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _serves(self) -> bool:
        """Tell whether this server serves, rather than another one on the same port."""
        port = self.config.port
        own = f"dataDir={self.config.data_dir / 'version-2'}"
        return server_mode(port) is not None and own in _ask(port, b"conf", 1.0).splitlines()

    @property
    def _output(self) -> Path:
        return self.config.data_dir / "zookeeper.out"

    def _tail(self) -> str:
        logs = (self._output, self.config.data_dir / "zookeeper.log")
        return "\n".join(log.read_text(errors="replace")[-2000:] for log in logs if log.exists())

    def __enter__(self) -> EmbeddedZooKeeper:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


@dataclass(slots=True)
class EmbeddedEnsemble:
    """An ensemble, which tolerates the loss of one server in three. For tests."""

    data_dir: Path
    size: int = 3
    tick_time_ms: int = TICK_TIME_MS
    members: list[EmbeddedZooKeeper] = field(init=False)

    def __post_init__(self) -> None:
        ports = free_ports(3 * self.size)
        servers = {
            number: (ports[3 * number - 2], ports[3 * number - 1])
            for number in range(1, self.size + 1)
        }
        self.members = [
            EmbeddedZooKeeper(
                self.data_dir / str(number),
                ports[3 * number - 3],
                tick_time_ms=self.tick_time_ms,
                member=EnsembleMember(number, servers),
            )
            for number in servers
        ]

    @property
    def hosts(self) -> str:
        """The connection string that names all members."""
        return ",".join(member.hosts for member in self.members)

    def start(self, deadline_s: float = START_DEADLINE_S) -> None:
        """Start all members and wait until each serves; one of them then leads.

        Raises:
            ZooKeeperDidNotStart: one did not start; all are stopped.

        """
        try:
            for member in self.members:
                member.launch()
            for member in self.members:
                member.wait_until_serving(deadline_s)
        except BaseException:
            self.stop()
            raise

    def leader(self) -> EmbeddedZooKeeper | None:
        """Return the current leader of the ensemble, or None."""
        for member in self.members:
            if member.pid is not None and server_mode(member.config.port) == "leader":
                return member
        return None

    def kill(self) -> None:
        """Kill all members, as a crash would."""
        for member in self.members:
            member.kill()

    def stop(self) -> None:
        """Stop all members. Idempotent."""
        for member in self.members:
            member.stop()

    def __enter__(self) -> EmbeddedEnsemble:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


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
