"""Brokers as processes in a real cluster: kills, pauses, restarts, and what must survive them."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from leadline_broker.api.next_controller import NEXT_CONTROLLER_S
from leadline_cli.credentials import Credentials
from leadline_client.batch_header import parse_headers
from leadline_client.errors import NoController
from leadline_client.wire import NewTopic
from leadline_common.identity import ServiceIdentity
from tests.support.services.cluster import Cluster, wait_until

TOPIC = "t"
STARTED_S = 90.0
"""The longest time in which a broker starts on a busy machine."""


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with Cluster(tmp_path) as running:
        await running.client.create_topic(NewTopic(TOPIC, 3, 3))
        await running.in_sync(TOPIC, 3)
        yield running


async def send(cluster: Cluster, broker: str, value: str, partition: int = 0) -> int:
    """Produce one record with acks=all and return its offset."""
    answer = await cluster.post(
        broker,
        f"/v1/topics/{TOPIC}/partitions/{partition}/records",
        params={"acks": "all", "timeout_ms": 4_000},
        json={"records": [{"value": value}], "format": "string"},
    )
    assert answer.status_code == 200, answer.text
    offset: int = answer.json()["base_offset"]
    return offset


async def read(cluster: Cluster, broker: str, partition: int = 0) -> list[str]:
    """Return all committed values."""
    found: list[str] = []
    offset = 0
    while True:
        answer = await cluster.get(
            broker,
            f"/v1/topics/{TOPIC}/partitions/{partition}/records",
            offset=offset,
            format="string",
        )
        assert answer.status_code == 200, answer.text
        body = answer.json()
        found += [record["value"] for record in body["records"]]
        if body["next_offset"] == offset:
            return found
        offset = body["next_offset"]


async def this_broker(cluster: Cluster, name: str) -> dict[str, object]:
    document: dict[str, object] = (await cluster.get(name, "/v1/broker")).json()
    return document


async def test_a_killed_leader_takes_no_acknowledged_record_along(cluster: Cluster) -> None:
    leader = await cluster.leader_of(TOPIC, 0)
    for number in range(20):
        await send(cluster, leader, f"v{number}")

    await cluster.kill(leader)
    successor = await cluster.leader_of(TOPIC, 0, not_in=[leader])

    async def accepted() -> bool:
        try:
            await send(cluster, successor, "after")
        except AssertionError:
            return False
        return True

    await wait_until(accepted, "the new leader serves")
    values = await read(cluster, successor)
    assert values[:20] == [f"v{number}" for number in range(20)]
    cluster.restart(leader)
    await cluster.in_sync(TOPIC, 3)


async def test_a_restart_before_the_session_ends_is_a_new_incarnation(cluster: Cluster) -> None:
    leader = await cluster.leader_of(TOPIC, 0)
    await send(cluster, leader, "before")
    incarnation = (await this_broker(cluster, leader))["incarnation"]
    epoch = (await cluster.client.describe(TOPIC)).partitions[0].leader_epoch

    await cluster.kill(leader)
    cluster.restart(leader)
    await cluster.until_ready(leader)

    assert incarnation == 1
    assert (await this_broker(cluster, leader))["incarnation"] == 2
    await cluster.in_sync(TOPIC, 3)
    row = (await cluster.client.describe(TOPIC)).partitions[0]
    assert row.leader_epoch > epoch
    assert await read(cluster, f"broker-{row.leader}") == ["before"]


async def test_a_request_waits_for_the_next_controller(cluster: Cluster) -> None:
    """A caller without retries needs none while the controller changes."""
    await cluster.kill("controller-1")
    cluster.restart("controller-1")
    new_topic = {"name": "waited", "partitions": 1, "replication_factor": 3}

    async def created() -> bool:
        begun = time.monotonic()
        answer = await cluster.post("broker-1", "/v1/topics", json=new_topic, timeout=60)
        if answer.status_code == httpx.codes.CREATED:
            return True
        assert answer.json()["error_code"] == NoController.code, answer.text
        assert time.monotonic() - begun >= NEXT_CONTROLLER_S, "it did not wait"
        return False

    await wait_until(created, "the topic is created", STARTED_S)


async def test_a_broker_that_was_told_nothing_yet_does_not_say_that_there_is_nothing(
    cluster: Cluster,
) -> None:
    await cluster.kill("controller-1")
    await cluster.kill("broker-1")
    cluster.restart("broker-1")

    async def answer() -> httpx.Response | None:
        try:
            return await cluster.get("broker-1", "/v1/metadata")
        except httpx.TransportError:
            return None  # not up yet

    first = await wait_until(answer, "the broker answers")
    assert (first.status_code, first.json()["error_code"]) == (503, NoController.code)
    cluster.restart("controller-1")

    async def is_told() -> bool:
        known = await cluster.get("broker-1", "/v1/metadata")
        return known.status_code == 200 and TOPIC in known.json()["topics"]

    await wait_until(is_told, "the broker is told")


async def test_a_long_poll_is_answered_by_a_broker_that_stops(cluster: Cluster) -> None:
    polling = asyncio.create_task(cluster.get("broker-1", "/v1/metadata", after=10**9, wait="25s"))
    await this_broker(cluster, "broker-1")  # which it asks after that

    assert await cluster.terminate("broker-1") == 0

    assert (await polling).status_code == 200


async def test_a_clean_stop_leaves_nothing_to_recover(cluster: Cluster) -> None:
    leader = await cluster.leader_of(TOPIC, 0)
    await send(cluster, leader, "v")

    assert await cluster.terminate(leader) == 0
    log = cluster.log(leader)
    cluster.restart(leader)
    await cluster.until_ready(leader)

    assert '"event": "logs closed"' in log
    opened = [
        json.loads(line)
        for line in cluster.log(leader).splitlines()
        if '"event": "logs opened"' in line
    ][-1]
    assert (opened["clean_incarnation"], opened["scanned_bytes"]) == (1, 0)


async def test_a_leader_that_was_frozen_past_its_session_serves_nothing_stale(
    cluster: Cluster,
) -> None:
    leader = await cluster.leader_of(TOPIC, 0)
    await send(cluster, leader, "v")
    cluster.pause(leader)
    successor = await cluster.leader_of(TOPIC, 0, not_in=[leader])

    cluster.resume(leader)
    with pytest.raises(AssertionError, match=r"BrokerFenced|50353|42150|50351"):
        await send(cluster, leader, "stale")

    await cluster.until_ready(leader)
    await cluster.in_sync(TOPIC, 3)
    assert await read(cluster, successor) == ["v"]
    assert (await this_broker(cluster, leader))["incarnation"] == 2


async def test_records_of_a_deleted_topic_leave_every_disk(cluster: Cluster) -> None:
    leader = await cluster.leader_of(TOPIC, 0)
    await send(cluster, leader, "v")

    await cluster.client.delete_topic(TOPIC)

    async def gone() -> bool:
        return not list(cluster.data_dir.glob(f"broker-*/{TOPIC}-*"))

    await wait_until(gone, "the directories are gone")


async def test_a_foreign_log_directory_is_refused(cluster: Cluster) -> None:
    argv = list(cluster.service("broker-1").argv)
    await cluster.kill("broker-1")
    argv[argv.index("broker.id=1")] = "broker.id=7"
    setting = "internal.certificate.file="
    place = next(index for index, word in enumerate(argv) if word.startswith(setting))
    credentials = Credentials(Path(argv[place].removeprefix(setting)).parent)
    credentials.create([ServiceIdentity("broker", 7)])
    argv[place] = f"{setting}{credentials.certificate_of(ServiceIdentity('broker', 7))}"

    ended = await asyncio.to_thread(
        subprocess.run, argv, capture_output=True, text=True, timeout=60, check=False
    )

    assert ended.returncode == 1
    assert "belongs to broker 1" in ended.stderr + ended.stdout


def flip_a_bit_in_the_last_epoch(partition: Path) -> None:
    (segment,) = partition.glob("*.log")
    content = bytearray(segment.read_bytes())
    last = [header.position for header in parse_headers(content)][-1]
    content[last + 14] ^= 0x04
    segment.write_bytes(content)


async def test_defect_08_a_broker_with_a_flipped_bit_in_a_leader_epoch_leads_again(
    tmp_path: Path,
) -> None:
    """The bit is in the last batch, beyond the checkpointed high watermark."""
    never = {"replica.high.watermark.checkpoint.interval.ms": "3600000"}
    async with Cluster(tmp_path, brokers=1, settings=never) as cluster:
        await cluster.client.create_topic(NewTopic(TOPIC, 1, 1))
        ends = [await send(cluster, "broker-1", value) for value in ("a", "b", "damaged")]
        await cluster.kill("broker-1")
        flip_a_bit_in_the_last_epoch(tmp_path / "broker-1" / f"{TOPIC}-0")

        cluster.restart("broker-1")
        await cluster.until_ready("broker-1")
        await cluster.leader_of(TOPIC, 0)

        assert await send(cluster, "broker-1", "after") == ends[-1]
        assert await read(cluster, "broker-1") == ["a", "b", "after"]
        assert "which is not recorded for offset" in cluster.log("broker-1")


def replace_the_segment_by_a_directory(partition: Path) -> None:
    (segment,) = partition.glob("*.log")
    segment.unlink()
    segment.mkdir()


async def test_defect_10_and_defect_18_a_log_that_cannot_be_opened_makes_one_broker_not_ready(
    cluster: Cluster,
) -> None:
    """The audit stays readable, and the other partitions of the broker work."""
    for partition in (0, 1):
        await send(cluster, await cluster.leader_of(TOPIC, partition), "v", partition)
    await cluster.kill("broker-3")
    replace_the_segment_by_a_directory(cluster.data_dir / "broker-3" / f"{TOPIC}-1")
    await cluster.leader_of(TOPIC, 1, not_in=["broker-3"])

    cluster.restart("broker-3")

    async def reason() -> str:
        try:
            ready = (await cluster.get("broker-3", "/readyz")).json()
        except httpx.TransportError:
            return ""
        return "" if ready["ready"] else " ".join(ready["reasons"])

    async def is_late() -> bool:
        return f"granted roles not taken: 1, first {TOPIC}-1 at leader epoch" in await reason()

    await wait_until(is_late, "the broker names the role that it has not taken", STARTED_S)
    for _ in range(3):
        answer = await cluster.get("controller-1", "/v1/audit")
        assert answer.status_code == 200, answer.text

    async def others_in_sync() -> bool:
        rows = (await cluster.client.describe(TOPIC)).partitions
        return [len(row.isr) for row in rows] == [3, 2, 3]

    await wait_until(others_in_sync, "the broker's other replicas are in sync")
