"""Clients see TLS only, and certificates change while the cluster works."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import aiohttp
import httpx
import pytest
from typer.testing import CliRunner
from websockets.asyncio.client import connect as connect_websocket

from leadline_cli.authorities import INTERNAL
from leadline_cli.certificates import Authority
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
from leadline_client.errors import ConnectionLost, LeadlineError
from leadline_common.http.peer_connections import PeerConnections
from leadline_common.http.service_calls import ServiceCalls
from leadline_common.identity import InternalAddress, ServiceIdentity
from leadline_common.rpc import HEARTBEAT_PATH, JSON
from tests.integration.secure.world import RECORDS, World, in_sync, produce
from tests.support.services.cluster import wait_until
from tests.support.services.identities import load_tls

pytestmark = pytest.mark.asyncio(loop_scope="package")


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
