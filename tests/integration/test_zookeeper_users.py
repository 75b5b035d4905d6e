"""Restricting the nodes of a real ZooKeeper to the users of a session."""

from __future__ import annotations

from pathlib import Path

import pytest

from leadline_cli.credentials import credentials_in
from leadline_client.wire import NewTopic
from leadline_common import znodes
from leadline_common.zk.credentials import ZkCredentials, digest_of
from leadline_common.zk.errors import NotPermitted
from leadline_common.zk.node_acls import ANYONE, ROLES, acl_of
from leadline_common.zk.ops import ANY_VERSION, CreateOp
from leadline_common.zk.restriction import apply_acls, restrict_namespace
from leadline_common.zk.session import ZkSession
from tests.support.embedded_zookeeper import EmbeddedZooKeeper
from tests.support.services.cluster import CALM, Cluster
from tests.support.services.zookeeper import until
from tests.support.services.zookeeper_acls import logged_in, set_acl

SERVICES = ZkCredentials.of("services:one", digest_of("operator:two"))
OPERATOR = ZkCredentials.of("operator:two")
STRANGER = ZkCredentials.of("stranger:three")
CLOSED = {f"digest:{digest_of('services:one')}": 31, f"digest:{digest_of('operator:two')}": 31}
LOGINS = {role: f"{role}:password-of-{role}" for role in ("operator", *ROLES)}
DIGESTS = {role: digest_of(login) for role, login in LOGINS.items()}
BY_ROLE = {role: ZkCredentials.of(login, *DIGESTS.values()) for role, login in LOGINS.items()}


async def test_an_open_tree_is_restricted_once(zk_chroot: str, zk_session: ZkSession) -> None:
    paths = ["/brokers", "/brokers/ids", "/brokers/ids/1", "/admin"]
    for path in paths:
        await zk_session.create(path)
    async with logged_in(zk_chroot, SERVICES) as services:
        assert await restrict_namespace(services) == len(paths) + 1
        assert await restrict_namespace(services) == 0
        for path in ["/", *paths]:
            assert await services.acl_users(path) == CLOSED
    for write in (
        zk_session.set("/admin", b"x", ANY_VERSION),
        zk_session.create("/brokers/ids/78", ephemeral=True),
        zk_session.delete("/brokers/ids/1", ANY_VERSION),
        zk_session.create("/more"),
        zk_session.get("/admin"),
        zk_session.get_children("/"),
        zk_session.acl_users("/brokers"),
    ):
        with pytest.raises(NotPermitted):
            await write


async def test_nodes_that_strangers_could_read_are_closed(zk_chroot: str) -> None:
    """As those of the release before, whose services keep their user."""
    async with logged_in(zk_chroot, SERVICES) as services:
        await services.ensure_path("/admin")
        for path in ("/", "/admin"):
            await set_acl(services, path, CLOSED | {ANYONE: 1})
        assert await restrict_namespace(services) == len(("/", "/admin"))
        for path in ("/", "/admin"):
            assert await services.acl_users(path) == CLOSED


async def test_a_role_without_the_right_to_restrict_changes_nothing(zk_chroot: str) -> None:
    before = CLOSED | {ANYONE: 1}
    async with logged_in(zk_chroot, SERVICES) as services:
        await set_acl(services, "/", before)
        async with logged_in(zk_chroot, BY_ROLE["controller"]) as controller:
            assert await restrict_namespace(controller) == 0
        assert await services.acl_users("/") == before


async def test_users_are_replaced_step_by_step_and_a_dry_run_changes_nothing(
    zk_chroot: str,
) -> None:
    """One user for all services, then both, then the roles; an interrupted run is repeated."""
    shared = digest_of("services:one")
    both = ZkCredentials.of(LOGINS["operator"], *DIGESTS.values(), shared)
    old = ZkCredentials.of("services:one", DIGESTS["operator"])
    async with logged_in(zk_chroot, old) as services, logged_in(zk_chroot, both) as operator:
        await restrict_namespace(services)
        for path in znodes.PERSISTENT_PATHS:
            await services.ensure_path(path)
        everything = len(znodes.PERSISTENT_PATHS) + 1
        would = await apply_acls(operator, dry_run=True)
        assert (would.changed, would.unchanged) == (everything, 0)
        async with logged_in(zk_chroot, BY_ROLE["controller"]) as controller:
            with pytest.raises(NotPermitted):
                await controller.get(znodes.TOPICS)
            await operator.restrict(znodes.TOPICS)  # Then the run was interrupted.
            done = await apply_acls(operator)
            assert (done.changed, done.unchanged) == (everything - 1, 1)
            await controller.create(znodes.topic_path("t"))
            await services.delete(znodes.topic_path("t"), ANY_VERSION)
            async with logged_in(zk_chroot, BY_ROLE["operator"]) as last:
                assert (await apply_acls(last)).changed == everything
                assert (await apply_acls(last)).changed == 0
            with pytest.raises(NotPermitted):
                await services.get(znodes.TOPICS)
            await controller.create(znodes.topic_path("t"))


