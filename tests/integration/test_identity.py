"""What strangers, and services that lie about who they are, get from a real cluster: nothing."""

from __future__ import annotations

import asyncio
import ssl
import stat
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
import msgspec
import pytest
import pytest_asyncio

from leadline_cli.credentials import Credentials
from leadline_client import batches
from leadline_client.payloads import OutgoingRecord
from leadline_client.wire import NewTopic
from leadline_common import rpc, staged_copies, znodes
from leadline_common.http.handshakes import MAX_HANDSHAKES
from leadline_common.identity import KINDS, Kind, ServiceIdentity
from leadline_common.zk.credentials import digest_of, read_credentials
from leadline_common.zk.errors import NoNode, NotPermitted
from leadline_common.zk.node_acls import ANYONE, acl_of, pattern_of
from leadline_common.zk.ops import ANY_VERSION
from leadline_common.zk.session import ZkSession
from tests.support.bad_input.requests import batch, leader_and_isr, stop_replica
from tests.support.bad_input.table import JSON, MSGPACK, OCTETS
from tests.support.checks.zk_history import read_cluster
from tests.support.faults.scenario import running_cluster
from tests.support.services.cluster import CALM, Cluster, wait_until
from tests.support.services.identities import issue_in_the_past, load_tls

pytestmark = pytest.mark.asyncio(loop_scope="module")

OF_BROKERS = (
    rpc.LEADER_AND_ISR_PATH,
    rpc.STOP_REPLICA_PATH,
    rpc.UPDATE_METADATA_PATH,
    rpc.REPLICA_FETCH_PATH,
    staged_copies.KEEP_STAGED_PATH,
    staged_copies.DROP_STAGED_PATH,
    staged_copies.READ_STAGED_PATH,
)
OF_CONTROLLERS = (rpc.HEARTBEAT_PATH, rpc.CONTROLLED_SHUTDOWN_PATH)
HUGE_EPOCH = 2**31


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def cluster() -> AsyncIterator[Cluster]:
    async with running_cluster(controllers=2, coordinators=1, settings=CALM) as running:
        topic = NewTopic("t", replica_assignment={0: (1, 2, 3)})
        await running.client.create_topic(topic)
        await running.in_sync("t", 3)
        yield running


async def active_identity(cluster: Cluster) -> ServiceIdentity:
    return ServiceIdentity("controller", int((await cluster.active_controller())[-1]))


async def still_works(cluster: Cluster) -> None:
    """Check that the same controller leads, all replicas are in sync, and acks=all works."""
    view = await read_cluster(cluster)
    assert view.controller_epoch == 1
    await cluster.in_sync("t", 3)
    await cluster.client.produce_batches("t", 0, batch(), idempotent=False)


async def everything_below(session: ZkSession, path: str) -> list[str]:
    """Return a path and all below it, without ZooKeeper's own nodes and those of others."""
    below = [f"{path.rstrip('/')}/{name}" for name in await session.get_children(path)]
    found = [await everything_below(session, child) for child in below if child != "/zookeeper"]
    return [path, *(one for paths in found for one in paths)]


@pytest.mark.parametrize("suffix", ["", "%0A"])
@pytest.mark.parametrize(
    ("service", "path"),
    [("broker-2", path) for path in OF_BROKERS] + [("controller-1", p) for p in OF_CONTROLLERS],
)
async def test_the_public_listener_has_no_route_of_services(
    cluster: Cluster, service: str, path: str, suffix: str
) -> None:
    kind = MSGPACK if path == rpc.REPLICA_FETCH_PATH or "staged" in path else JSON
    answer = await cluster.post(service, path + suffix, content=b"{}", headers=kind)
    assert (answer.status_code, answer.json()["outcome"]) == (404, "refused")


async def test_the_internal_listener_has_no_route_of_clients(cluster: Cluster) -> None:
    broker = ServiceIdentity("broker", 1)
    url = cluster.internal_url("broker-2")
    extensions = {"sni_hostname": ServiceIdentity("broker", 2).host_name}
    tls = load_tls(cluster.credentials, broker).client
    async with httpx.AsyncClient(trust_env=False, verify=tls) as http:
        metadata = await http.get(f"{url}/v1/metadata", extensions=extensions)
        document = await http.get(f"{url}/openapi.json", extensions=extensions)
        health = await http.get(f"{url}/healthz", extensions=extensions)
    assert [metadata.status_code, document.status_code, health.status_code] == [404, 404, 200]


