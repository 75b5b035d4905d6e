"""Connections that have not proven an identity: some at a time, and the newest ones."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from leadline_cli.credentials import Credentials
from leadline_common.http.connection_bounds import ConnectionBounds
from leadline_common.http.handshakes import MAX_HANDSHAKES, HandshakeListener
from leadline_common.http.listeners import bind
from leadline_common.identity import ServiceIdentity
from leadline_common.metrics import Metrics
from leadline_common.settings import ServiceSettings
from tests.support.services.identities import (
    issue_in_the_past,
    load_tls,
    new_credentials,
    tls_of,
)
from tests.support.services.zookeeper import until

BROKER = ServiceIdentity("broker", 1)
MORE = 30


class Greeting(asyncio.Protocol):
    """What is served to the verified."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(b"verified")


@asynccontextmanager
async def listening() -> AsyncIterator[tuple[int, Metrics]]:
    """Give the port of a listener, and its metrics."""
    metrics = Metrics(process=False)
    listener = bind("127.0.0.1", 0)
    bounds = ConnectionBounds(ServiceSettings(), metrics)
    serving = HandshakeListener(listener.socket, tls_of("broker", 1), Greeting, bounds)
    serving.start()
    try:
        yield listener.port, metrics
    finally:
        serving.close()


async def greeting(port: int, tls: ssl.SSLContext) -> bytes:
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", port, ssl=tls, server_hostname=BROKER.host_name
    )
    try:
        return await reader.read(100)
    finally:
        writer.close()


def open_sockets() -> int:
    return sum(1 for one in Path("/proc/self/fd").iterdir() if one.is_socket())


async def test_whoever_opens_many_connections_ends_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # On a busy machine connections would end because their handshakes are late.
    monkeypatch.setattr("leadline_common.http.handshakes.HANDSHAKE_TIMEOUT_S", 60.0)
    client = tls_of("controller", 1).client
    async with listening() as (port, metrics), asyncio.timeout(60), AsyncExitStack() as opened:

        async def silent() -> asyncio.StreamReader:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            opened.callback(writer.close)
            return reader

        readers = [await silent() for _ in range(MAX_HANDSHAKES + MORE)]
        assert await greeting(port, client) == b"verified"
        ended = [await reader.read() for reader in readers[: MORE + 1]]
        assert ended == [b""] * (MORE + 1)
        assert b'reason="too many handshakes"} 31.0' in metrics.render()


async def test_a_connection_that_proves_nothing_leaves_nothing_behind() -> None:
    stranger = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    stranger.check_hostname, stranger.verify_mode = False, ssl.CERT_NONE
    before = open_sockets()
    async with listening() as (port, _), asyncio.timeout(30):
        for _ in range(5):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            await reader.read()
            writer.close()
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=stranger)
            with suppress(OSError):  # the alert, or a reset
                assert await reader.read() == b""
            writer.close()
        silent = await asyncio.open_connection("127.0.0.1", port)
        assert await greeting(port, tls_of("controller", 1).client) == b"verified"
    assert await silent[0].read() == b""  # closed with the listener
    silent[1].close()
    await until(lambda: open_sockets() <= before, "all sockets are closed")


async def test_refused_certificates_are_counted_by_the_reason(tmp_path: Path) -> None:
    """Neither end of a failed handshake may be silent: the other one sees a closed connection."""
    controller, credentials = ServiceIdentity("controller", 1), Credentials(tmp_path)
    other_cluster = load_tls(credentials, controller).client
    credentials = copy_of_this_process(tmp_path / "ours")
    issue_in_the_past(credentials, controller, 3_651)
    expired = load_tls(credentials, controller).client
    nobody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for tls in (other_cluster, nobody):
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    async with listening() as (port, metrics), asyncio.timeout(30):
        for tls, reason in (
            (expired, "certificate refused: certificate has expired"),
            (other_cluster, "certificate refused: "),
            (nobody, "handshake failed: peer did not return a certificate"),
        ):
            with suppress(OSError):  # the alert, or a reset
                assert await greeting(port, tls) == b""
            await until(partial(is_counted, metrics, reason), reason)


def is_counted(metrics: Metrics, reason: str) -> bool:
    return f'reason="{reason}'.encode() in metrics.render()


def copy_of_this_process(directory: Path) -> Credentials:
    """Return credentials with the authority that this process's services trust."""
    tls_of("broker", 1)
    shutil.copytree(new_credentials().directory, directory)
    return Credentials(directory)


async def test_a_process_without_descriptors_accepts_as_soon_as_it_has_some() -> None:
    async with listening() as (port, metrics), asyncio.timeout(30):
        client = socket.socket()
        client.setblocking(False)
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        lowest_free = os.dup(0)
        os.close(lowest_free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, before[1]))
        try:
            await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", port))
            failure = b'reason="Too many open files"'
            await until(lambda: failure in metrics.render(), "no connection can be accepted")
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
            client.close()
        assert await greeting(port, tls_of("controller", 1).client) == b"verified"
