"""A cluster that clients see over TLS only, whose certificates change while it works."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import ssl
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import aiohttp
import httpx
import pytest
import pytest_asyncio
from typer.testing import CliRunner
from websockets.asyncio.client import connect as connect_websocket
from websockets.exceptions import InvalidStatus

from leadline_cli.certificates import INTERNAL, PUBLIC, Authority
from leadline_cli.credentials import LOOPBACK_HOSTS, Credentials
from leadline_cli.main import app
from leadline_client import (
    AsyncClient,
    AsyncConsumer,
    AsyncProducer,
    Client,
    Consumer,
    NewTopic,
    Producer,
    Security,
)
from leadline_client.channel import CHANNEL_PATH
from leadline_client.errors import ConnectionLost, LeadlineError, Unauthorized
from leadline_client.wire import Metadata
from leadline_common.http.peer_connections import PeerConnections
from leadline_common.http.service_calls import ServiceCalls
from leadline_common.identity import InternalAddress, ServiceIdentity
from leadline_common.rpc import HEARTBEAT_PATH, JSON
from tests.support.services.cluster import CALM, Cluster, wait_until
from tests.support.services.identities import load_tls

pytestmark = pytest.mark.asyncio(loop_scope="module")

RECORDS = "/v1/topics/t/partitions/0/records"


def bearer(credentials: Credentials) -> dict[str, str]:
    """Return the header by which the administrator shows who it is."""
    return {"Authorization": f"Bearer {credentials.admin_token.read_text().strip()}"}


@dataclass
class World:
    """A running cluster, and a client that trusts its authority of today and that of tomorrow."""

    cluster: Cluster
    http: httpx.AsyncClient
    successor: Authority
    trusted: ssl.SSLContext

    @property
    def shown(self) -> dict[str, str]:
        """The header by which the administrator shows who it is."""
        return bearer(self.credentials)

    @property
    def credentials(self) -> Credentials:
        return self.cluster.credentials

    @property
    def services(self) -> list[ServiceIdentity]:
        return list(self.cluster.supervisor.layout.identities)

    def url(self, service: ServiceIdentity) -> str:
        return self.cluster.url(f"{service.kind}-{service.id}")

    async def metric(self, service: ServiceIdentity, line: str) -> float:
        text = (await self.http.get(f"{self.url(service)}/metrics")).text
        return next(
            (float(row.split()[1]) for row in text.splitlines() if row.startswith(line)), 0.0
        )

    async def replace(self, files: str, change: Callable[[], Any]) -> None:
        """Change files, and wait until every service that has such files uses them."""
        line = f'leadline_tls_files_loads{{files="{files}"}}'
        before = {one: await self.metric(one, line) for one in self.services}
        change()

        async def loaded() -> bool:
            return all([await self.metric(one, line) > before[one] for one in self.services])

        await wait_until(loaded, f"the {files} files are loaded again")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    directory = tmp_path_factory.mktemp("secure")
    settings = {**CALM, "min.insync.replicas": "2"}
    async with Cluster(
        directory, brokers=2, controllers=2, coordinators=2, settings=settings, secure=True
    ) as cluster:
        successor = Authority.new(name_text=PUBLIC)
        trusted = ssl.create_default_context(cafile=str(cluster.credentials.public_authority))
        trusted.load_verify_locations(cadata=successor.certificate_pem.decode())
        shown = bearer(cluster.credentials)
        async with httpx.AsyncClient(
            verify=trusted, trust_env=False, timeout=30, headers=shown
        ) as http:
            made = World(cluster, http, successor, trusted)
            url = cluster.url("broker-1")
            topic = {"name": "t", "replica_assignment": {"0": [1, 2], "1": [2, 1]}}
            (await http.post(f"{url}/v1/topics", json=topic)).raise_for_status()
            await wait_until(lambda: in_sync(made), "both brokers are in sync")
            yield made


async def in_sync(world: World) -> bool:
    url = world.cluster.url("controller-1")
    metadata = Metadata.from_json((await world.http.get(f"{url}/v1/metadata")).json())
    rows = metadata.topics["t"].partitions if "t" in metadata.topics else ()
    return bool(rows) and all(row.leader >= 0 and len(row.isr) == 2 for row in rows)


async def produce(world: World, http: httpx.AsyncClient) -> int:
    """Produce one record to the leader, with all acknowledgements; return its offset."""
    body = {"records": [{"value": "v"}], "format": "string"}
    params = {"acks": "all", "timeout_ms": "20000"}
    url = world.cluster.url("broker-1")
    answer = await http.post(url + RECORDS, params=params, json=body)
    if answer.status_code == 421:  # another broker leads after a restart
        url = answer.json()["leader"]["url"]
        answer = await http.post(url + RECORDS, params=params, json=body)
    assert answer.status_code == 200, answer.text
    return int(answer.json()["base_offset"])


async def test_every_address_is_of_https(world: World) -> None:
    document = json.loads((world.cluster.data_dir / "cluster.json").read_text())
    rows = [*document["brokers"], *document["controllers"], *document["coordinators"]]
    assert len(rows) == 6
    assert all(row["url"].startswith("https://127.0.0.1:") for row in rows)
    for service in world.services:
        ready = await world.http.get(f"{world.url(service)}/readyz")
        assert ready.json() == {"ready": True, "state": "ready", "reasons": []}, service
        assert f'"url": "{world.url(service)}"' in world.cluster.log(f"{service.kind}-{service.id}")
    broker = world.cluster.url("broker-2")
    metadata = (await world.http.get(f"{broker}/v1/metadata")).json()
    named = [metadata["controller"], *metadata["brokers"]]
    named.append((await world.http.post(f"{broker}/v1/consult")).json()["coordinator"])
    assert all(one["url"].startswith("https://127.0.0.1:") for one in named)
    for page in ("controller", "coordinator"):
        link = (await world.http.get(f"{broker}/docs/of/{page}")).headers["location"]
        assert link.startswith("https://")
        assert (await world.http.get(link)).status_code == 200


async def test_records_go_in_and_out(world: World) -> None:
    offset = await produce(world, world.http)
    tls = ssl.create_default_context(cafile=str(world.credentials.public_authority))
    async with aiohttp.ClientSession(headers=world.shown) as session:
        url = f"{world.cluster.url('broker-1')}{RECORDS}?offset={offset}&wait_ms=5000"
        async with session.get(url, ssl=tls) as answer:
            assert [row["value"] for row in (await answer.json())["records"]] == ["v"]


async def test_services_reach_each_other(world: World) -> None:
    """Standbys forward, brokers ask leaders, and coordinators ask where logs end."""
    for name in ("broker-1", "broker-2", "controller-1", "controller-2"):
        answer = await world.http.get(f"{world.cluster.url(name)}/v1/brokers")
        assert [row["id"] for row in answer.json()["brokers"]] == [1, 2]
    for name in ("broker-2", "coordinator-1", "coordinator-2"):
        answer = await world.http.get(f"{world.cluster.url(name)}/v1/groups")
        assert answer.status_code == 200, answer.text
    question = {"partitions": [{"topic": "t", "partition": one} for one in (0, 1)]}
    url = world.cluster.url("broker-1")
    rows = (await world.http.post(f"{url}/v1/offsets", json=question)).json()["partitions"]
    assert [row["error_code"] for row in rows] == [0, 0]
    end = await produce(world, world.http) + 1
    commit = {"offsets": [{"topic": "t", "partition": 0, "offset": end}]}
    path = "/v1/groups/g/offsets"
    (await world.http.post(url + path, json=commit)).raise_for_status()
    lag = (await world.http.get(f"{url}/v1/groups/g/lag")).json()
    assert [row["lag"] for row in lag["partitions"]] == [0], lag


async def leadline(*words: str, **environment: str) -> tuple[int, str]:
    """Run a command; return its exit code and what it printed."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "leadline_cli", *words),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, **environment},
    )
    printed, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, printed.decode()