@pytest.mark.parametrize("service", ["broker-2", "controller"])
async def test_nobody_without_the_clusters_certificate_is_served(
    cluster: Cluster, tmp_path: Path, service: str
) -> None:
    name = await cluster.active_controller() if service == "controller" else service
    url = cluster.internal_url(name)
    nobody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    nobody.check_hostname = False
    nobody.verify_mode = ssl.CERT_NONE
    # Another cluster's authority has signed for the same name.
    stranger = load_tls(Credentials(tmp_path), ServiceIdentity("controller", 1)).client
    stranger.check_hostname = False
    stranger.verify_mode = ssl.CERT_NONE
    for tls in (nobody, stranger):
        async with httpx.AsyncClient(trust_env=False, verify=tls) as http:
            with pytest.raises(httpx.HTTPError):
                await http.get(f"{url}/healthz")
    async with httpx.AsyncClient(trust_env=False) as http:
        with pytest.raises(httpx.HTTPError):
            await http.get(url.replace("https", "http") + "/healthz")


@pytest.mark.parametrize("kind", ["broker", "controller"])
async def test_a_service_with_an_expired_certificate_does_not_start(
    tmp_path: Path, kind: Kind
) -> None:
    service, credentials = ServiceIdentity(kind, 1), Credentials(tmp_path)
    issue_in_the_past(credentials, service, 3_651)
    settings = {f"{kind}.id": "1", "zookeeper.connect": "127.0.0.1:1"}
    settings |= {"log.dir": str(tmp_path / "log")} if kind == "broker" else {}
    pairs = [
        f"{name}={value}" for name, value in (settings | credentials.settings_of(service)).items()
    ]
    command = [sys.executable, "-m", "leadline_cli.service", kind]
    command += [word for pair in pairs for word in ("--set", pair)]

    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    _, said = await asyncio.wait_for(process.communicate(), 60)

    assert process.returncode == 2
    assert f"{kind}-1.pem expired at " in said.decode().splitlines()[-1]


async def test_connections_without_identity_keep_no_service_away(cluster: Cluster) -> None:
    """More than may be in their handshake, none of which sends anything."""
    url = urlsplit(cluster.internal_url("broker-2"))
    strangers = [
        await asyncio.open_connection(url.hostname, url.port) for _ in range(MAX_HANDSHAKES + 20)
    ]
    try:
        answer = await cluster.post_internally(
            "broker-2",
            rpc.REPLICA_FETCH_PATH,
            caller=ServiceIdentity("broker", 1),
            content=b"",
            headers=MSGPACK,
        )
        async with asyncio.timeout(20):  # the first ones were ended for the last ones
            ended = [await reader.read() for reader, _ in strangers[:20]]
    finally:
        for _, writer in strangers:
            writer.close()
    assert (answer.status_code, ended) == (400, [b""] * 20)
    await still_works(cluster)


async def test_no_service_speaks_as_another(cluster: Cluster) -> None:
    """Broker 2 forges a fetch, a heartbeat and a shutdown of broker 3, and a grant."""
    second = ServiceIdentity("broker", 2)
    controller = str(await active_identity(cluster)).replace(" ", "-")
    view = await read_cluster(cluster)
    incarnation = view.brokers[3].incarnation
    fetch = rpc.ReplicaFetchRequest(3, incarnation, 1, 1, 0, 1, 1, [], [])
    beat = rpc.HeartbeatRequest(3, incarnation, 1, True, 0, 0, 0)
    stopping = rpc.ControlledShutdownRequest(3, incarnation, "forged")
    forged = [
        ("broker-1", rpc.REPLICA_FETCH_PATH, msgspec.msgpack.encode(fetch), MSGPACK),
        (controller, rpc.HEARTBEAT_PATH, msgspec.json.encode(beat), JSON),
        (controller, rpc.CONTROLLED_SHUTDOWN_PATH, msgspec.json.encode(stopping), JSON),
        ("broker-3", rpc.LEADER_AND_ISR_PATH, leader_and_isr(broker_id=3), JSON),
        ("broker-3", rpc.STOP_REPLICA_PATH, stop_replica(broker_id=3), JSON),
    ]
    for service, path, content, headers in forged:
        answer = await cluster.post_internally(
            service, path, caller=second, content=content, headers=headers
        )
        assert (answer.status_code, answer.json()["error_code"]) == (403, 40350), answer.text
    await still_works(cluster)


