"""A real ZooKeeper server from pip-installed files, on this machine's loopback address.

The PySpark wheel contains the server's jars. `python -m leadline_cli.embedded_zookeeper
--data-dir DIR --port PORT` writes the configuration into DIR, then replaces itself with the
server (same pid). The same command, run again, serves the same data.

For one machine only: there is no authentication, and the server listens on loopback.
"""

from __future__ import annotations

import argparse
import os
import re
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NoReturn

from leadline_cli.disk_space import full_disk_advice
from leadline_cli.java_runtime import find_java, package_directory
from leadline_cli.processes import module_command
from leadline_client.file_lock import FileLock, FileLockHeld
from leadline_common.private_files import keep_files_private
from leadline_common.tcp_ports import LOOPBACK

TICK_TIME_MS: Final = 500
"""ZooKeeper's unit of time; it grants session timeouts of 2 ticks and more."""
MAX_SESSION_TIMEOUT_MS: Final = 120_000

_MAIN_CLASS: Final = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_JARS: Final = (
    "zookeeper-[0-9]*",
    "zookeeper-jute-*",
    "slf4j-api-*",
    "log4j-slf4j2-impl-*",
    "log4j-api-*",
    "log4j-core-*",
    "metrics-core-*",
    "snappy-java-*",
    "commons-io-*",
    "netty-handler-[0-9]*",
    "netty-common-*",
    "netty-buffer-*",
    "netty-transport-[0-9]*",
)
"""The jars that the server loads. With all of PySpark's jars, it takes twice as long to start."""

_JVM_FLAGS: Final = (
    # The young generation must hold a failover of ten thousand partitions. A smaller one causes a
    # full collection of a quarter of a second every few failovers.
    "-Xmx1g",
    "-Xmn192m",
    "-XX:+UseSerialGC",
    # Without the optimizing compiler. It would begin when a failover runs code that has hardly run
    # before, and take as much processor time as the failover itself.
    "-XX:TieredStopAtLevel=1",
    "-XX:+ExitOnOutOfMemoryError",
    "-Dzookeeper.jmx.log4j.disable=true",
    "-Djava.awt.headless=true",
)

_MODULE: Final = "leadline_cli.embedded_zookeeper"
_HERE: Final = Path()
_SETTINGS_FILE: Final = "zoo.cfg"
_LOGGING_FILE: Final = "log4j2.properties"
_LOGGING: Final = """\
status = error
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {directory}/zookeeper.log
appender.file.filePattern = {directory}/zookeeper.log.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{ISO8601}} %-5p %c{{1}} %m%n
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 16MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 2
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
"""


@dataclass(frozen=True, slots=True)
class EnsembleMember:
    """One server of an ensemble: its id, and the (quorum, election) ports of all servers by id."""

    server_id: int
    servers: Mapping[int, tuple[int, int]]

    def encode(self) -> str:
        """Return the command-line form: `1;1=2888:3888,2=2889:3889`."""
        ports = ",".join(f"{i}={quorum}:{vote}" for i, (quorum, vote) in self.servers.items())
        return f"{self.server_id};{ports}"

    @classmethod
    def decode(cls, text: str) -> EnsembleMember:
        """Parse what `encode` wrote.

        Raises:
            ValueError: it is not of that form.

        """
        server_id, _, entries = text.partition(";")
        servers = {}
        for entry in entries.split(","):
            number, _, ports = entry.partition("=")
            quorum, _, vote = ports.partition(":")
            servers[int(number)] = (int(quorum), int(vote))
        return cls(int(server_id), servers)


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """The configuration of one server; `member` is None for a standalone server."""

    data_dir: Path
    port: int
    tick_time_ms: int = TICK_TIME_MS
    member: EnsembleMember | None = None

    def command(self) -> list[str]:
        """Return the command that runs this server in the foreground; it can be run again."""
        argv = [*module_command(_MODULE)]
        argv += ["--data-dir", str(self.data_dir), "--port", str(self.port)]
        argv += ["--tick-time-ms", str(self.tick_time_ms)]
        return [*argv, "--member", self.member.encode()] if self.member else argv

    @classmethod
    def parse(cls, arguments: Sequence[str] | None) -> ServerConfig:
        """Return the configuration that the arguments of a command describe; exits if they do not.

        None stands for the arguments of this process.
        """
        parser = argparse.ArgumentParser(prog=f"python -m {_MODULE}")
        parser.add_argument("--data-dir", type=Path, required=True)
        parser.add_argument("--port", type=int, required=True)
        parser.add_argument("--tick-time-ms", type=int, default=TICK_TIME_MS)
        parser.add_argument("--member", type=EnsembleMember.decode, help="ID;ID=QUORUM:ELECTION,…")
        found = parser.parse_args(arguments)
        return cls(found.data_dir.resolve(), found.port, found.tick_time_ms, found.member)

    def java_command(self) -> list[str]:
        """Return the Java command of the server itself, for its data directory to run in."""
        return java_command(_HERE, Path(_SETTINGS_FILE))

    @staticmethod
    def check_installed() -> None:
        """Check that there are a ZooKeeper and a Java to run.

        Raises:
            PackageMissing: a package that brings one is not installed.

        """
        package_directory("pyspark")
        find_java()

    def write(self) -> None:
        """Write the configuration files into the data directory."""
        self.data_dir.mkdir(parents=True, exist_ok=True)
        (self.data_dir / _SETTINGS_FILE).write_text(self._zoo_cfg())
        write_logging(self.data_dir, _HERE)
        if self.member:
            (self.data_dir / "myid").write_text(f"{self.member.server_id}\n")

    def _zoo_cfg(self) -> str:
        settings: dict[str, object] = {
            # The directory that the server runs in. Java reads this file as Latin-1, with escapes.
            "dataDir": "./.",
            "clientPort": self.port,
            "clientPortAddress": LOOPBACK,
            "tickTime": self.tick_time_ms,
            "maxSessionTimeout": MAX_SESSION_TIMEOUT_MS,
            "initLimit": 20,
            "syncLimit": 10,
            "maxClientCnxns": 0,
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "srvr,ruok,conf",
            "autopurge.snapRetainCount": 3,
            "autopurge.purgeInterval": 1,
        }
        if self.member:
            for number, (quorum, vote) in self.member.servers.items():
                settings[f"server.{number}"] = f"{LOOPBACK}:{quorum}:{vote}"
        return "".join(f"{name}={value}\n" for name, value in settings.items())