async def test_commands_trust_the_authority_of_the_directory(world: World) -> None:
    of_cluster = ("--data-dir", str(world.cluster.data_dir))
    made = await leadline("topics", "create", "c", "--partitions", "1", *of_cluster)
    assert made[0] == 0, made
    url = world.cluster.url("broker-1")
    body = {"records": [{"value": "through TLS"}], "format": "string"}
    await wait_until(lambda: leads(world, "c"), "the topic has a leader")
    leader = await leads(world, "c")
    answer = await world.http.post(f"{leader}/v1/topics/c/partitions/0/records", json=body)
    assert answer.status_code == 200, answer.text
    read = ("consume", "c", "--from", "earliest", "--max", "1")
    code, printed = await leadline(*read, "--group", "cg", *of_cluster)
    assert (code, "through TLS" in printed) == (0, True), printed
    trusting = {
        "LEADLINE_CA_FILE": str(world.credentials.public_authority),
        "LEADLINE_TOKEN_FILE": str(world.credentials.admin_token),
    }
    code, printed = await leadline(*read, "--bootstrap", url, **trusting)
    assert (code, "through TLS" in printed) == (0, True), printed
    code, printed = await leadline("topics", "list", "--bootstrap", url)
    assert (code, "certificate verify failed" in printed) == (1, True), printed
    code, printed = await leadline("topics", "list", "--bootstrap", url, LEADLINE_CA_FILE="/none")
    assert (code, "LEADLINE_CA_FILE: /none cannot be used" in printed) == (1, True), printed


