"""The cluster as tables, from controllers and a coordinator over a real ZooKeeper."""

from __future__ import annotations

import gzip
import json
from typing import Any

import httpx
import pytest

from leadline_common.audit_export import EXPORT_PATH, HEAD_HEADER, OLDEST_HEADER
from leadline_common.export_tables import AUDIT_TABLE, EXPORT, VERSION_HEADER
from leadline_common.zk.session import ZkSession
from tests.support.reassigning import post_reassignment
from tests.support.services.cluster import wait_until
from tests.support.services.controller_rig import Rig, create
from tests.support.services.controllers import RunningController
from tests.support.services.coordinators import FrameConsumer, coordinator, make_topic
from tests.support.services.zookeeper import until

pytestmark = pytest.mark.slow


def rows_of(answer: httpx.Response) -> list[dict[str, Any]]:
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


async def audit(controller: RunningController, **params: int) -> list[dict[str, Any]]:
    return rows_of(await controller.http.get(AUDIT_TABLE, params=params))


async def table(controller: RunningController, name: str) -> tuple[int, list[dict[str, Any]]]:
    """Return the version that a table is of, and its rows."""
    answer = await controller.http.get(f"{EXPORT}/{name}")
    return int(answer.headers[VERSION_HEADER]), rows_of(answer)


async def test_ranges_of_the_audit_are_its_parts_on_every_controller(rig: Rig) -> None:
    first = await rig.up(1)
    second = await rig.controller()
    for number in range(4):
        await create(first, f"topic-{number}")
    whole = rows_of(await first.http.get("/v1/audit/export"))
    head = (await first.http.get(f"{AUDIT_TABLE}/head")).json()
    newest = whole[-1]
    assert head == {"oldest": 0, "head": newest["id"], "head_time": newest["time"]}
    for controller in (first, second):
        assert await audit(controller) == whole
        parts = await audit(controller, before=3)
        parts += await audit(controller, after=2, before=5)
        parts += await audit(controller, after=4)
        assert parts == whole
        assert await audit(controller, after=1, limit=2) == whole[2:4]
        assert await audit(controller, after=newest["id"]) == []
        assert await audit(controller, before=0) == []


async def test_an_answer_says_what_of_the_audit_is_gone(rig: Rig) -> None:
    controller = await rig.up(1)
    for number in range(3):
        await create(controller, f"topic-{number}")
    whole = await audit(controller)
    gone = await controller.replicator.history.forget_before(whole[2]["time"])
    assert gone >= 1
    answer = await controller.http.get(AUDIT_TABLE)
    assert rows_of(answer) == whole[gone:]
    assert int(answer.headers[OLDEST_HEADER]) == gone
    assert int(answer.headers[HEAD_HEADER]) == whole[-1]["id"]
    head = (await controller.http.get(f"{AUDIT_TABLE}/head")).json()
    assert (head["oldest"], head["head"]) == (gone, whole[-1]["id"])


async def test_lines_are_compressed_for_who_asks_for_it(rig: Rig) -> None:
    controller = await rig.up(1)
    await create(controller, partitions=50, replication_factor=1)
    for path in (AUDIT_TABLE, EXPORT_PATH):
        answers = {}
        for coding in ("gzip", "identity"):
            headers = {"accept-encoding": coding}
            async with controller.http.stream("GET", path, headers=headers) as answer:
                answers[coding] = b"".join([chunk async for chunk in answer.aiter_raw()])
                assert answer.headers.get("content-encoding", "identity") == coding
                assert answer.headers["vary"] == "Accept-Encoding"
        assert gzip.decompress(answers["gzip"]) == answers["identity"]
        assert 3 * len(answers["gzip"]) < len(answers["identity"])


async def test_partitions_and_brokers_are_those_of_the_metadata(rig: Rig) -> None:
    controller = await rig.up(3)
    await create(controller, "orders", replica_assignment={"0": [1, 2, 3], "1": [2, 3, 1]})
    await create(controller, "clicks", configs={"min.insync.replicas": 1})
    await rig.brokers[1].stop()
    await rig.settled(controller)
    metadata = (await controller.http.get("/v1/metadata")).json()
    version, partitions = await table(controller, "partitions")
    assert version == metadata["version"]
    assert [(row["topic"], row["partition"]) for row in partitions] == [
        ("clicks", 0),
        ("orders", 0),
        ("orders", 1),
    ]
    for row in partitions:
        topic = metadata["topics"][row["topic"]]
        shown = [row[name] for name in ("partition", "leader", "leader_epoch", "isr", "replicas")]
        assert shown == topic["partitions"][row["partition"]]
        assert row["topic_id"] == topic["topic_id"]
        assert row["metadata_version"] == version
        assert row["min_insync_replicas"] == (1 if row["topic"] == "clicks" else 2)
    version, brokers = await table(controller, "brokers")
    shown = (await controller.http.get("/v1/brokers")).json()["brokers"]
    added = {"metadata_version": version, "draining": False, "stopping": False}
    assert brokers == [row | added for row in shown]


async def test_reassignments_under_way_are_a_table(rig: Rig) -> None:
    controller = await rig.up(4)
    await create(controller, replica_assignment={"0": [1, 2, 3]})
    assert (await table(controller, "reassignments"))[1] == []
    await post_reassignment(controller, {("orders", 0): [2, 3, 4]})

    async def begun() -> bool:
        return [row["adding"] for row in (await table(controller, "reassignments"))[1]] == [[4]]

    await wait_until(begun, "the replica is being added")
    version, rows = await table(controller, "reassignments")
    shown = (await controller.http.get("/v1/reassignments")).json()["reassignments"]
    assert [row["target"] for row in shown] == [[2, 3, 4]]
    assert rows == [{"metadata_version": version, **row} for row in shown]


async def test_groups_are_a_table_of_the_coordinator(zk_chroot: str, zk_session: ZkSession) -> None:
    await make_topic(zk_session, "orders", 2)
    async with coordinator(zk_chroot) as made:
        await made.active()
        consumer = FrameConsumer(made.url, "billing")
        await consumer.connect()
        await until(lambda: len(consumer.owned) == 2, "the consumer owns the topic")
        answer = await made.http.get(f"{EXPORT}/groups")
        (row,) = rows_of(answer)
        assert row == (await made.http.get("/v1/groups/billing")).json()
        assert row["members"][0]["owned"] == [["orders", [0, 1]]]
        assert int(answer.headers["Leadline-Coordinator-Epoch"]) == row["coordinator_epoch"]
        await consumer.drop()
