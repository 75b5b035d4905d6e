"""Certificates that change while a service runs: new handshakes use them, or the former ones."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import structlog

from leadline_cli.certificates import Authority
from leadline_cli.credentials import Credentials
from leadline_common.http.app import create_app
from leadline_common.http.connection_bounds import ConnectionBounds
from leadline_common.http.handshakes import HandshakeListener
from leadline_common.http.internal_listener import InternalListener
from leadline_common.http.listeners import bind
from leadline_common.http.tls import InternalTls
from leadline_common.http.tls_files import TlsFiles
from leadline_common.identity import ServiceIdentity
from leadline_common.metrics import Metrics
from leadline_common.settings import ServiceSettings
from tests.support.services.identities import issue_in_the_past, load_tls
from tests.unit.common.http_app import anybody

SERVICES_LOOP = True
BROKER, CONTROLLER = ServiceIdentity("broker", 1), ServiceIdentity("controller", 1)


class Echo(asyncio.Protocol):
    """Answers to each piece of data with it."""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)


@asynccontextmanager
async def listening(tls: InternalTls) -> AsyncIterator[int]:
    listener = bind("127.0.0.1", 0)
    bounds = ConnectionBounds(ServiceSettings(), Metrics(process=False))
    serving = HandshakeListener(listener.socket, tls, Echo, bounds)
    serving.start()
    try:
        yield listener.port
    finally:
        serving.close()


async def connected(
    port: int, tls: ssl.SSLContext
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect, and wait until the other end has accepted this one's certificate, too."""
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=tls, server_hostname=BROKER.host_name
    )
    try:
        assert await echoed(reader, writer)
    except (OSError, AssertionError):
        writer.transport.abort()
        raise
    return reader, writer


async def echoed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
    writer.write(b"x")
    return await reader.read(1) == b"x"


async def is_accepted(port: int, tls: ssl.SSLContext) -> bool:
    try:
        _, writer = await connected(port, tls)
    except (OSError, AssertionError):
        return False
    writer.transport.abort()
    return True


def serial_of(writer: asyncio.StreamWriter) -> str:
    return str(writer.get_extra_info("peercert")["serialNumber"])


def renew(credentials: Credentials, service: ServiceIdentity) -> None:
    credentials.certificate_of(service).unlink()
    credentials.create([service])


async def test_a_new_certificate_is_used_by_new_handshakes_and_open_connections_stay(
    tmp_path: Path,
) -> None:
    credentials = Credentials(tmp_path)
    tls, caller = load_tls(credentials, BROKER), load_tls(credentials, CONTROLLER)
    async with listening(tls) as port, asyncio.timeout(30):
        before = await connected(port, caller.client)
        renew(credentials, BROKER)
        tls.reload_if_changed()
        after = await connected(port, caller.client)
        assert serial_of(before[1]) != serial_of(after[1])
        assert await echoed(*before)
        for _, writer in (before, after):
            writer.transport.abort()


async def test_the_removal_of_an_authority_takes_effect(tmp_path: Path) -> None:
    """Loading authorities into a context only ever adds them."""
    old = Credentials(tmp_path / "old")
    server, former = load_tls(old, BROKER), load_tls(old, CONTROLLER)
    new = Credentials(tmp_path / "new")
    latter = load_tls(new, CONTROLLER)
    renewed = new.authority.read_bytes()
    both = old.authority.read_bytes() + renewed
    async with listening(server) as port, asyncio.timeout(30):
        assert await is_accepted(port, former.client)
        old.authority.write_bytes(both)
        server.reload_if_changed()
        new.authority.write_bytes(both)
        latter.reload_if_changed()
        assert await is_accepted(port, former.client)
        assert await is_accepted(port, latter.client)
        new.create([BROKER])
        old.certificate_of(BROKER).write_bytes(new.certificate_of(BROKER).read_bytes())
        old.authority.write_bytes(renewed)
        server.reload_if_changed()
        new.authority.write_bytes(renewed)
        latter.reload_if_changed()
        assert not await is_accepted(port, former.client), "its authority was removed"
        assert await is_accepted(port, latter.client)


