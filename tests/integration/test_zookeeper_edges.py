"""Sessions at the edges: other limits after a restart, silent hosts, servers with lost data."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.security import make_acl
from structlog.testing import capture_logs

from leadline_broker.adapters.zookeeper import ZkBrokerStore
from leadline_broker.domain.state import Addresses, Directories
from leadline_cli.embedded_zookeeper import four_letter_word
from leadline_client.clock import monotonic_s
from leadline_common import znodes
from leadline_common.tcp_ports import LOOPBACK
from leadline_common.zk.connection import BROKEN_BY_REQUEST, CLOSED_AT_ONCE, OLDER_DATA
from leadline_common.zk.connection_record import NO_SESSION, ConnectionRecord, too_large
from leadline_common.zk.errors import ConnectionLoss, MultiFailed, NotConnected, ZkError
from leadline_common.zk.ports import SessionState
from leadline_common.zk.session import ZkSession
from leadline_common.zk.transport import KazooTransport
from tests.support.embedded_zookeeper import EmbeddedZooKeeper
from tests.support.manual_clock import ManualClock
from tests.support.services.zookeeper import until

pytestmark = pytest.mark.slow

LONG_TICK_MS = 10_000
SHORT_TICK_MS = 500


async def test_the_lease_follows_the_timeout_of_the_latest_connection(tmp_path: Path) -> None:
    """A server never grants less than two ticks, and this one has other ticks when it is back."""
    reconnections: list[str] = []
    session = ZkSession(on_reconnected=lambda: reconnections.append("told"))
    with EmbeddedZooKeeper(tmp_path, tick_time_ms=LONG_TICK_MS) as before:
        await session.start(before.hosts, 100)
        assert session.session_timeout_ms == 2 * LONG_TICK_MS
    try:
        with EmbeddedZooKeeper(tmp_path, before.config.port, tick_time_ms=SHORT_TICK_MS):
            await until(lambda: bool(reconnections), "the session is connected again")

            assert session.session_timeout_ms == 2 * SHORT_TICK_MS
            assert session.lease.valid_until_ms <= monotonic_s() * 1000 + 2 * SHORT_TICK_MS
            await until(session.lease_valid, "heartbeats are as frequent as it needs")
    finally:
        await session.close()


class Link:
    """Passes everything on to a server until it is `cut`, which nobody is told."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._cut = False
        self._open: list[asyncio.StreamWriter] = []

    def cut(self) -> None:
        self._cut = True

    def close_connections(self) -> None:
        for writer in self._open:
            writer.close()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self._connected, LOOPBACK, 0)
        try:
            yield f"{LOOPBACK}:{server.sockets[0].getsockname()[1]}"
        finally:
            server.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.append(writer)
        to, back = await asyncio.open_connection(LOOPBACK, self._port)
        try:
            await asyncio.gather(self._pass_on(reader, back), self._pass_on(to, writer))
        finally:
            back.close()
            writer.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            if not self._cut:
                writer.write(data)
        writer.close()