async def test_all_nodes_can_be_opened_again(zk_chroot: str, zk_session: ZkSession) -> None:
    opened = ZkCredentials.of(LOGINS["operator"], *DIGESTS.values(), ANYONE)
    await zk_session.create("/brokers")
    async with logged_in(zk_chroot, BY_ROLE["operator"]) as operator:
        assert await restrict_namespace(operator)
        with pytest.raises(NotPermitted):
            await zk_session.get("/brokers")
    async with logged_in(zk_chroot, opened) as operator:
        assert (await apply_acls(operator)).changed == len(("/", "/brokers"))
    await zk_session.set("/brokers", b"x", ANY_VERSION)


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
        assert await services.acl_users("/admin") == CLOSED
        assert await services.acl_users("/") == CLOSED


async def test_every_way_of_creating_a_node_restricts_it(zk_chroot: str) -> None:
    async with logged_in(zk_chroot, SERVICES) as services:
        await services.create("/one")
        await services.ensure_path("/deep/path")
        await services.create("/ephemeral", ephemeral=True)
        numbered = await services.create("/number-", sequence=True)
        await services.multi([CreateOp("/multi"), CreateOp("/multi/child", ephemeral=True)])
        for path in ("/", "/one", "/deep", "/deep/path", "/ephemeral", numbered, "/multi/child"):
            assert await services.acl_users(path) == CLOSED, path


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
                with pytest.raises(NotPermitted):
                    await stranger.get_children(path)


async def test_a_path_is_made_below_nodes_of_others(zk_chroot: str) -> None:
    """ZooKeeper refuses the creation of a node that exists, too, if its parent is another's."""
    async with logged_in(zk_chroot, BY_ROLE["operator"]) as operator:
        await restrict_namespace(operator)
        await operator.ensure_path(znodes.BROKER_EPOCHS)
    async with logged_in(zk_chroot, BY_ROLE["broker"]) as broker:
        await broker.ensure_path(znodes.broker_epoch_path(1))
        assert await broker.exists(znodes.broker_epoch_path(1))
        with pytest.raises(NotPermitted):
            await broker.ensure_path("/brokers/others")


async def test_a_cluster_of_an_earlier_release_goes_on_with_a_user_for_each_kind(
    zk_chroot: str, tmp_path: Path
) -> None:
    """Its services shared a user, and everybody could read; the operator keeps the password."""
    credentials = credentials_in(tmp_path)
    credentials.directory.mkdir()
    credentials.zookeeper_operator.write_text("operator:two\n")
    credentials.zookeeper_services.write_text(f"services:one\n{digest_of('operator:two')}\n")
    async with logged_in(zk_chroot, SERVICES) as services:
        for path in znodes.PERSISTENT_PATHS:
            await services.ensure_path(path)
        await services.create(znodes.CLUSTER_ID, b"an-earlier-cluster")
        for path in ("/", *znodes.PERSISTENT_PATHS, znodes.CLUSTER_ID):
            await set_acl(services, path, CLOSED | {ANYONE: 1})
        async with Cluster(
            tmp_path, brokers=1, coordinators=1, zookeeper=zk_chroot, settings=CALM
        ) as cluster:
            await cluster.client.create_topic(NewTopic("t", 1, 1))
            assert (await cluster.client.metadata()).cluster_id == "an-earlier-cluster"
            assert not credentials.zookeeper_services.exists()
            async with cluster.zookeeper() as operator:
                users = credentials.zookeeper_administrator().users
                for path in ("/", znodes.TOPICS, znodes.CLUSTER_ID, znodes.topic_path("t")):
                    assert await operator.acl_users(path) == acl_of(path, users)
        with pytest.raises(NotPermitted):
            await services.get(znodes.TOPICS)