async def test_a_broker_obeys_only_the_controller_and_epoch_of_zookeeper(cluster: Cluster) -> None:
    active = await active_identity(cluster)
    standby = ServiceIdentity("controller", 3 - active.id)
    incarnation = (await read_cluster(cluster)).brokers[2].incarnation
    commands = [
        (active, HUGE_EPOCH, 40991),
        (active, 2, 40991),
        (standby, 1, 40953),
        (standby, HUGE_EPOCH, 40991),
        (active, 0, 40953),
    ]
    for caller, epoch, code in commands:
        identity = {
            "controller_id": caller.id,
            "controller_epoch": epoch,
            "incarnation": incarnation,
        }
        for path, content in (
            (rpc.STOP_REPLICA_PATH, stop_replica(**identity)),
            (rpc.LEADER_AND_ISR_PATH, leader_and_isr(**identity, is_init=False)),
        ):
            answer = await cluster.post_internally(
                "broker-2", path, caller=caller, content=content, headers=JSON
            )
            assert answer.json()["error_code"] == code, answer.text
    await still_works(cluster)


async def test_invented_producer_ids_fill_no_memory(cluster: Cluster) -> None:
    """New ones are refused beyond the limit, while known ones and plain batches are accepted."""
    controller, leader = await cluster.active_controller(), await cluster.leader_of("t", 0)
    inventions = count(9_000)

    async def change(**changes: Any) -> None:
        answer = await cluster.request("PATCH", controller, "/v1/configs", json=changes)
        assert answer.status_code == 200, answer.text

    async def write(producer: int, sequence: int = 0) -> int:
        content = batches.encode(
            [OutgoingRecord(b"v")],
            now_ms=1,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=sequence,
        )
        path = "/v1/topics/t/partitions/0/records"
        answer = await cluster.post(leader, path, content=content, headers=OCTETS)
        return 0 if answer.status_code == 200 else int(answer.json()["error_code"])

    async def new_one_gets(code: int) -> bool:
        return await write(next(inventions)) == code

    known = next(inventions)
    assert await write(known) == 0
    await change(set={"producer.ids.max": "1"})
    await wait_until(lambda: new_one_gets(50367), "the limit is in force")
    assert await write(known, sequence=1) == 0
    await still_works(cluster)
    await change(remove=["producer.ids.max"])
    await wait_until(lambda: new_one_gets(0), "the limit is lifted")


@pytest.mark.parametrize(
    ("topic", "topic_id"),
    [("../../escaped", "f" * 32), ("escaped", "../../escaped"), ("", "f" * 32), ("a/b", "f" * 32)],
)
async def test_a_grant_names_no_path(cluster: Cluster, topic: str, topic_id: str) -> None:
    active = await active_identity(cluster)
    view = await read_cluster(cluster)
    content = leader_and_isr(
        controller_id=active.id,
        controller_epoch=view.controller_epoch,
        incarnation=view.brokers[2].incarnation,
        is_init=False,
        topics=[[topic, topic_id, {}, [[0, 2, 0, [2], [2], 0]]]],
        sequence=1_000_000,
    )
    answer = await cluster.post_internally(
        "broker-2", rpc.LEADER_AND_ISR_PATH, caller=active, content=content, headers=JSON
    )
    assert answer.json()["codes"] == [[40050]], answer.text
    assert not [path for path in cluster.data_dir.rglob("*escaped*") if path.is_dir()]
    assert not list(cluster.data_dir.parent.glob("escaped*"))