def command_again(before: Sequence[str], data_dir: Path) -> list[str]:
    """Return the command that runs a server again, whose data is in `data_dir` now.

    The directory may have been moved or copied since the command `before`: what that names may be
    gone, or be the data of another cluster. A command that somebody wrote by hand stays as it is.
    """
    if _MODULE not in before:
        return list(before)
    arguments = before[before.index(_MODULE) + 1 :]
    return replace(ServerConfig.parse(arguments), data_dir=data_dir).command()


def java_command(data_dir: Path, settings: Path, jars: Sequence[str] = _JARS) -> list[str]:
    """Return the Java command of a server with these settings, which logs as `data_dir` says.

    Both paths are as the server finds them from its working directory.
    """
    found = package_directory("pyspark").absolute() / "jars"
    class_path = [str(jar) for pattern in jars for jar in sorted(found.glob(pattern + ".jar"))]
    logging = f"-Dlog4j2.configurationFile={data_dir / _LOGGING_FILE}"
    flags = [*_JVM_FLAGS, logging, "-cp", os.pathsep.join(class_path)]
    named = os.path.join(os.curdir, settings)  # noqa: PTH118 - a Path drops the dot, which is asked for
    return [str(find_java().absolute()), *flags, _MAIN_CLASS, named]


def run_in_place(data_dir: Path, command: Sequence[str]) -> NoReturn:
    """Lock a data directory, and replace this process with the server that uses it.

    The server ends on a full disk, and its own log, which would say why, is on the same one.
    Java takes file names as the locale says: in that of cron, only those in ASCII.
    """
    try:
        # ZooKeeper itself does not lock the directory, and two servers would corrupt the data.
        FileLock.acquire(data_dir / "lock", blocking=False, inheritable=True)
    except FileLockHeld:
        sys.exit(f"{data_dir} is in use by another server")
    if advice := full_disk_advice(data_dir):
        sys.stderr.write(f"{advice}\n")
        sys.stderr.flush()
    environment = os.environ | {"LC_ALL": "C.UTF-8"}
    os.execve(command[0], list(command), environment)  # noqa: S606 -- no shell is wanted


def write_logging(data_dir: Path, as_found: Path) -> None:
    """Write where and how much a server logs into its data directory.

    `as_found` is that directory as seen from the server's working directory. A relative path needs
    no escapes.
    """
    (data_dir / _LOGGING_FILE).write_text(_LOGGING.format(directory=as_found))


def server_mode(port: int, timeout_s: float = 1.0) -> str | None:
    """Return `standalone`, `leader` or `follower`, or None while the server does not serve.

    It sends `srvr`, because a server answers `ruok` before it serves requests.
    """
    mode = re.search(r"^Mode: (\S+)", four_letter_word(port, b"srvr", timeout_s), re.MULTILINE)
    return mode[1] if mode else None


def four_letter_word(port: int, command: bytes, timeout_s: float = 1.0) -> str:
    """Return the server's answer to a command such as `ruok`, empty if there is none."""
    with suppress(OSError), socket.create_connection((LOOPBACK, port), timeout_s) as connection:
        connection.settimeout(timeout_s)
        connection.sendall(command)
        return b"".join(iter(lambda: connection.recv(4096), b"")).decode(errors="replace")
    return ""


def main(argv: Sequence[str] | None = None) -> None:
    """Replace this process with the server that the arguments describe; does not return."""
    config = ServerConfig.parse(argv)
    ServerConfig.check_installed()
    keep_files_private()
    try:
        config.write()
        os.chdir(config.data_dir)
    except OSError as problem:
        sys.exit(f"cannot use {config.data_dir} ({problem.strerror})")
    run_in_place(config.data_dir, config.java_command())


if __name__ == "__main__":
    main()
