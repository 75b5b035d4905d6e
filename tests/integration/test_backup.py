"""`leadline cluster backup` of the nodes of a real ZooKeeper, and of histories."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import sys
import tarfile
import tempfile
import textwrap
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

from leadline_broker.adapters.log.directory import LogDirectory
from leadline_cli.backup.archive import NODES, Node, decode_nodes
from leadline_cli.backup.nodes import read_nodes
from leadline_cli.backup.restoring import Sources, prepare_restore
from leadline_cli.backup.writing import NotEmpty
from leadline_cli.credentials import credentials_in
from leadline_cli.main import app
from leadline_common import znodes
from leadline_common.cluster_id import RESTORING, UnfinishedRestore
from leadline_common.zk.credentials import ZkCredentials
from leadline_common.zk.errors import NotPermitted
from leadline_common.zk.ops import ANY_VERSION, CreateOp
from leadline_common.zk.session import ZkSession
from leadline_controller.adapters.history.database import open_database
from leadline_controller.adapters.zk_store import ControllerZkStore
from tests.support.faults.zk_proxy import CrashPoints
from tests.support.services.zookeeper import SESSION_TIMEOUT_MS

pytestmark = pytest.mark.slow

OPERATOR = "operator:top-secret"


async def write_cluster(session: ZkSession) -> None:
    for path, data in {"/cluster": b"", "/cluster/id": b"a-cluster", "/brokers": b""}.items():
        await session.create(path, data)
    await session.set("/cluster/id", b"a-cluster", 0)
    await session.multi([CreateOp("/brokers/1", b"here", ephemeral=True)])


def names_in(directory: Path) -> set[str]:
    return {one.name for one in directory.iterdir()}


class Ended(NamedTuple):
    exit_code: int
    output: str


async def in_a_thread(*words: object) -> Ended:
    """Run the command beside this loop, which keeps a session of its own alive."""

    def run() -> Ended:
        result = CliRunner().invoke(app, [str(word) for word in words])
        return Ended(result.exit_code, result.output)

    return await asyncio.to_thread(run)


async def test_persistent_nodes_and_histories_are_copied_with_the_operators_login(
    zk_chroot: str, tmp_path: Path
) -> None:
    credentials = credentials_in(tmp_path)
    credentials.directory.mkdir()
    credentials.zookeeper_operator.write_text(f"{OPERATOR}\n")
    history, backup = tmp_path / "history.db", tmp_path / "cluster.backup"
    open_database(f"sqlite:///{history}").dispose()
    with closing(sqlite3.connect(history)) as rows:
        rows.execute("PRAGMA journal_mode=DELETE")  # Readers leave no files beside it then.
    session = ZkSession(credentials=ZkCredentials.of(OPERATOR))
    await session.start(zk_chroot, SESSION_TIMEOUT_MS)
    try:
        await write_cluster(session)
        ended = await in_a_thread("cluster", "backup", backup, "--zookeeper", zk_chroot)
        assert ended.exit_code == 1, "strangers may not read the nodes"
        assert not backup.exists()
        options = ("--credentials", credentials.zookeeper_operator, "--history", history)
        ended = await in_a_thread("cluster", "backup", backup, "--zookeeper", zk_chroot, *options)
    finally:
        await session.close()
    assert (ended.exit_code, "top-secret" in ended.output) == (0, False), ended.output
    with tarfile.open(backup) as tar:
        content = tar.extractfile(NODES)
        assert content is not None
        assert decode_nodes(content.read()) == [
            Node("/brokers", b"", 0),
            Node("/cluster", b"", 0),
            Node("/cluster/id", b"a-cluster", 1),
        ]
    ended = await in_a_thread("cluster", "backup", backup, "--check")
    assert "a-cluster" in ended.output, ended.output
    assert "3 nodes, 1 history" in ended.output
    assert names_in(tmp_path) == {"cluster.backup", "credentials", "history.db"}


async def test_a_database_of_another_program_is_refused_before_it_is_too_late(
    zk_chroot: str, zk_session: ZkSession, tmp_path: Path
) -> None:
    """The backup was whole, as `--check` said, and no restore took it."""
    await write_cluster(zk_session)
    other, backup = tmp_path / "other.db", tmp_path / "cluster.backup"
    with closing(sqlite3.connect(other)) as rows:
        rows.execute("CREATE TABLE something (id)")
    words = ("cluster", "backup", backup, "--zookeeper", zk_chroot, "--history", other)
    ended = await in_a_thread(*words)
    assert (ended.exit_code, backup.exists()) == (1, False), ended.output
    assert f"{other} is no controller's history" in ended.output


async def test_a_root_without_a_cluster_is_refused(zk_chroot: str, tmp_path: Path) -> None:
    backup = tmp_path / "cluster.backup"
    ended = await in_a_thread("cluster", "backup", backup, "--zookeeper", zk_chroot)
    assert (ended.exit_code, backup.exists()) == (1, False)
    assert "no cluster was ever started there" in ended.output


async def test_a_node_that_vanishes_meanwhile_is_left_out_with_what_is_below(
    zk_session: ZkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in ("/kept", "/gone", "/gone/below"):
        await zk_session.create(path)
    read: Callable[..., Any] = zk_session.get_many

    async def read_after_a_deletion(paths: list[str]) -> Any:
        for path in ("/gone/below", "/gone"):
            if await zk_session.exists(path):
                await zk_session.delete(path, ANY_VERSION)
        return await read(paths)

    monkeypatch.setattr(zk_session, "get_many", read_after_a_deletion)
    assert await read_nodes(zk_session) == [Node("/kept", b"", 0)]


async def test_a_node_that_may_not_be_read_ends_the_backup(
    zk_chroot: str, zk_session: ZkSession
) -> None:
    owner = ZkSession(credentials=ZkCredentials.of(OPERATOR))
    await owner.start(zk_chroot, SESSION_TIMEOUT_MS)
    try:
        await owner.create("/closed")
    finally:
        await owner.close()
    with pytest.raises(NotPermitted):
        await read_nodes(zk_session)


class Empty(NamedTuple):
    """An archive of a cluster without topics, and the log directory of its only broker."""

    backup: Path
    logs: Path

    def words(self, zookeeper: str) -> tuple[object, ...]:
        return ("cluster", "restore", self.backup, "--zookeeper", zookeeper, "--logs", self.logs)


@pytest.fixture
async def empty(zk_chroot: str, zk_session: ZkSession, tmp_path: Path) -> Empty:
    """Back up a small cluster, and lose it."""
    await write_cluster(zk_session)
    directory = LogDirectory(tmp_path / "logs", cluster_id="a-cluster", broker_id=1)
    directory.release()
    backup = tmp_path / "cluster.backup"
    ended = await in_a_thread("cluster", "backup", backup, "--zookeeper", zk_chroot)
    assert ended.exit_code == 0, ended.output
    for path in ("/brokers/1", "/brokers", "/cluster/id", "/cluster"):
        await zk_session.delete(path, ANY_VERSION)
    return Empty(backup, directory.root)


async def test_an_interrupted_restore_is_begun_again(
    empty: Empty, zk_chroot: str, zk_session: ZkSession
) -> None:
    await zk_session.create(RESTORING)
    await zk_session.create("/brokers")
    await zk_session.create("/brokers/left-over")
    ended = await in_a_thread(*empty.words(zk_chroot))
    assert ended.exit_code == 0, ended.output
    assert await zk_session.exists(RESTORING) is None
    assert await zk_session.exists("/brokers/left-over") is None
    assert (await zk_session.get("/cluster/id"))[0] == b"a-cluster"
    _, incarnation = await zk_session.get("/brokers/epochs/1")
    assert incarnation.version >= 1_000


async def test_only_an_empty_zookeeper_is_written_to(
    empty: Empty, zk_chroot: str, zk_session: ZkSession
) -> None:
    await zk_session.create("/cluster")
    ended = await in_a_thread(*empty.words(zk_chroot))
    assert (ended.exit_code, "(cluster)" in ended.output) == (1, True), ended.output
    await zk_session.create(RESTORING)
    await zk_session.multi([CreateOp("/controller", ephemeral=True)])
    ended = await in_a_thread(*empty.words(zk_chroot))
    assert (ended.exit_code, "stop all services" in ended.output) == (1, True), ended.output
    assert await zk_session.exists("/cluster") is not None


async def test_a_restore_that_is_repeated_says_that_nothing_is_left_to_do(
    empty: Empty, zk_chroot: str
) -> None:
    words = empty.words(zk_chroot)
    assert (await in_a_thread(*words)).exit_code == 0
    ended = await in_a_thread(*words)
    assert (ended.exit_code, "has this cluster already" in ended.output) == (1, True), ended.output


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_restore_that_loses_its_connection_has_an_unknown_outcome(
    empty: Empty, zk_chroot: str, zk_session: ZkSession, after: bool
) -> None:
    """It ended with 1, after which a script may take it that nothing happened."""
    server, _, chroot = zk_chroot.partition("/")

    async def leave_alone() -> None:
        """End nothing: after this the proxy closes the connection."""

    proxy = CrashPoints(server, [znodes.CLUSTER_ID.encode()], leave_alone)
    proxy.arm(1, after=after)
    async with proxy.serving() as address:
        ended = await in_a_thread(*empty.words(f"{address}/{chroot}"))
    assert (ended.exit_code, "run the same command again" in ended.output) == (3, True)
    assert (await zk_session.exists(znodes.CLUSTER_ID) is not None) is after
    again = await in_a_thread(*empty.words(zk_chroot))
    assert again.exit_code == (1 if after else 0), again.output


async def test_a_restore_that_is_refused_puts_no_history_back(
    empty: Empty, zk_chroot: str, zk_session: ZkSession, tmp_path: Path
) -> None:
    await zk_session.create("/cluster")
    copy, place = tmp_path / "copy.db", tmp_path / "controller-1" / "history.db"
    copy.write_bytes(b"as of the backup")
    decided = prepare_restore(Sources(empty.backup, [empty.logs]), tmp_path)
    prepared = replace(decided, missing_histories={place: copy})
    with pytest.raises(NotEmpty):
        await asyncio.to_thread(prepared.write, zk_chroot, None)
    assert not place.exists()
    await zk_session.delete("/cluster", ANY_VERSION)
    await asyncio.to_thread(prepared.write, zk_chroot, None)
    assert place.read_bytes() == b"as of the backup"


async def test_what_a_killed_restore_has_unpacked_is_removed_by_the_next(
    empty: Empty, zk_chroot: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It kept a copy of each history, with the names of all users, in the system's directory."""
    unpacked = tmp_path / "unpacked"
    unpacked.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(unpacked))
    killed = textwrap.dedent("""\
        import os, signal
        from leadline_cli.backup import restoring
        from leadline_cli.main import app
        restoring.restored_nodes = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        app()
    """)
    words = map(str, empty.words(zk_chroot))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", killed, *words, env=os.environ | {"TMPDIR": str(unpacked)}
    )
    assert await process.wait() == -signal.SIGKILL
    assert names_in(unpacked)
    assert (await in_a_thread(*empty.words(zk_chroot))).exit_code == 0
    assert not names_in(unpacked)


async def test_a_controller_makes_no_cluster_of_a_part(
    zk_chroot: str, zk_session: ZkSession
) -> None:
    await zk_session.create(RESTORING)
    store = ControllerZkStore()
    await store.start(zk_chroot, SESSION_TIMEOUT_MS)
    try:
        with pytest.raises(UnfinishedRestore):
            await store.prepare("another-cluster")
    finally:
        await store.close()
    assert await zk_session.get_children("/") == [RESTORING.removeprefix("/")]