async def test_an_anonymous_client_of_zookeeper_reads_and_changes_nothing(
    cluster: Cluster,
) -> None:
    stranger = znodes.BrokerRegistration(78, "127.0.0.1", 1, "http://127.0.0.1:1", None, 1)
    state = znodes.state_path("t", 0)
    async with cluster.zookeeper(as_operator=False) as nobody:
        for write in (
            nobody.create(znodes.broker_id_path(78), znodes.encode_value(stranger), ephemeral=True),
            nobody.create("/controller_epoch2"),
            nobody.create(f"{znodes.TOPICS}/stranger"),
            nobody.set(znodes.CONTROLLER_EPOCH, b"2147483648", ANY_VERSION),
            nobody.set(state, b"{}", ANY_VERSION),
            nobody.delete(znodes.CONTROLLER, ANY_VERSION),
            nobody.delete(znodes.broker_id_path(1), ANY_VERSION),
        ):
            with pytest.raises(NotPermitted):
                await write
        async with cluster.zookeeper() as operator:
            everywhere = await everything_below(operator, "/")
        for path in everywhere:
            for read in (nobody.get(path), nobody.get_children(path), nobody.acl_users(path)):
                with pytest.raises(NotPermitted):
                    await read
    assert {state, znodes.CONTROLLER, znodes.broker_id_path(1)} < set(everywhere)
    await still_works(cluster)


async def test_every_node_of_a_running_cluster_has_its_acl(cluster: Cluster) -> None:
    await cluster.client.produce_batches("t", 0, batch(), idempotent=False)
    row = {"topic": "t", "partition": 0, "offset": 0}
    answer = await cluster.post("broker-1", "/v1/groups/g/offsets", json={"offsets": [row]})
    assert answer.status_code == httpx.codes.OK, answer.text
    async with cluster.zookeeper() as operator:
        everywhere = await everything_below(operator, "/")
        users = cluster.credentials.zookeeper_administrator().users
        for path in everywhere:
            with suppress(NoNode):  # An audit entry may have been trimmed.
                assert await operator.acl_users(path) == acl_of(path, users), path
    found = {pattern_of(path) for path in everywhere}
    assert not [path for path in everywhere if pattern_of(path) is None]
    assert {"/admin/audit/*", "/brokers/epochs/*", "/consumers/**"} < found


FORBIDDEN: Final[Mapping[Kind, Sequence[tuple[str, str]]]] = {
    "broker": [
        ("set", znodes.CONTROLLER_EPOCH),
        ("set", znodes.topic_path("t")),
        ("set", znodes.CLUSTER_ID),
        ("set", znodes.AUDIT),
        ("delete", znodes.CONTROLLER),
        ("delete", znodes.topic_path("t")),
        ("delete", znodes.broker_epoch_path(1)),
        ("delete", znodes.audit_path(0)),
        ("create", "/consumers/groups/x"),
        ("create", f"{znodes.DELETE_TOPICS}/t"),
        ("create", "/security/users/mallory"),
        ("create", "/mallory"),
        ("restrict", znodes.state_path("t", 0)),
    ],
    "coordinator": [
        ("set", znodes.CONTROLLER_EPOCH),
        ("set", znodes.state_path("t", 0)),
        ("create", znodes.topic_path("x")),
        ("create", f"{znodes.DELETE_TOPICS}/t"),
        ("create", znodes.broker_id_path(78)),
        ("create", znodes.topic_config_path("x")),
        ("create", "/security/users/mallory"),
        ("delete", znodes.broker_id_path(1)),
        ("delete", znodes.audit_path(0)),
        ("restrict", "/consumers"),
    ],
    "controller": [
        ("set", "/consumers/coordinator_epoch"),
        ("set", znodes.broker_epoch_path(1)),
        ("set", znodes.audit_path(0)),
        ("create", "/consumers/groups/x"),
        ("create", znodes.broker_id_path(78)),
        ("delete", znodes.broker_id_path(1)),
        ("restrict", "/"),
    ],
}
"""What a service that an attacker has taken over might want to do with ZooKeeper."""


@pytest.mark.parametrize("kind", FORBIDDEN)
async def test_a_role_cannot_write_what_belongs_to_others(cluster: Cluster, kind: Kind) -> None:
    async with cluster.zookeeper() as operator:
        await operator.ensure_path("/security/users")
    user = read_credentials(cluster.credentials.zookeeper_user(kind))
    async with cluster.zookeeper_as(user) as session:
        for what, path in FORBIDDEN[kind]:
            with pytest.raises(NotPermitted):
                await attempt(session, what, path)
    await still_works(cluster)


async def attempt(session: ZkSession, what: str, path: str) -> None:
    match what:
        case "set":
            await session.set(path, b"mallory", ANY_VERSION)
        case "create":
            await session.create(path, b"mallory")
        case "delete":
            await session.delete(path, ANY_VERSION)
        case "restrict":
            await session.restrict(path)


