"""The unmodified Go SDK of the v3 API, used through every broker, whoever leads and coordinates.

The program in `v3_sdk` makes the calls, and decodes the answers as strictly as any of its users.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio

from leadline_client.client import AsyncClient
from leadline_client.consumer import AsyncConsumer
from leadline_client.wire import NewTopic
from tests.support.services.cluster import Cluster, wait_until
from tests.support.v3.go_client import build

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="package"), pytest.mark.timeout(600)]

GROUP, TOPIC = "sdk-readers", "sdk-read"
BROKERS: Final = (0, 1, 2)
REFUSED: Final = {
    "another cluster": (404, 404),
    "create again": (400, 40002),
    "unknown config": (404, 404),
    "config without value": (400, 40002),
    "unknown partition": (404, 404),
    "no reassignment": (404, 404),
    "produce malformed": (400, 400),
    "produce schema": (422, 42206),
    "produce nowhere": (404, 40402),
    "unknown group": (404, 404),
    "remove unknown broker": (404, 404),
    "unregister a live broker": (400, 40002),
    "get after delete": (404, 40403),
    "delete again": (404, 40403),
}
"""The status and the error code of the steps that must fail."""
Answers = dict[tuple[int, str], dict[str, Any]]


@asynccontextmanager
async def reader(cluster: Cluster) -> AsyncIterator[AsyncConsumer]:
    """A live member of `GROUP` that has committed offsets of `TOPIC`."""
    urls = cluster.bootstrap.split(",")
    stopping = asyncio.Event()
    async with AsyncClient(urls) as client, AsyncConsumer(client, GROUP) as consumer:
        await client.create_topic(NewTopic(TOPIC, 2, 3))
        await consumer.subscribe([TOPIC])

        async def poll() -> None:
            while not stopping.is_set():
                await consumer.poll(0.2)

        polling = asyncio.create_task(poll())

        async def owned() -> bool:
            return len(consumer.assignment) == 2 or polling.done()

        await wait_until(owned, "the member owns the topic")
        yield consumer
        stopping.set()
        await polling
    await cluster.client.delete_topic(TOPIC)


async def commit(cluster: Cluster) -> None:
    """Append to partition 0, and wait until the group has a committed offset there."""
    name, path = await cluster.leader_of(TOPIC, 0), f"/v1/topics/{TOPIC}/partitions/0/records"
    body = {"records": [{"value": "v"}] * 3}
    (await cluster.post(name, path, json=body)).raise_for_status()

    async def committed() -> bool:
        found = await cluster.get("broker-1", f"/v1/groups/{GROUP}/offsets")
        return found.status_code == 200 and any(
            row["offset"] == 3 for row in found.json()["offsets"]
        )

    await wait_until(committed, "the group has committed")


@pytest_asyncio.fixture(scope="module", loop_scope="package")
async def answers(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """What each step of the program got, by broker and step; repeated steps are those of a list."""
    program = tmp_path_factory.mktemp("go") / "v3sdk"
    await asyncio.to_thread(build, program)
    cluster_id = cluster.file.cluster_id
    bases = [f"{url}/{prefix}" for url, prefix in zip(urls(cluster), PREFIXES, strict=True)]
    async with reader(cluster):
        await commit(cluster)
        said = await run(program, GROUP, cluster_id, *bases)
    lines = [json.loads(line) for line in said.splitlines()]
    return {(line["broker"], line["step"]): line for line in lines}


PREFIXES: Final = ("v3", "kafka/v3", "v3")


def urls(cluster: Cluster) -> list[str]:
    return [cluster.url(f"broker-{number}") for number in (1, 2, 3)]


async def run(program: Path, *arguments: str) -> str:
    process = await asyncio.create_subprocess_exec(
        program,
        *arguments,
        env={"NO_PROXY": "*"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    said, complained = await process.communicate()
    assert process.returncode == 0, complained.decode()
    return said.decode()


def value(answers: Answers, broker: int, step: str) -> Any:
    return answers[broker, step]["value"]


async def test_every_call_succeeds_or_fails_with_its_code(answers: Answers) -> None:
    wrong = [
        line
        for (_, step), line in answers.items()
        if (line["status"], line.get("code", 0)) != REFUSED.get(step, (line["status"], 0))
        or (step not in REFUSED and (line["status"] >= 300 or "error" in line))
    ]
    assert not wrong
    assert set(REFUSED) <= {step for _, step in answers}
    assert Counter(broker for broker, _ in answers) == dict.fromkeys(BROKERS, 58)


@pytest.mark.parametrize("broker", BROKERS)
async def test_topics_are_created_grown_and_altered(answers: Answers, broker: int) -> None:
    topic = f"sdk-{broker}"
    created = value(answers, broker, "create")
    assert answers[broker, "create"]["status"] == 201
    assert (created["topic_name"], created["partitions_count"]) == (topic, 2)
    assert created["replication_factor"] == 3
    assert value(answers, broker, "get after create") == created
    assert value(answers, broker, "grow")["partitions_count"] == 3
    assert [one["partition_id"] for one in value(answers, broker, "partitions")["data"]] == [
        0,
        1,
        2,
    ]
    set_config = value(answers, broker, "config")
    assert (set_config["value"], set_config["source"]) == ("7200000", "DYNAMIC_TOPIC_CONFIG")
    configs = {one["name"]: one for one in value(answers, broker, "configs")["data"]}
    assert configs["retention.ms"]["is_default"]
    assert configs["min.insync.replicas"]["value"] == "2"
    replicas = value(answers, broker, "replicas")["data"]
    assert [one["broker_id"] for one in replicas] == [1, 2, 3]
    assert sum(one["is_leader"] for one in replicas) == 1


@pytest.mark.parametrize("broker", BROKERS)
async def test_records_go_to_every_partition(answers: Answers, broker: int) -> None:
    sizes = {"to 0": 4, "to 1": 3, "to 2": 7}
    for partition, (step, size) in enumerate(sizes.items()):
        done = value(answers, broker, f"produce {step}")
        assert (done["partition_id"], done["offset"]) == (partition, 0)
        assert done["value"]["size"] == size
    assert value(answers, broker, "produce by key")["partition_id"] == 2
    tombstone = value(answers, broker, "produce tombstone")
    assert tombstone["key"] == {"size": 1, "type": "STRING"}
    assert "value" not in tombstone


@pytest.mark.parametrize("broker", BROKERS)
async def test_groups_and_lags_are_read(answers: Answers, broker: int) -> None:
    group = value(answers, broker, "group")
    assert (group["state"], group["is_simple"]) == ("STABLE", False)
    assert group["coordinator"]["related"].rpartition("/")[2].isdecimal()
    [consumer] = value(answers, broker, "consumers")["data"]
    assert group["consumer"]["related"].endswith(f"/{GROUP}/consumers")
    assert len(value(answers, broker, "assignments")["data"]) == 2
    lags = {one["partition_id"]: one for one in value(answers, broker, "lags")["data"]}
    assert (lags[0]["current_offset"], lags[0]["log_end_offset"], lags[0]["lag"]) == (3, 3, 0)
    assert lags[0]["consumer_id"] == consumer["consumer_id"]
    summary = value(answers, broker, "lag summary")
    assert (summary["total_lag"], summary["max_lag_topic_name"]) == (0, TOPIC)


@pytest.mark.parametrize("broker", BROKERS)
async def test_links_name_the_broker_and_the_prefix_that_were_used(
    answers: Answers, cluster: Cluster, broker: int
) -> None:
    base = f"{urls(cluster)[broker]}/{PREFIXES[broker]}"
    for line in (line for (number, _), line in answers.items() if number == broker):
        links = json.dumps(line.get("value", {})).split('"')
        assert all(link.startswith(base) for link in links if link.startswith("http"))
