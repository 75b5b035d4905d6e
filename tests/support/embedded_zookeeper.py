"""ZooKeeper servers as child processes, for tests and benchmarks: one, or an ensemble."""

from __future__ import annotations

import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from leadline_cli.embedded_zookeeper import (
    TICK_TIME_MS,
    EnsembleMember,
    ServerConfig,
    four_letter_word,
    server_mode,
)
from leadline_common.tcp_ports import LOOPBACK, ReservedPorts, free_port

START_DEADLINE_S: Final = 60.0
STOP_DEADLINE_S: Final = 10.0


class ZooKeeperDidNotStart(RuntimeError):
    """The server ended or missed the deadline; the message contains its output."""


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
        if self.pid is not None or four_letter_word(self.config.port, b"ruok"):
            raise ZooKeeperDidNotStart(f"a server answers at {self.hosts} already")
        self.config.data_dir.mkdir(parents=True, exist_ok=True)
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
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
        own = f"\ndataDir={self.config.data_dir}/././version-2\n"
        return server_mode(port) is not None and own in four_letter_word(port, b"conf")

    @property
    def _output(self) -> Path:
        return self.config.data_dir / "zookeeper.out"

    def _tail(self) -> str:
        logs = (self._output, self.config.data_dir / "zookeeper.log")
        return "\n".join(log.read_text(errors="replace")[-2000:] for log in logs if log.exists())

    def __enter__(self) -> EmbeddedZooKeeper:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


@dataclass(slots=True)
class EmbeddedEnsemble:
    """An ensemble, which tolerates the loss of one server in three."""

    data_dir: Path
    size: int = 3
    tick_time_ms: int = TICK_TIME_MS
    members: list[EmbeddedZooKeeper] = field(init=False)

    def __post_init__(self) -> None:
        reserved = ReservedPorts()
        servers = {number: (reserved.take(), reserved.take()) for number in range(1, self.size + 1)}
        self.members = [
            EmbeddedZooKeeper(
                self.data_dir / str(number),
                reserved.take(),
                tick_time_ms=self.tick_time_ms,
                member=EnsembleMember(number, servers),
            )
            for number in servers
        ]
        reserved.release()

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

    def __exit__(self, *_: object) -> None:
        self.stop()