async def test_users_are_replaced_under_load_without_a_failed_produce(
    cluster: Cluster, tmp_path: Path
) -> None:
    """A second password of every role is let in and shut out again; then all is opened and shut."""
    own = cluster.credentials.zookeeper_operator.read_text().split()
    extra = [digest_of(f"{kind}:another") for kind in KINDS]
    done = asyncio.Event()

    async def produce() -> int:
        count = 0
        while not done.is_set():
            await cluster.client.produce_batches("t", 0, batch(), idempotent=False)
            count += 1
        return count

    async def restrict(*lines: str) -> None:
        file = tmp_path / "users"
        file.write_text("\n".join(lines))
        arguments = ["credentials", "restrict", "--zookeeper", cluster.file.zookeeper]
        command = (sys.executable, "-m", "leadline_cli", *arguments, "--file", str(file))
        process = await asyncio.create_subprocess_exec(*command)
        assert await process.wait() == 0

    async def users_of(path: str) -> set[str]:
        async with cluster.zookeeper() as operator:
            return set(await operator.acl_users(path))

    load = asyncio.create_task(produce())
    await restrict(*own, *extra)
    assert {f"digest:{user}" for user in extra} < await users_of(znodes.state_path("t", 0))
    await restrict(*own, ANYONE)
    async with cluster.zookeeper(as_operator=False) as anyone:
        await anyone.get(znodes.TOPICS)
        await restrict(*own)
        with pytest.raises(NotPermitted):
            await anyone.get(znodes.TOPICS)
    done.set()
    assert await load > 0
    assert len(await users_of("/")) == len({*KINDS, "operator"})
    await still_works(cluster)


async def test_the_operator_may_edit_nodes(cluster: Cluster) -> None:
    path = znodes.topic_config_path("t")
    async with cluster.zookeeper() as operator:
        await operator.create(path, znodes.encode_configs({"retention.ms": "86400000"}))

        async def is_applied() -> bool:
            answer = await cluster.get("controller-1", "/v1/topics/t/configs")
            return "86400000" in answer.text

        await wait_until(is_applied, "the controller has applied the edit")
        await operator.delete(path, ANY_VERSION)


async def test_what_services_write_is_private(cluster: Cluster) -> None:
    await still_works(cluster)
    written = [
        path
        for pattern in ("broker-*", "controller-*", "credentials")
        for directory in cluster.data_dir.glob(pattern)
        for path in (directory, *directory.rglob("*"))
    ]
    assert {"history.db", "meta.json", "internal-ca.key"} <= {path.name for path in written}
    assert not [path for path in written if stat.S_IMODE(path.lstat().st_mode) & 0o077]


def kept_by(cluster: Cluster) -> dict[str, bytes]:
    """Return all files of a cluster but its credentials, and how its processes started."""
    directory = cluster.credentials.directory
    files = [path for path in cluster.data_dir.rglob("*") if path.parent != directory]
    files += [
        Path(f"/proc/{child.pid}/{name}")
        for child in cluster.supervisor.children.values()
        for name in ("cmdline", "environ")
    ]
    return {str(path): path.read_bytes() for path in files if path.is_file()}


async def test_secrets_are_in_their_files_only(cluster: Cluster) -> None:
    """Not in a command line, cluster.json, a log, a history, a record, the audit or a setting."""
    credentials = cluster.credentials
    logins = [credentials.zookeeper_user("broker"), credentials.zookeeper_operator]
    secrets = [path.read_text().split()[0].partition(":")[2].encode() for path in logins]
    keys = [credentials.authority_key, credentials.certificate_of(ServiceIdentity("broker", 2))]
    secrets += [path.read_bytes().split(b"PRIVATE KEY-----\n")[1][:40] for path in keys]
    assert min(map(len, secrets)) >= 40
    shown = kept_by(cluster)
    for service in ("broker-2", "controller-1"):
        for path in (
            "/v1/audit",
            "/v1/configs",
            "/v1/brokers/2/configs",
            "/metrics",
            "/v1/brokers",
        ):
            answer = await cluster.get(service, path)
            shown[service + path] = answer.content
    assert len(shown) > 20
    assert not [path for path, content in shown.items() for secret in secrets if secret in content]