async def test_every_kind_of_command_reaches_the_cluster_of_its_directory(
    world: World, tmp_path: Path
) -> None:
    of_cluster = ("--data-dir", str(world.cluster.data_dir))
    lines = tmp_path / "lines"
    lines.write_text("first\nsecond\n")
    for words in (
        ("topics", "create", "every", "--partitions", "1"),
        ("produce", "every", str(lines)),
        ("consume", "every", "--from", "earliest"),
        ("consume", "every", "--group", "every"),
        ("groups", "describe", "every"),
        ("doctor",),
        ("brokers", "list"),
    ):
        code, printed = await leadline(*words, *of_cluster)
        assert code == 0, (words, printed)
        assert words[0] != "consume" or printed.split() == ["first", "second"], printed


async def test_producers_and_groups_take_the_authority_as_an_argument(world: World) -> None:
    url = world.cluster.url("broker-1")
    security = Security(
        ca_file=str(world.credentials.public_authority),
        token_file=str(world.credentials.admin_token),
    )
    await asyncio.to_thread(send_and_consume, url, security)
    async with AsyncClient(url, security=security) as client:
        async with AsyncProducer(client) as producer:
            sent = await producer.send("clients", b"asynchronous")
            assert (await sent).offset == 2
        consumer = AsyncConsumer(client, "clients")
        await consumer.subscribe(["clients"])
        values: list[bytes | None] = []
        while len(values) < 1:
            values += [one.record.value for one in await consumer.poll(timeout_s=1.0)]
        assert values == [b"asynchronous"], "the group goes on where its blocking member ended"
        await consumer.aclose()


def send_and_consume(url: str, security: Security) -> None:
    """Send two records and read them in a group, blocking."""
    with Client(url, security=security) as client:
        client.create_topic(NewTopic("clients", partitions=1))
    with Producer(url, security=security) as producer:
        for value in (b"one", b"two"):
            producer.send("clients", value)
    with Consumer(url, "clients", security=security) as consumer:
        consumer.subscribe(["clients"])
        values = [consumed.record.value for _, consumed in zip(range(2), consumer, strict=False)]
        consumer.commit()
    assert values == [b"one", b"two"]


async def test_a_token_is_replaced_under_a_producer_and_a_group(
    world: World, tmp_path: Path
) -> None:
    users = f"{world.cluster.url('controller-1')}/v1/users"
    grants = [{"role": role} for role in ("operator", "producer", "consumer")]
    made = await world.http.post(users, json={"name": "rotating", "grants": grants})
    assert made.status_code == 201, made.text
    first, second = [
        (await world.http.post(f"{users}/rotating/tokens", json={})).json() for _ in range(2)
    ]
    file = tmp_path / "token"
    file.write_text(first["token"])
    for token in (first, second):
        await wait_until(partial(knows, world, token["token"], 200), "it is known")
    url = world.cluster.url("broker-1")
    ca_file = str(world.credentials.public_authority)
    async with AsyncClient(url, security=Security(ca_file, token_file=str(file))) as client:
        await client.create_topic(NewTopic("rotated", partitions=1))
        async with RotationLoad(client) as load:
            await load.until_carries_on()
            # The file goes first: whoever is refused reads it again.
            file.write_text(second["token"])
            await world.http.delete(f"{users}/rotating/tokens/{first['id']}")
            await wait_until(lambda: knows(world, first["token"], 401), "it is revoked")
            await load.until_carries_on()
            await load.end()
        await world.http.delete(f"{users}/rotating/tokens/{second['id']}")
        await wait_until(lambda: knows(world, second["token"], 401), "it is revoked, too")
        with pytest.raises(Unauthorized):
            await client.list_topics()


