"""Sessions over TLS: whom they trust, and what they refuse to start with."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from leadline_cli.certificates import Authority
from leadline_common.identity import ServiceIdentity, UnusableCredentials
from leadline_common.settings import BrokerSettings
from leadline_common.tcp_ports import LOOPBACK
from leadline_common.zk.credentials import ZkCredentials
from leadline_common.zk.errors import NotConnected
from leadline_common.zk.login import login_of
from leadline_common.zk.ops import CreateOp
from leadline_common.zk.polling_handler import PollingHandler
from leadline_common.zk.session import ZkSession
from leadline_common.zk.tls import ZkTls
from tests.support.services.zookeeper import SESSION_TIMEOUT_MS

BROKER = ServiceIdentity("broker", 1)
USER = ZkCredentials.of("services:one")
REFUSED_AFTER_MS = 1_500


@dataclass(frozen=True)
class Files:
    """The authority of ZooKeeper, and a certificate with its key for a server of this machine."""

    authority: Path
    certificate: Path

    @classmethod
    def make(cls, directory: Path, host: str = LOOPBACK) -> Files:
        directory.mkdir(exist_ok=True)
        authority = Authority.new()
        made = cls(directory / "ca.pem", directory / "server.pem")
        made.authority.write_bytes(authority.certificate_pem)
        made.certificate.write_bytes(authority.issue_public(BROKER, (host,)))
        return made


@asynccontextmanager
async def tls_in_front_of(
    zk_chroot: str, files: Files, client_ca: Path | None = None
) -> AsyncIterator[str]:
    """Accept TLS, and pass what is inside to the ZooKeeper of the tests; yield the address."""
    hosts, _, chroot = zk_chroot.partition("/")
    host, _, port = hosts.partition(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate)
    if client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(client_ca)

    async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65_536):
                target.write(data)
                await target.drain()
        target.close()

    connections: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.current_task()
        assert connection is not None
        connections.add(connection)
        with contextlib.closing(writer):
            inner_reader, inner_writer = await asyncio.open_connection(host, int(port))
            with contextlib.closing(inner_writer):
                await asyncio.gather(copy(reader, inner_writer), copy(inner_reader, writer))

    server = await asyncio.start_server(connected, LOOPBACK, 0, ssl=context)
    try:
        async with server:
            yield f"{LOOPBACK}:{server.sockets[0].getsockname()[1]}/{chroot}"
    finally:
        for connection in connections:
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)


async def connect(hosts: str, tls: ZkTls) -> None:
    session = ZkSession(credentials=replace(USER, tls=tls))
    await session.start(hosts, SESSION_TIMEOUT_MS, connect_timeout_ms=REFUSED_AFTER_MS)
    await session.close()


async def test_a_session_works_over_tls(zk_chroot: str, tmp_path: Path) -> None:
    files = Files.make(tmp_path)
    async with tls_in_front_of(zk_chroot, files) as hosts:
        session = ZkSession(credentials=replace(USER, tls=ZkTls(files.authority)))
        await session.start(hosts, SESSION_TIMEOUT_MS)
        paths = [f"/node-{number}" for number in range(300)]
        await session.multi([CreateOp(path, bytes(1_000)) for path in paths])
        found = await asyncio.gather(*(session.get(path) for path in paths))
        assert {data for data, _ in found} == {bytes(1_000)}
        assert None not in await session.get_many(paths)
        await session.close()


async def test_a_server_of_another_authority_or_host_is_refused(
    zk_chroot: str, tmp_path: Path
) -> None:
    ours, theirs = Files.make(tmp_path / "ours"), Files.make(tmp_path / "theirs")
    async with tls_in_front_of(zk_chroot, theirs) as hosts:
        with pytest.raises(NotConnected):
            await connect(hosts, ZkTls(ours.authority))
    elsewhere = Files.make(tmp_path / "elsewhere", "zookeeper.example.com")
    async with tls_in_front_of(zk_chroot, elsewhere) as hosts:
        with pytest.raises(NotConnected):
            await connect(hosts, ZkTls(elsewhere.authority))


async def test_a_session_shows_its_certificate(zk_chroot: str, tmp_path: Path) -> None:
    files, own = Files.make(tmp_path / "server"), tmp_path / "own.pem"
    clients = Authority.new()
    own.write_bytes(clients.issue(BROKER))
    (tmp_path / "clients.pem").write_bytes(clients.certificate_pem)
    async with tls_in_front_of(zk_chroot, files, tmp_path / "clients.pem") as hosts:
        await connect(hosts, ZkTls(files.authority, own))
        with pytest.raises(NotConnected):
            await connect(hosts, ZkTls(files.authority))


async def test_files_that_are_replaced_count_from_the_next_connection_on(
    zk_chroot: str, tmp_path: Path
) -> None:
    first, second = Files.make(tmp_path / "first"), Files.make(tmp_path / "second")
    tls = ZkTls(first.authority)
    async with (
        tls_in_front_of(zk_chroot, first) as before,
        tls_in_front_of(zk_chroot, second) as after,
    ):
        await connect(before, tls)
        with pytest.raises(NotConnected):
            await connect(after, tls)
        first.authority.write_text("garbage, while it is replaced")
        await connect(before, tls)
        second.authority.replace(first.authority)
        await connect(after, tls)


@pytest.mark.parametrize("damaged", ["authority", "certificate"])
@pytest.mark.parametrize("content", [None, b"", b"garbage"])
def test_a_damaged_file_is_named(tmp_path: Path, damaged: str, content: bytes | None) -> None:
    files = Files.make(tmp_path)
    path: Path = getattr(files, damaged)
    path.unlink() if content is None else path.write_bytes(content)
    with pytest.raises(UnusableCredentials, match=path.name):
        ZkTls(files.authority, files.certificate)


def test_a_service_does_not_start_with_a_damaged_file(tmp_path: Path) -> None:
    user, damaged = tmp_path / "user", tmp_path / "zookeeper-ca.pem"
    user.write_text("coordinator:one\n")
    damaged.write_text("garbage")
    files = {"zookeeper.credentials.file": user, "zookeeper.tls.ca.file": damaged}
    flags = [part for name, path in files.items() for part in ("--set", f"{name}={path}")]
    command = [sys.executable, "-m", "leadline_cli.service", "coordinator"]
    command += [*flags, "--set", "coordinator.id=1", "--set", "zookeeper.connect=127.0.0.1:1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert str(damaged) in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("settings", "missing"),
    [
        ({"zookeeper_tls_ca_file": "ca.pem"}, "zookeeper.credentials.file"),
        ({"zookeeper_tls_certificate_file": "own.pem"}, "zookeeper.tls.ca.file"),
    ],
)
def test_settings_that_would_leave_tls_out_are_refused(
    settings: dict[str, str], missing: str
) -> None:
    with pytest.raises(UnusableCredentials, match=missing):
        login_of(BrokerSettings.model_validate({"broker_id": 1, "log_dir": "unused", **settings}))


def test_what_tls_has_decrypted_already_is_read_without_waiting_for_the_socket(
    tmp_path: Path,
) -> None:
    """Two replies in one TLS record: after the first, the socket itself has nothing to read."""
    files = Files.make(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate)
    with socket.create_server((LOOPBACK, 0)) as listener, ThreadPoolExecutor(1) as pool:

        def send() -> None:
            accepted, _ = listener.accept()
            with context.wrap_socket(accepted, server_side=True) as connection:
                connection.sendall(b"firstsecond")
                connection.recv(1)

        sent = pool.submit(send)
        handler = PollingHandler(ZkTls(files.authority))
        with handler.create_connection(listener.getsockname(), LOOPBACK, 20) as connection:
            assert connection.recv(5) == b"first"
            assert handler.select([connection], [], [], 0)[0] == [connection]
            connection.sendall(b"x")
        sent.result()