@contextmanager
def full_backlog() -> Iterator[str]:
    """Yield an address that answers no attempt to connect, as behind a firewall."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.2", 0))
        listener.listen(0)
        host, port = listener.getsockname()
        waiting = [socket.socket() for _ in range(3)]
        for each in waiting:
            each.setblocking(False)
            each.connect_ex((host, port))
        try:
            yield f"{host}:{port}"
        finally:
            for each in waiting:
                each.close()


@pytest.mark.parametrize("busy", [False, True])
async def test_a_silent_server_is_left_for_another_within_the_session(
    zookeeper: EmbeddedZooKeeper, *, busy: bool
) -> None:
    states: list[SessionState] = []
    session = ZkSession(on_state=states.append)
    link = Link(zookeeper.config.port)
    async with link.serving() as address:
        await session.start(address, 6_000)
        asking = asyncio.create_task(_ask_all_the_time(session)) if busy else None
        try:
            _use_hosts(session, f"{address},{zookeeper.hosts}")
            link.cut()
            await until(lambda: len(states) >= 2, "the session has left the silent server")
            assert states == [SessionState.SUSPENDED, SessionState.CONNECTED]
        finally:
            if asking is not None:
                asking.cancel()
                await asyncio.gather(asking, return_exceptions=True)
            await session.close()


async def _ask_all_the_time(session: ZkSession) -> None:
    """Send a read at intervals, whether the earlier ones are answered or not."""

    async def ask() -> None:
        with contextlib.suppress(ZkError):
            await session.exists("/")

    async with asyncio.TaskGroup() as asked:
        while True:
            asked.create_task(ask())
            await asyncio.sleep(0.05)


async def test_hosts_that_drop_packets_do_not_cost_a_session(
    zookeeper: EmbeddedZooKeeper,
) -> None:
    """Two are tried before the one that serves, whose connection has just broken."""
    states: list[SessionState] = []
    session = ZkSession(on_state=states.append)
    link = Link(zookeeper.config.port)
    with full_backlog() as silent:
        async with link.serving() as address:
            await session.start(address, 6_000)
            try:
                _use_hosts(session, f"{silent},{silent},{address}")
                link.close_connections()
                await until(lambda: len(states) >= 2, "the session is connected again")
                assert states == [SessionState.SUSPENDED, SessionState.CONNECTED]
            finally:
                await session.close()


def _use_hosts(session: ZkSession, hosts: str) -> None:
    """Let a session know other addresses than that of its first connection, in this order."""
    transport = session._transport
    assert isinstance(transport, KazooTransport)
    transport._client.randomize_hosts = False
    transport._client.set_hosts(hosts)


async def test_it_is_said_which_server_closes_connections_and_why_that_may_be() -> None:
    async def refuse(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(refuse, LOOPBACK, 0)
    address = f"{LOOPBACK}:{server.sockets[0].getsockname()[1]}"
    with capture_logs() as logs, pytest.raises(NotConnected):
        await ZkSession().start(address, 6_000, connect_timeout_ms=500)
    server.close()
    said = [log for log in logs if log["event"] == "no connection to a ZooKeeper server"]
    assert [(log["server"], log["reason"]) for log in said] == [(address, CLOSED_AT_ONCE)]


async def test_a_server_whose_data_was_lost_is_named_and_not_used(tmp_path: Path) -> None:
    """What the service knows is newer than what it would read there, and write."""
    states: list[SessionState] = []
    session = ZkSession(on_state=states.append)
    with EmbeddedZooKeeper(tmp_path / "zookeeper") as server, capture_logs() as logs:
        await session.start(server.hosts, 6_000)
        try:
            for number in range(5):
                await session.create(f"/{number}")
            server.kill()
            shutil.rmtree(server.config.data_dir)
            server.start()
            await until(
                lambda: any(log.get("reason") == OLDER_DATA for log in logs), "the cause is named"
            )
            assert states == [SessionState.SUSPENDED]
        finally:
            await session.close()


async def test_the_next_session_of_a_process_does_not_use_older_data_either(
    tmp_path: Path,
) -> None:
    """It begins without a session, and without one the server would not refuse it."""
    record = ConnectionRecord()

    def session_of_the_process() -> ZkSession:
        return ZkSession(open_transport=partial(KazooTransport, record=record))

    with EmbeddedZooKeeper(tmp_path / "zookeeper") as server:
        before = session_of_the_process()
        await before.start(server.hosts, 6_000)
        for number in range(5):
            await before.create(f"/{number}")
        await before.close()
        assert record.reason() == ""
        server.kill()
        shutil.rmtree(server.config.data_dir)
        server.start()
        starting = asyncio.create_task(session_of_the_process().start(server.hosts, 6_000))
        await until(lambda: OLDER_DATA in record.reason() or starting.done(), "it has tried")
        assert record.no_session() == f"{NO_SESSION}: {server.hosts}: {OLDER_DATA}"
        # Each session that is made by asking would bring the server nearer to being used.
        assert "Zxid: 0x0\n" in four_letter_word(server.config.port, b"srvr")
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)


def _has(items: list[int], count: int) -> bool:
    return len(items) == count


async def test_a_request_that_a_server_finds_too_large_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server closes the connection; whoever sends it again would do so for ever."""
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Djute.maxbuffer=50000")
    record, reconnections = ConnectionRecord(), list[int]()
    session = ZkSession(
        on_reconnected=lambda: reconnections.append(record.large_request),
        open_transport=partial(KazooTransport, record=record),
    )
    with EmbeddedZooKeeper(tmp_path) as server, capture_logs() as logs:
        await session.start(server.hosts, 6_000)
        try:
            await session.create("/a")
            for attempt in (1, 2):
                with pytest.raises(ConnectionLoss):
                    await session.set("/a", bytes(100_000), -1)
                await until(partial(_has, reconnections, attempt), "it is connected again")
            said = [log["reason"] for log in logs if log["event"] == BROKEN_BY_REQUEST]
            size = record.large_request
            assert size > 100_000
            assert reconnections == [0, size], "once may be chance"
            assert said == [too_large(size)]
            assert record.no_session() == f"{NO_SESSION}: {too_large(size)}"
            await session.set("/a", bytes(40_000), -1)
            assert record.large_request == size, "what is smaller proves nothing"
        finally:
            await session.close()


async def test_a_registration_that_an_acl_forbids_is_refused_with_its_reason(
    zk_session: ZkSession, zk_chroot: str
) -> None:
    """Repeated without a pause, it would keep ZooKeeper busy, and nobody would be told."""
    for path in znodes.PERSISTENT_PATHS:
        await zk_session.ensure_path(path)
    await asyncio.to_thread(_make_read_only, zk_chroot, znodes.BROKER_IDS)
    store = ZkBrokerStore(1, zk_chroot, 6_000, ManualClock())
    await store.connect(lambda: None, lambda: None)
    try:
        async with asyncio.timeout(10):
            with pytest.raises(MultiFailed, match=r"NotPermitted /brokers/ids/1: its ACL"):
                await store.register(
                    Addresses("http://127.0.0.1:1"), None, {}, Directories("disk", {})
                )
    finally:
        await store.close()


def _make_read_only(hosts: str, path: str) -> None:
    client = KazooClient(hosts)
    client.start()
    try:
        client.set_acls(path, [make_acl("world", "anyone", read=True)])
    finally:
        client.stop()
        client.close()