async def knows(world: World, token: str, status: int) -> bool:
    """Tell whether every service answers `status` to requests with a token."""
    shown = {"Authorization": f"Bearer {token}"}
    for service in world.services:
        path = "/v1/groups" if service.kind == "coordinator" else "/v1/brokers"
        answer = await world.http.get(world.url(service) + path, headers=shown)
        if answer.status_code != status:
            return False
    return True


class RotationLoad:
    """Produces record after record, and reads them in a group; any error of either is raised."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._acknowledged: list[bytes] = []
        self._read: list[bytes | None] = []
        self._ending = self._all_sent = False

    async def __aenter__(self) -> Self:
        """Start."""
        self._tasks = [asyncio.create_task(one) for one in (self._produce(), self._consume())]
        return self

    async def __aexit__(self, *_: object) -> None:
        """End what still runs after a failure."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def until_carries_on(self) -> None:
        """Wait until five more records were acknowledged and read."""
        known = len(self._acknowledged)

        async def carries_on() -> bool:
            for task in self._tasks:
                if task.done():
                    task.result()
            return min(len(self._acknowledged), len(self._read)) >= known + 5

        await wait_until(carries_on, "records go in and out")

    async def end(self) -> None:
        """Stop producing; all that was acknowledged has been read then, once and in order."""
        producing, consuming = self._tasks
        self._ending = True
        await producing
        self._all_sent = True
        await consuming
        assert self._read == self._acknowledged

    async def _produce(self) -> None:
        async with AsyncProducer(self._client) as producer:
            while not self._ending:
                value = b"%d" % len(self._acknowledged)
                await (await producer.send("rotated", value))
                self._acknowledged.append(value)

    async def _consume(self) -> None:
        consumer = AsyncConsumer(self._client, "rotated")
        await consumer.subscribe(["rotated"])
        while not self._all_sent or len(self._read) < len(self._acknowledged):
            self._read += [one.record.value for one in await consumer.poll(timeout_s=0.2)]
        await consumer.aclose()


async def leads(world: World, topic: str) -> str:
    """Return the URL of the leader of a topic's first partition, "" if it has none."""
    metadata = (await world.http.get(f"{world.cluster.url('controller-1')}/v1/metadata")).json()
    leader = metadata["topics"][topic]["partitions"][0][1]
    return world.cluster.url(f"broker-{leader}") if leader >= 0 else ""


async def test_the_channel_of_consumers_is_of_wss(world: World) -> None:
    broker = world.cluster.url("broker-1")
    coordinator = (await world.http.post(f"{broker}/v1/consult")).json()["coordinator"]["url"]
    url = "wss" + coordinator.removeprefix("https") + CHANNEL_PATH.format(group="w")
    async with connect_websocket(url, ssl=world.trusted, additional_headers=world.shown) as channel:
        await channel.send('{"type": "hello", "topics": ["t"]}')
        assert json.loads(await channel.recv())["type"] == "welcome"


