"""Each operation of the v3 API on a running cluster: status, envelope, types, links, and errors."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any, Final

import httpx
import pytest
import pytest_asyncio

from leadline_client.client import AsyncClient
from leadline_client.consumer import AsyncConsumer
from leadline_client.wire import NewTopic
from tests.support.services.cluster import Cluster, wait_until
from tests.support.v3.operations import OPERATIONS, V3Operation
from tests.support.v3.refusals import REFUSALS, Refusal
from tests.support.v3.stream import open_stream
from tests.support.v3.types import problems_of

pytestmark = pytest.mark.asyncio(loop_scope="package")

TOPIC, GROUP, NEW = "t", "v3-readers", "v3-new"
PREFIXES: Final = ("/v3", "/kafka/v3")
FIVE: Final = [{"value": {"type": "STRING", "data": f"{number}"}} for number in range(5)]
Names = dict[str, str]


@pytest_asyncio.fixture(scope="module", loop_scope="package")
async def names(cluster: Cluster) -> AsyncIterator[Names]:
    """What stands in the paths of the table: a topic, and a group with a live member."""
    stopping = asyncio.Event()
    async with (
        AsyncClient(cluster.bootstrap.split(",")) as client,
        AsyncConsumer(client, GROUP) as consumer,
    ):
        await client.create_topic(NewTopic(TOPIC, 1, 3))
        await consumer.subscribe([TOPIC])

        async def poll() -> None:
            while not stopping.is_set():
                await consumer.poll(0.2)

        polling = asyncio.create_task(poll())
        consumer_id = await wait_until(lambda: committed_member(cluster), "the group has committed")
        yield {"topic": TOPIC, "group": GROUP, "new": NEW, "consumer": consumer_id}
        stopping.set()
        await polling
    await cluster.client.delete_topic(TOPIC)


async def committed_member(cluster: Cluster) -> str | None:
    """Append a record, and return the member of the group once it has committed an offset."""
    path = f"/v3/clusters/{cluster.file.cluster_id}/topics/{TOPIC}/records"
    (await cluster.post("broker-1", path, json={})).raise_for_status()
    lag = await cluster.get("broker-1", f"/v1/groups/{GROUP}/lag")
    if lag.status_code != 200 or not any(one["committed"] for one in lag.json()["partitions"]):
        return None
    members = (await cluster.get("broker-1", f"/v1/groups/{GROUP}")).json()["members"]
    return str(members[0]["id"])


def path_of(cluster: Cluster, path: str, names: Names) -> str:
    of_cluster = f"/clusters/{cluster.file.cluster_id}"
    filled = of_cluster + path.removeprefix("C") if path.startswith("C") else path
    return filled.format_map(names)


async def send(
    cluster: Cluster, broker: int, prefix: str, operation: V3Operation, names: Names
) -> httpx.Response:
    text = json.dumps(operation.request)
    for name, value in names.items():
        text = text.replace(f"{{{name}}}", value)
    return await cluster.request(
        operation.method,
        f"broker-{broker}",
        prefix + path_of(cluster, operation.path, names),
        json=None if operation.request is None else json.loads(text),
    )


@pytest.mark.parametrize(("broker", "prefix"), [(1, "/v3"), (2, "/kafka/v3"), (3, "/v3")])
async def test_every_operation_answers_as_its_type_at_every_broker(
    cluster: Cluster, names: Names, broker: int, prefix: str
) -> None:
    base = cluster.url(f"broker-{broker}") + prefix
    for operation in OPERATIONS:
        answer = await send(cluster, broker, prefix, operation, names)
        assert answer.status_code == operation.status, f"{operation}: {answer.text}"
        if not operation.body:
            assert not answer.content, operation
            continue
        assert answer.headers["content-type"] == "application/json", operation
        assert problems_of(answer.json(), operation.body, base) == [], operation
        if operation.status == 201:
            assert answer.headers["location"] == f"{base}{path_of(cluster, 'C/topics/v3-new', {})}"


async def test_every_refusal_has_its_status_and_code_and_changes_nothing(
    cluster: Cluster, names: Names
) -> None:
    del names
    before = await wait_until(lambda: settled(cluster), "all brokers tell the same topics")
    for number, refusal in enumerate(REFUSALS):
        answer = await refused(cluster, refusal, PREFIXES[number % 2], 1 + number % 3)
        body = answer.json()
        assert problems_of(body, "Error", "") == [], f"{refusal}: {answer.text}"
        stated = (answer.status_code, body["error_code"])
        assert stated == (refusal.status, refusal.code), f"{refusal}: {answer.text}"
        assert body["message"], refusal
    assert await state(cluster) == before


async def refused(cluster: Cluster, refusal: Refusal, prefix: str, broker: int) -> httpx.Response:
    return await cluster.request(
        refusal.method,
        f"broker-{broker}",
        prefix + path_of(cluster, refusal.path, {}),
        content=refusal.content,
        headers=refusal.headers,
    )


async def settled(cluster: Cluster) -> Any:
    """Return the state once every broker knows what earlier tests have created and deleted."""
    told = [(await cluster.get(f"broker-{number}", "/v1/metadata")).json() for number in (1, 2, 3)]
    if any(one["topics"] != told[0]["topics"] for one in told):
        return None
    return None if NEW in str(told[0]["topics"]) else await state(cluster)


async def state(cluster: Cluster) -> Any:
    """Return what the refused requests could have changed."""
    paths = ("/v1/metadata", "/v1/configs", "/v1/brokers/1/configs", f"/v1/topics/{TOPIC}")
    found = [(await cluster.get("broker-1", path)).json() for path in paths]
    ends = (await cluster.get("broker-1", f"{of_topic(cluster)}/partitions/0/offset")).json()
    return [found, ends["latest_offset"]]


def of_topic(cluster: Cluster) -> str:
    return f"/v3/clusters/{cluster.file.cluster_id}/topics/{TOPIC}"


async def test_a_dry_run_creates_nothing(cluster: Cluster) -> None:
    path = f"/v3/clusters/{cluster.file.cluster_id}/topics"
    wanted = {"topic_name": NEW, "partitions_count": 2, "validate_only": True}
    answer = await cluster.post("broker-2", path, json=wanted)
    assert (answer.status_code, answer.json()["partitions_count"]) == (200, 2)
    assert "location" not in answer.headers
    assert (await cluster.get("broker-2", f"{path}/{NEW}")).status_code == 404


async def test_a_stream_is_answered_record_by_record_while_it_is_open(
    cluster: Cluster, names: Names
) -> None:
    del names
    async with open_stream(cluster, "broker-3", of_topic(cluster) + "/records") as stream:
        reports = [await stream.ask(json.dumps(record).encode()) for record in FIVE]
        offsets = [report["offset"] for report in reports]
        split = b'{"value": {"type": "STRING", "data": "\xc3'
        await stream.send(split)
        assert (await stream.ask(b'\xa9"}}'))["value"]["size"] == 2
        await stream.send(b'{"value": {"type": "BINARY", "data": "!"}} {"partition_id": 7} [')
        codes = [(await stream.report())["error_code"] for _ in range(3)]
    assert offsets == list(range(offsets[0], offsets[0] + 5))
    assert codes == [400, 40402, 400]


async def test_what_is_appended_is_what_was_sent(cluster: Cluster, names: Names) -> None:
    del names
    time = "2021-02-05T19:14:42.123456789Z"
    headers = [{"name": "h", "value": "AQ=="}, {"name": "h"}]
    records = [
        {
            "key": {"type": "STRING", "data": "é"},
            "value": {"type": "JSON", "data": {"a": [1, 2.50]}},
        },
        {"key": {"type": "BINARY", "data": "AAE="}, "timestamp": time, "headers": headers},
        {"value": {"type": "JSON", "data": "text"}},
        {"value": {"type": "STRING", "data": None}},
    ]
    raw = " ".join(map(json.dumps, records)).replace("2.5", "2.50")
    answer = await cluster.post(
        "broker-2",
        of_topic(cluster) + "/records",
        content=raw.encode(),
        headers={"content-type": "application/json"},
    )
    reports = [json.loads(line) for line in answer.text.split("\r\n") if line]
    assert [one["error_code"] for one in reports] == [200] * 4
    assert [one.get("value", {}).get("size") for one in reports] == [14, None, 6, 0]
    leader = await cluster.leader_of(TOPIC, 0)
    path, offset = f"/v1/topics/{TOPIC}/partitions/0/records", reports[0]["offset"]
    found = (await cluster.get(leader, path, offset=offset, format="base64")).json()["records"]
    stored = [(one["key"], one["value"]) for one in found]
    assert stored == [
        ("w6k=", "eyJhIjpbMSwyLjUwXX0="),
        ("AAE=", None),
        (None, "InRleHQi"),
        (None, None),
    ]
    assert found[1]["timestamp"] == 1612552482123
    assert found[1]["headers"] == [{"name": "h", "value": "AQ=="}, {"name": "h", "value": None}]


async def test_records_of_one_key_go_where_native_producers_send_them(cluster: Cluster) -> None:
    await cluster.client.create_topic(NewTopic("keyed", 6, 3))
    url = f"/v3/clusters/{cluster.file.cluster_id}/topics/keyed/records"
    for key in ("a", "customer-7", "é"):
        record = {"key": {"type": "STRING", "data": key}}
        ours = (await cluster.post("broker-1", url, json=record)).json()["partition_id"]
        body = {"records": [{"key": key, "value": ""}]}
        native = await cluster.post("broker-2", "/v1/topics/keyed/records", json=body)
        assert ours == native.json()["records"][0]["partition"]
    await cluster.client.delete_topic("keyed")


@pytest.mark.parametrize("prefix", [*PREFIXES, "/v1"])
async def test_a_body_that_breaks_off_is_refused_in_the_format_of_its_path(
    cluster: Cluster, prefix: str
) -> None:
    """The connection itself answers: no layer has the request yet."""
    reader, writer = await asyncio.open_connection(*_address(cluster.url("broker-1")))
    head = f"POST {prefix}/clusters/x/topics?y HTTP/1.1\r\nhost: localhost\r\n"
    writer.write(f"{head}transfer-encoding: chunked\r\n\r\nno length\r\n".encode())
    async with asyncio.timeout(20):
        answer = await reader.read()
    writer.close()
    status, body = answer.partition(b"\r\n")[0].split()[1], answer.partition(b"\r\n\r\n")[2]
    assert status == b"400"
    assert ("outcome" in json.loads(body)) == (prefix not in PREFIXES), body


def _address(url: str) -> tuple[str, int]:
    parts = httpx.URL(url)
    assert parts.port is not None
    return parts.host, parts.port
