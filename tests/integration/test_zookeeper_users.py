"""Restricting the nodes of a real ZooKeeper to the users of a session."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from leadline_common.zk.credentials import ZkCredentials, digest_of
from leadline_common.zk.errors import NotPermitted
from leadline_common.zk.ops import ANY_VERSION, CreateOp
from leadline_common.zk.restriction import restrict_namespace
from leadline_common.zk.session import ZkSession
from tests.support.embedded_zookeeper import EmbeddedZooKeeper
from tests.support.services.zookeeper import SESSION_TIMEOUT_MS, until

SERVICES = ZkCredentials.of("services:one", digest_of("operator:two"))
OPERATOR = ZkCredentials.of("operator:two")
STRANGER = ZkCredentials.of("stranger:three")
CLOSED = {f"digest:{digest_of('services:one')}": 31, f"digest:{digest_of('operator:two')}": 31}


@asynccontextmanager
async def logged_in(hosts: str, credentials: ZkCredentials | None) -> AsyncIterator[ZkSession]:
    session = ZkSession(credentials=credentials)
    await session.start(hosts, SESSION_TIMEOUT_MS)
    try:
        yield session
    finally:
        await session.close()


async def test_an_open_tree_is_restricted_once(zk_chroot: str, zk_session: ZkSession) -> None:
    paths = ["/brokers", "/brokers/ids", "/brokers/ids/1", "/admin"]
    for path in paths:
        await zk_session.create(path)
    async with logged_in(zk_chroot, SERVICES) as services:
        assert await restrict_namespace(services) == len(paths) + 1
        assert await restrict_namespace(services) == 0
        for path in ["/", *paths]:
            assert await services.acl_users(path) == CLOSED | {"world:anyone": 1}
    for write in (
        zk_session.set("/admin", b"x", ANY_VERSION),
        zk_session.create("/brokers/ids/78", ephemeral=True),
        zk_session.delete("/brokers/ids/1", ANY_VERSION),
        zk_session.create("/more"),
    ):
        with pytest.raises(NotPermitted):
            await write
    assert (await zk_session.get("/admin"))[0] == b""


async def test_a_node_of_somebody_else_does_not_stop_the_restriction(
    zk_chroot: str, zk_session: ZkSession
) -> None:
    """It is left as it is, and all other nodes are restricted."""
    await zk_session.create("/admin")
    async with logged_in(zk_chroot, STRANGER) as stranger:
        await stranger.create("/theirs")
        await stranger.create("/theirs/below")
    async with logged_in(zk_chroot, SERVICES) as services:
        assert await restrict_namespace(services)
        assert await services.acl_users("/admin") == CLOSED | {"world:anyone": 1}
        assert await services.acl_users("/") == CLOSED | {"world:anyone": 1}


async def test_every_way_of_creating_a_node_restricts_it(zk_chroot: str) -> None:
    async with logged_in(zk_chroot, SERVICES) as services:
        await services.create("/one")
        await services.ensure_path("/deep/path")
        await services.create("/ephemeral", ephemeral=True)
        numbered = await services.create("/number-", sequence=True)
        await services.multi([CreateOp("/multi"), CreateOp("/multi/child", ephemeral=True)])
        for path in ("/", "/one", "/deep", "/deep/path", "/ephemeral", numbered, "/multi/child"):
            assert await services.acl_users(path) == CLOSED | {"world:anyone": 1}, path


async def test_the_operator_and_the_services_change_each_others_nodes(zk_chroot: str) -> None:
    async with logged_in(zk_chroot, SERVICES) as services, logged_in(zk_chroot, OPERATOR) as person:
        await services.create("/config")
        await person.set("/config", b"by hand", ANY_VERSION)
        await services.delete("/config", ANY_VERSION)


async def test_a_session_logs_in_again_after_its_connection_broke(tmp_path: Path) -> None:
    with EmbeddedZooKeeper(tmp_path / "zookeeper") as server:
        session = ZkSession(credentials=SERVICES)
        await session.start(server.hosts, 20_000)
        await session.create("/node")
        server.kill()
        await until(lambda: not session.is_connected, "the loss is told")
        server.start()
        await until(lambda: session.is_connected, "the session is back")
        await session.set("/node", b"again", ANY_VERSION)
        await session.close()


async def test_what_zookeeper_keeps_for_itself_is_restricted_as_well(tmp_path: Path) -> None:
    """Nodes below it would fill the server's memory."""
    own = ("/zookeeper", "/zookeeper/quota")
    with EmbeddedZooKeeper(tmp_path / "zookeeper") as server:
        async with logged_in(server.hosts, None) as stranger:
            await stranger.create("/brokers")
            async with logged_in(server.hosts, SERVICES) as services:
                assert await restrict_namespace(services) == len(("/", "/brokers", *own))
                assert await restrict_namespace(services) == 0
            for path in own:
                with pytest.raises(NotPermitted):
                    await stranger.create(f"{path}/big", bytes(100_000))
        server.kill()
        server.start()
        async with logged_in(server.hosts, None) as stranger:
            for path in own:
                with pytest.raises(NotPermitted):
                    await stranger.create(f"{path}/after-a-restart")
            assert "config" in await stranger.get_children("/zookeeper")