async def test_users_do_what_they_were_granted_and_nothing_else(world: World) -> None:
    controller, broker = world.cluster.url("controller-1"), world.cluster.url("broker-1")
    for topic in ("mine-1", "yours"):
        new = {"name": topic, "replica_assignment": {"0": [1, 2]}}
        (await world.http.post(f"{controller}/v1/topics", json=new)).raise_for_status()
    limits = {"topics": ["mine-*"], "groups": ["mine"]}
    grants = [{"role": role, **limits} for role in ("producer", "consumer")]
    user = {"name": "limited", "grants": grants}
    (await world.http.post(f"{broker}/v1/users", json=user)).raise_for_status()
    made = await world.http.post(f"{broker}/v1/users/limited/tokens", json={})
    token = made.json()["token"]
    await wait_until(partial(knows, world, token, 200), "every service knows the user")
    shown = {"Authorization": f"Bearer {token}", "X-Leadline-Principal": "user:admin"}

    async def status(method: str, path: str, body: object = None, url: str = broker) -> int:
        answer = await world.http.request(method, url + path, json=body, headers=shown)
        return answer.status_code

    records = {"records": [{"value": "v"}], "format": "string"}
    assert await status("POST", "/v1/topics/mine-1/partitions/0/records?acks=all", records) == 200
    assert await status("POST", "/v1/topics/yours/partitions/0/records", records) == 403
    assert await status("GET", "/v1/topics/yours/partitions/0/records?offset=0") == 403
    for url in (broker, controller, world.cluster.url("controller-2")):
        assert await status("GET", "/v1/topics/mine-1", url=url) == 200
        assert await status("GET", "/v1/topics/yours", url=url) == 403
        assert await status("POST", "/v1/topics", {"name": "mine-2"}, url) == 403
        assert await status("GET", "/v1/users", url=url) == 403
        seen = (await world.http.get(f"{url}/v1/metadata", headers=shown)).json()["topics"]
        assert list(seen) == ["mine-1"]
    question = {"partitions": [{"topic": "yours", "partition": 0}]}
    assert await status("POST", "/v1/offsets", question) == 403
    commit = {"offsets": [{"topic": "yours", "partition": 0, "offset": 0}]}
    for url in (broker, world.cluster.url("coordinator-1"), world.cluster.url("coordinator-2")):
        assert await status("POST", "/v1/groups/mine/offsets", commit, url) == 403
        assert await status("GET", "/v1/groups/other", url=url) == 403
    reset = {"to": "latest", "topics": ["yours"], "dry_run": True}
    assert await status("POST", "/v1/groups/mine/offsets/reset", reset) == 403
    foreign = {"offsets": [{"topic": "yours", "partition": 0, "offset": 0}]}
    path = f"{broker}/v1/groups/mine/offsets"
    (await world.http.post(path, json=foreign)).raise_for_status()
    for url in (path, f"{broker}/v1/groups/mine/lag"):
        assert "yours" in (await world.http.get(url)).text
        assert "yours" not in (await world.http.get(url, headers=shown)).text
    (await world.http.delete(path)).raise_for_status()
    assert await hello(world, shown, "mine", {"topics": ["mine-1"]}) == "welcome"
    assert await hello(world, shown, "mine", {"topics": ["yours"]}) == "error 40350"
    assert await hello(world, shown, "mine", {"pattern": ".*"}) == "error 40350"
    assert await hello(world, shown, "mine", {"pattern": "mine-.*"}) == "welcome"
    assert await hello(world, shown, "other", {"topics": ["mine-1"]}) == "status 403"
    assert await hello(world, {}, "mine", {"topics": ["mine-1"]}) == "status 401"
    entries = (await world.http.get(f"{controller}/v1/audit?kind=user_created")).json()
    assert "user:admin" in {one["actor"] for one in entries["entries"]}
    assert token not in json.dumps(entries)


async def test_an_event_stream_ends_with_the_right_to_it(world: World) -> None:
    broker = world.cluster.url("broker-1")
    user = {"name": "watching", "grants": [{"role": "viewer"}]}
    (await world.http.post(f"{broker}/v1/users", json=user)).raise_for_status()
    made = await world.http.post(f"{broker}/v1/users/watching/tokens", json={})
    token = made.json()["token"]
    await wait_until(partial(knows, world, token, 200), "every service knows the user")
    shown = {"Authorization": f"Bearer {token}", "Accept": "text/event-stream"}
    async with world.http.stream("GET", f"{broker}/v1/events", headers=shown) as stream:
        lines = stream.aiter_lines()
        assert "following" in await anext(lines)
        (await world.http.delete(f"{broker}/v1/users/watching")).raise_for_status()
        await wait_until(partial(knows, world, token, 401), "no service knows the user")
        new = {"name": "unseen", "replica_assignment": {"0": [1, 2]}}
        (await world.http.post(f"{broker}/v1/topics", json=new)).raise_for_status()
        async with asyncio.timeout(60):
            assert not [line async for line in lines if "unseen" in line]


