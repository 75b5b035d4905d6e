"""Users of a secure cluster get no more than their quotas, and lose nothing by waiting."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from functools import partial
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from leadline_cli.main import app
from leadline_client import AsyncClient, AsyncConsumer, AsyncProducer, NewTopic, Security
from leadline_client.producer_settings import ProducerSettings
from tests.integration.secure.world import (
    RECORDS,
    World,
    hello,
    in_sync,
    new_user,
    produce,
    set_quotas,
)
from tests.support.services.cluster import wait_until

pytestmark = pytest.mark.asyncio(loop_scope="package")


async def leader_of(world: World, topic: str = "t") -> str:
    metadata = (await world.http.get(f"{world.cluster.url('controller-1')}/v1/metadata")).json()
    return world.cluster.url(f"broker-{metadata['topics'][topic]['partitions'][0][1]}")


async def end_of(world: World, url: str) -> int:
    answer = await world.http.get(url + RECORDS.replace("records", "offsets"))
    return int(answer.json()["log_end_offset"])


async def refusals(world: World, quota: str) -> float:
    line = f'leadline_quota_refused_requests_total{{quota="{quota}"}}'
    return sum([await world.metric(one, line) for one in world.services if one.kind == "broker"])


async def answers(world: World, status: int, url: str, shown: dict[str, str], body: object) -> bool:
    return (await world.http.post(url, json=body, headers=shown)).status_code == status


async def test_who_produces_too_much_is_refused_until_the_quota_is_raised(world: World) -> None:
    shown = await new_user(world, "eager", "viewer", "producer", produce_bytes_per_s=100)
    records = {"records": [{"value": "v" * 3_000}], "format": "string"}
    url = await leader_of(world)
    assert await answers(world, 200, url + RECORDS, shown, records), "it is admitted as a whole"
    end = await end_of(world, url)
    for path in (RECORDS, RECORDS.replace("records", "staged")):
        refused = await world.http.post(url + path, json=records, headers=shown)
        assert (refused.status_code, refused.json()["error_code"]) == (429, 42950), refused.text
        assert 1 <= int(refused.headers["retry-after"]) <= 21
        assert "produce_bytes_per_s" in refused.json()["message"]
    assert await end_of(world, url) == end, "nothing was appended"
    assert await produce(world, world.http) == end, "others are not touched, nor is replication"
    assert await in_sync(world)
    arguments = ["users", "quotas", "eager", "--produce-bytes", "0", "--json"]
    arguments += ["--data-dir", str(world.cluster.data_dir)]
    said = await asyncio.to_thread(CliRunner().invoke, app, arguments)
    assert json.loads(said.stdout)["quotas"]["produce_bytes_per_s"] == 0, said.output
    await wait_until(
        partial(answers, world, 200, url + RECORDS, shown, records), "the quota is removed"
    )


async def test_a_producer_and_a_group_wait_and_lose_nothing(world: World, tmp_path: Path) -> None:
    roles = ("operator", "producer", "consumer")
    shown = await new_user(world, "patient", *roles, produce_bytes_per_s=5_000)
    (tmp_path / "token").write_text(shown["Authorization"].removeprefix("Bearer "))
    security = Security(str(world.credentials.public_authority), token_file=str(tmp_path / "token"))
    # Each of the two leaders gets 14 KB more than ten seconds of the quota, and then some.
    values = [b"%05d" % number + b"v" * 2_000 for number in range(72)]
    before = await refusals(world, "produce_bytes_per_s")
    settings = ProducerSettings(batch_bytes=16_384)
    async with AsyncClient(world.cluster.url("broker-1"), security=security) as client:
        await client.create_topic(NewTopic("waited", partitions=2))
        async with AsyncProducer(client, settings) as producer:
            sent = [
                await producer.send("waited", value, partition=number % 2)
                for number, value in enumerate(values)
            ]
            offsets = [(await one).offset for one in sent]
        assert offsets == [number // 2 for number in range(len(values))], "in order, once each"
        assert await refusals(world, "produce_bytes_per_s") > before, "it had to wait"
        await set_quotas(world, "patient", fetch_bytes_per_s=6_500)
        await read_in_a_group(world, client, values)


async def read_in_a_group(world: World, client: AsyncClient, values: list[bytes]) -> None:
    """Read all values as a member of a group that goes beyond its quota, and one more then."""
    last = {"records": [{"value": "last"}], "format": "string"}
    before = await refusals(world, "fetch_bytes_per_s")
    consumer = AsyncConsumer(client, "waiting")
    await consumer.subscribe(["waited"])
    read: dict[int, list[bytes]] = {0: [], 1: []}

    async def poll(count: int) -> None:
        while sum(map(len, read.values())) < count:
            for one in await consumer.poll(timeout_s=0.5):
                read[one.partition].append(one.record.value or b"")

    await poll(len(values))

    async def waits() -> bool:
        await consumer.poll(timeout_s=0.05)
        return await refusals(world, "fetch_bytes_per_s") > before

    await wait_until(waits, "the reader is refused")
    url = await leader_of(world, "waited")
    assert await answers(world, 200, url + RECORDS.replace("/t/", "/waited/"), world.shown, last)
    await poll(len(values) + 1)
    await consumer.aclose()
    assert read == {0: [*values[0::2], b"last"], 1: values[1::2]}


async def test_a_quota_that_cannot_be_is_refused_and_changes_are_audited(world: World) -> None:
    broker = world.cluster.url("broker-2")
    await new_user(world, "measured", "viewer", requests_per_s=1_000)
    path = f"{broker}/v1/users/measured"
    before = (await world.http.get(path)).json()
    for name, value in (("requests_per_s", -1), ("fetch_bytes_per_s", 10**16), ("speed", 5)):
        answer = await world.http.put(f"{path}/quotas", json={name: value})
        assert (answer.status_code, answer.json()["error_code"]) == (400, 40050), answer.text
        assert name in answer.json()["message"]
    answer = await world.http.put(f"{broker}/v1/users/nobody/quotas", json={})
    assert answer.status_code == 404
    assert (await world.http.get(path)).json() == before
    assert before["quotas"]["requests_per_s"] == 1_000
    audit = await world.http.get(f"{broker}/v1/audit?kind=quotas_changed")
    found = [one for one in audit.json()["entries"] if one["resource"] == {"user": "measured"}]
    assert [one["after"]["quotas"] for one in found] == [{"requests_per_s": 1_000}]
    assert [one["actor"] for one in found] == ["user:admin"]


async def test_requests_are_counted_where_they_come_in(world: World) -> None:
    shown = await new_user(world, "chatty", "viewer", "consumer")
    await set_quotas(world, "chatty", requests_per_s=1)
    broker, controller = world.cluster.url("broker-1"), world.cluster.url("controller-1")

    async def asked(url: str) -> int:
        return (await world.http.get(f"{url}/v1/brokers", headers=shown)).status_code

    async def is_refused(url: str) -> bool:
        return await asked(url) == 429

    await wait_until(partial(is_refused, broker), "the broker knows the quota")
    assert await asked(controller) == 200, "what it got from brokers was paid for there"
    found = Counter([await asked(broker) for _ in range(5)])
    assert found[429] >= 3, found
    assert (await world.http.get(f"{broker}/v1/brokers")).status_code == 200
    assert (await world.http.get(f"{broker}/healthz", headers=shown)).status_code == 200

    async def handshake_is_refused() -> bool:
        return await hello(world, shown, "g", {"topics": ["t"]}) == "status 429"

    await wait_until(handshake_is_refused, "the coordinator knows the quota, too")


async def test_changes_of_partitions_are_limited_and_refused_as_a_whole(world: World) -> None:
    shown = await new_user(world, "maker", "operator", partition_changes_per_s=1)
    topics = f"{world.cluster.url('broker-2')}/v1/topics"

    async def ask(method: str, path: str = "", body: object = None) -> httpx.Response:
        return await world.http.request(method, topics + path, json=body, headers=shown)

    names = [f"made-{number}" for number in range(3)]
    many = [ask("POST", body={"name": name, "partitions": 15}) for name in names]
    statuses = [one.status_code for one in await asyncio.gather(*many)]
    assert sorted(statuses) == [201, 429, 429], "many at once do not pass together"
    made = names[statuses.index(201)]
    for refused in (
        await ask("POST", body={"name": "one-more", "partitions": 1}),
        await ask("POST", f"/{made}/partitions", {"partitions": 16}),
        await ask("DELETE", f"/{made}/partitions", {"partitions": [14]}),
        await ask("DELETE", f"/{made}"),
    ):
        assert (refused.status_code, refused.json()["error_code"]) == (429, 42950), refused.text
        assert 1 <= int(refused.headers["retry-after"]) <= 6
        assert "partition_changes_per_s" in refused.json()["message"]
    found = [one["name"] for one in (await world.http.get(topics)).json()["topics"]]
    assert [name for name in found if name.startswith(("made", "one"))] == [made]
    described = (await world.http.get(f"{topics}/{made}")).json()
    assert len(described["partitions"]) == 15
    planned = await ask("POST", body={"name": "one-more", "partitions": 1, "dry_run": True})
    assert planned.status_code == 200, planned.text
    assert (await world.http.delete(f"{topics}/{made}")).is_success, "an administrator has no quota"


async def test_users_without_a_quota_have_the_default_of_the_settings(world: World) -> None:
    shown = await new_user(world, "plain", "operator")
    broker = world.cluster.url("broker-1")
    name = "quota.partition.changes.per.s"

    async def create(topic: str) -> int:
        new = {"name": topic, "partitions": 11}
        return (await world.http.post(f"{broker}/v1/topics", json=new, headers=shown)).status_code

    for topic, change, status in (
        ("plain-1", {"set": {}}, 201),
        ("plain-2", {"set": {name: 1}}, 201),
        ("plain-3", {"set": {}}, 429),
        ("plain-4", {"remove": [name]}, 201),
    ):
        changed = await world.http.patch(f"{broker}/v1/configs", json=change)
        assert changed.status_code == 200, changed.text
        assert await create(topic) == status, topic