def halve(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def swap_key(path: Path) -> None:
    """Leave the certificate with the key of another one, as between two writes."""
    certificate, _, _ = path.read_text().partition("-----BEGIN PRIVATE")
    other = Authority.new().issue(BROKER).decode()
    path.write_text(certificate + "-----BEGIN PRIVATE" + other.partition("-----BEGIN PRIVATE")[2])


def expire(path: Path) -> None:
    issue_in_the_past(Credentials(path.parent), BROKER, 3_651)


def name_another(path: Path) -> None:
    other = ServiceIdentity("broker", 2)
    credentials = Credentials(path.parent)
    credentials.create([other])
    path.write_bytes(credentials.certificate_of(other).read_bytes())


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda path: path.write_text("garbage"), "cannot be used"),
        (lambda path: path.write_text(""), "cannot be used"),
        (halve, "cannot be used"),
        (swap_key, "cannot be used"),
        (lambda path: path.unlink(), "No such file"),
        (expire, "expired at"),
        (name_another, "is the certificate of broker 2, and this is broker 1"),
    ],
    ids=["garbage", "empty", "half", "another key", "missing", "expired", "another service"],
)
async def test_what_cannot_be_used_leaves_the_former_in_use_and_is_reported(
    tmp_path: Path, spoil: Callable[[Path], Any], says: str
) -> None:
    credentials = Credentials(tmp_path)
    tls, caller = load_tls(credentials, BROKER), load_tls(credentials, CONTROLLER)
    internal = InternalListener(bind("127.0.0.1", 0), tls)
    app = create_app(
        title="t", version="1", description="", metrics=Metrics(process=False), need_of=anybody
    )
    TlsFiles(internal=internal).report_to(app)
    path = credentials.certificate_of(BROKER)
    good, ends_s = path.read_bytes(), tls.chain.ends_s
    internal.socket.close()
    transport = httpx.ASGITransport(app)
    async with (
        listening(tls) as port,
        httpx.AsyncClient(transport=transport, base_url="http://localhost") as http,
    ):
        spoil(path)
        with structlog.testing.capture_logs() as logged:
            for _ in range(3):
                tls.reload_if_changed()
        assert await is_accepted(port, caller.client)
        assert (len(logged), logged[0]["log_level"]) == (1, "warning")
        assert tls.chain.ends_s == ends_s
        ready = (await http.get("/readyz")).json()
        assert ready["state"] == "degraded"
        assert says in "".join(ready["reasons"])
        metrics = (await http.get("/metrics")).text
        assert 'leadline_tls_files_refused{files="internal"} 1.0' in metrics

        path.write_bytes(good)
        tls.reload_if_changed()
        assert (await http.get("/readyz")).json()["state"] == "ready"
        metrics = (await http.get("/metrics")).text
        assert 'leadline_tls_files_refused{files="internal"} 0.0' in metrics
        assert 'leadline_tls_files_loads{files="internal"} 1.0' in metrics


def test_files_that_were_read_half_written_are_read_again(tmp_path: Path) -> None:
    """Even where the second half changes nothing that the file system shows."""
    credentials = Credentials(tmp_path)
    tls = load_tls(credentials, BROKER)
    path, before = credentials.certificate_of(BROKER), tls.server
    renew(credentials, BROKER)
    content = path.read_bytes()
    path.write_bytes(content[:100] + b" " * (len(content) - 100))
    tls.reload_if_changed()
    assert tls.server is before
    stamp = path.stat()
    path.write_bytes(content)

    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    tls.reload_if_changed()
    assert tls.server is not before


def test_unchanged_files_are_not_read_again(tmp_path: Path) -> None:
    tls = load_tls(Credentials(tmp_path), BROKER)
    before = tls.server, tls.client
    tls.reload_if_changed()
    assert (tls.server, tls.client) == before
    assert tls.files.loads == 0


def test_among_authorities_of_one_name_the_end_of_the_signer_counts(tmp_path: Path) -> None:
    credentials = Credentials(tmp_path)
    tls = load_tls(credentials, BROKER)
    ends_s = tls.chain.authority.ends_s
    issue_in_the_past(Credentials(tmp_path / "other"), BROKER, 3_640, authority=True)
    own = credentials.authority.read_bytes()
    other = (tmp_path / "other" / "internal-ca.pem").read_bytes()
    for bundle in (other + own, own + other):
        credentials.authority.write_bytes(bundle)
        tls.reload_if_changed()
        assert tls.chain.authority.ends_s == ends_s
        assert not list(tls.chain.problems(ends_s - 100 * 86_400))