async def hello(world: World, shown: dict[str, str], group: str, wanted: dict[str, Any]) -> str:
    """Return what a consumer's first frame, or its handshake, is answered with."""
    broker = world.cluster.url("broker-1")
    coordinator = (await world.http.post(f"{broker}/v1/consult")).json()["coordinator"]["url"]
    url = "wss" + coordinator.removeprefix("https") + CHANNEL_PATH.format(group=group)
    try:
        async with connect_websocket(url, ssl=world.trusted, additional_headers=shown) as channel:
            await channel.send(json.dumps({"type": "hello", **wanted}))
            answer = json.loads(await channel.recv())
    except InvalidStatus as refused:
        return f"status {refused.response.status_code}"
    kind = answer["type"]
    return f"error {answer['error_code']}" if kind == "error" else str(kind)


async def test_who_does_not_speak_tls_is_told_so_or_ended(world: World) -> None:
    url = world.cluster.url("broker-1")
    port = int(url.rpartition(":")[2])
    silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
    silent[1][1].write(b"\x16\x03\x01\x02\x00\x01\x00")
    async with httpx.AsyncClient(trust_env=False) as http:
        answer = await http.get(f"http://127.0.0.1:{port}/v1/metadata")
    assert (answer.status_code, answer.json()["error_code"]) == (400, 40050)
    assert "https://" in answer.json()["message"]
    async with asyncio.timeout(60):
        for reader, writer in silent:
            assert await reader.read() == b""
            writer.close()


@asynccontextmanager
async def load(world: World) -> AsyncIterator[list[str]]:
    """Send requests all the time, over kept connections and over new ones; none may fail."""
    done: list[str] = []
    stopped = asyncio.Event()
    forwarded = [
        world.cluster.url(name) + path
        for name in ("broker-1", "broker-2", "controller-1", "controller-2")
        for path in ("/v1/brokers", "/v1/metadata")
    ]
    forwarded += [f"{world.cluster.url(name)}/v1/groups" for name in ("broker-1", "coordinator-2")]

    async def produce_on() -> None:
        while not stopped.is_set():
            await produce(world, world.http)
            done.append("produced")

    async def ask_over_new_connections() -> None:
        while not stopped.is_set():
            for url in forwarded:
                async with httpx.AsyncClient(
                    verify=world.trusted, trust_env=False, headers=world.shown
                ) as http:
                    answer = await http.get(url, timeout=30)
                assert answer.status_code == 200, (url, answer.text)
                done.append(url)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(produce_on())
        tasks.create_task(ask_over_new_connections())
        yield done
        begun = len(done)
        await wait_until(lambda: more_than(done, begun + 20), "requests go on")
        stopped.set()


async def more_than(done: list[str], count: int) -> bool:
    return len(done) > count


async def issuer_seen(world: World, authority: bytes, service: ServiceIdentity) -> bool:
    """Tell whether a client that trusts one authority only can connect."""
    tls = ssl.create_default_context(cadata=authority.decode())
    async with httpx.AsyncClient(verify=tls, trust_env=False) as http:
        try:
            return (await http.get(f"{world.url(service)}/healthz")).status_code == 200
        except httpx.ConnectError:
            return False


async def test_the_public_authority_is_replaced_under_load(world: World) -> None:
    files, new = world.credentials, world.successor
    old = files.public_authority.read_bytes()

    def renew() -> None:
        for service in world.services:
            issued = new.issue_public(service, LOOPBACK_HOSTS)
            files.public_certificate_of(service).write_bytes(issued)

    async with load(world) as done:
        both = old + new.certificate_pem
        await world.replace("trusted", lambda: files.public_authority.write_bytes(both))
        await world.replace("public", renew)
        only = new.certificate_pem
        await world.replace("trusted", lambda: files.public_authority.write_bytes(only))
        files.public_authority_key.write_bytes(new.key_pem)
    assert {"produced", world.cluster.url("broker-2") + "/v1/brokers"} <= set(done)
    for service in world.services:
        assert await issuer_seen(world, new.certificate_pem, service), service
        assert not await issuer_seen(world, old, service), service


async def test_the_internal_authority_is_replaced_under_load(world: World, tmp_path: Path) -> None:
    files, new = world.credentials, Authority.new(name_text=INTERNAL)
    shutil.copytree(files.directory, tmp_path / "former")
    old = files.authority.read_bytes()
    controller, broker = ServiceIdentity("controller", 1), ServiceIdentity("broker", 2)
    to = InternalAddress(controller, world.cluster.internal_url("controller-1"))

    async def call_with(credentials: Credentials) -> None:
        calls = ServiceCalls(PeerConnections(load_tls(credentials, broker)))
        try:
            await calls.post_internal(to, HEARTBEAT_PATH, b"{}", JSON, 20_000)
        finally:
            await calls.close()

    def renew() -> None:
        for service in world.services:
            files.certificate_of(service).write_bytes(new.issue(service))

    async with load(world) as done:
        both = old + new.certificate_pem
        await world.replace("internal", lambda: files.authority.write_bytes(both))
        await world.replace("internal", renew)
        former = Credentials(tmp_path / "former")
        former.authority.write_bytes(both)
        with pytest.raises(LeadlineError) as heard:
            await call_with(former)
        assert not isinstance(heard.value, ConnectionLost), "the former authority still counts"
        only = new.certificate_pem
        await world.replace("internal", lambda: files.authority.write_bytes(only))
        files.authority_key.write_bytes(new.key_pem)
    assert "produced" in done
    assert await in_sync(world), "no broker was lost"
    with pytest.raises(ConnectionLost):
        await call_with(former)
    # Everything that a broker opens at its start is new.
    await world.cluster.kill("broker-2")
    world.cluster.restart("broker-2")
    await wait_until(lambda: rejoined(world), "the broker is in sync again")
    await produce(world, world.http)


async def rejoined(world: World) -> bool:
    try:
        ready = await world.http.get(f"{world.cluster.url('broker-2')}/readyz")
    except httpx.HTTPError:
        return False
    return ready.status_code == 200 and await in_sync(world)


async def test_files_that_cannot_be_used_stay_out(world: World) -> None:
    broker = ServiceIdentity("broker", 1)
    files = {
        "public": world.credentials.public_certificate_of(broker),
        "internal": world.credentials.certificate_of(broker),
        "trusted": world.credentials.public_authority,
    }
    good = {path: path.read_bytes() for path in files.values()}
    try:
        for path, content in good.items():
            path.write_bytes(content[: len(content) // 2])
        for name in files:
            await wait_until(partial(refused, world, broker, name), f"{name} is refused")
        async with httpx.AsyncClient(
            verify=world.trusted, trust_env=False, timeout=30, headers=world.shown
        ) as http:
            ready = (await http.get(f"{world.url(broker)}/readyz")).json()
            assert ready["state"] == "degraded"
            for path in files.values():
                assert str(path) in "".join(ready["reasons"])
            await produce(world, http)
            for route in ("/v1/brokers", "/v1/groups"):
                assert (await http.get(world.url(broker) + route)).status_code == 200
        files["trusted"].write_bytes(good[files["trusted"]])
        await wait_until(partial(none_refuses, world, "trusted"), "all trust the authority again")
        arguments = ["doctor", "--json", "--data-dir", str(world.cluster.data_dir)]
        said = await asyncio.to_thread(CliRunner().invoke, app, arguments)
        wrong = [row for row in json.loads(said.stdout)["findings"] if not row["ok"]]
        assert [row["check"] for row in wrong] == ["broker 1 is live and granted"], said.stdout
        assert str(files["public"]) in wrong[0]["found"]
    finally:
        for path, content in good.items():
            path.write_bytes(content)
    await wait_until(lambda: is_ready(world, broker), "the broker is ready again")
    log = world.cluster.log("broker-1")
    for name in files:
        lines = [line for line in log.splitlines() if f'"files": "{name}"' in line]
        assert sum("cannot be used" in line for line in lines) <= 2, "it is logged once"


async def refused(world: World, service: ServiceIdentity, files: str) -> bool:
    return await world.metric(service, f'leadline_tls_files_refused{{files="{files}"}}') == 1


async def none_refuses(world: World, files: str) -> bool:
    return not any([await refused(world, service, files) for service in world.services])


async def is_ready(world: World, service: ServiceIdentity) -> bool:
    ready = await world.http.get(f"{world.url(service)}/readyz")
    return bool(ready.json()["state"] == "ready")
