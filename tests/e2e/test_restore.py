"""ZooKeeper is lost with all its data: a backup and the brokers' logs bring the cluster back."""

from __future__ import annotations

import asyncio
import json
import shutil
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from leadline_cli.backup.nodes import read_nodes
from leadline_client.payloads import OutgoingRecord
from leadline_client.wire import NewTopic, TopicPartition
from leadline_common.audit_export import EXPORT_PATH, decode_line
from leadline_common.zk.ops import ANY_VERSION
from leadline_common.znodes import BROKER_IDS, CONTROLLER
from tests.support.checks.invariants import examine_records
from tests.support.faults.faults import expired, kill
from tests.support.faults.scenario import TOPIC, Scenario, loaded, running_cluster
from tests.support.services.cluster import CALM, Cluster, wait_until
from tests.support.services.up import command_line

pytestmark = pytest.mark.slow

GROUP = "readers"
SINCE = "since"
"""A topic that the backup lacks."""


async def run(*words: object) -> tuple[int | None, str]:
    """Run `leadline cluster`; return its exit code and what it says."""
    process = await asyncio.create_subprocess_exec(
        *command_line("cluster", *map(str, words), "--json"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    return process.returncode, (out or err).decode()


async def command(*words: object) -> dict[str, Any]:
    """Run `leadline cluster`, which must succeed; return its JSON."""
    code, said = await run(*words)
    assert code == 0, (words, said)
    document: dict[str, Any] = json.loads(said)
    return document


async def kill_everything(cluster: Cluster) -> list[str]:
    """Kill all services at once; return their names."""
    names = [name for name in cluster.supervisor.children if not name.startswith("zookeeper")]
    await asyncio.gather(*(cluster.kill(name) for name in names))
    return names


async def lose_zookeeper(cluster: Cluster) -> None:
    """Delete every node of the cluster, once the services' own are gone with their sessions."""
    async with cluster.zookeeper() as session:

        async def are_gone() -> bool:
            registered = await session.get_children(BROKER_IDS)
            return not registered and await session.exists(CONTROLLER) is None

        await wait_until(are_gone, "all sessions have expired")
        for node in reversed(await read_nodes(session)):
            await session.delete(node.path, ANY_VERSION)


async def shrink_isr(running: Scenario, name: str) -> None:
    """Let a broker miss what is acknowledged from now on."""
    await kill(running, name)
    await expired(running, name)
    await running.load.progress(records=300)


async def test_every_acknowledged_record_outlives_a_lost_zookeeper(tmp_path: Path) -> None:
    async with (
        running_cluster(controllers=2, coordinators=1) as cluster,
        loaded(cluster, NewTopic(TOPIC, 3, 3)) as running,
    ):
        await running.full_isr()
        data_dir, backup = cluster.data_dir, tmp_path / "cluster.backup"
        await command("backup", backup, "--data-dir", data_dir)
        # Since then the ISRs have changed, and a member of the backup's ISRs lacks records.
        await shrink_isr(running, "broker-1")
        since = NewTopic(SINCE, 2, 2, configs={"retention.ms": "1000000"})
        await cluster.client.create_topic(since)
        await cluster.client.produce(SINCE, 1, [OutgoingRecord(b"kept")])
        names = await kill_everything(cluster)
        await lose_zookeeper(cluster)

        survey = tmp_path / "broker-3.json"
        await command("survey", data_dir / "broker-3", survey)
        logs = [data_dir / "broker-1", data_dir / "broker-2", survey]
        report = await command(
            *("restore", backup, "--zookeeper", cluster.file.zookeeper),
            *("--credentials", cluster.credentials.zookeeper_operator),
            *(word for path in logs for word in ("--logs", path)),
            *("--history", data_dir / "controller-1" / "history.db"),
        )
        assert (report["topics"], report["new_topics"]) == (2, [SINCE])
        for name in names:
            cluster.restart(name)
        await running.load.progress(records=500)
        await check_records(running)
        await check_new_topic(cluster)
        await check_audit(cluster)


async def check_records(running: Scenario) -> None:
    """Nothing acknowledged is lost, doubled or reordered, on any replica or for any reader."""
    await running.load.stop()
    await running.settle()
    found = (await examine_records(running.cluster, running.load)).lines()
    assert not found, "\n".join(found)
    running.assert_loaded()


async def check_new_topic(cluster: Cluster) -> None:
    """Its records are there, and no retention that somebody else chose removes them."""
    fetched = await cluster.client.fetch(SINCE, 1, 0)
    assert [record.value for record in fetched.records] == [b"kept"]
    path = f"/v1/topics/{SINCE}/configs"
    configs = (await cluster.get("broker-1", path)).raise_for_status().json()["configs"]
    assert {"retention.ms": "-1"}.items() <= {row["name"]: row["value"] for row in configs}.items()


async def check_audit(cluster: Cluster) -> None:
    """The history of before is there, and goes on."""
    kinds: list[str] = []

    async def goes_on() -> bool:
        active = await cluster.active_controller()
        answer = await cluster.request("GET", active, EXPORT_PATH, timeout=60)
        if answer.status_code == HTTPStatus.SERVICE_UNAVAILABLE:  # It looks for older entries.
            return False
        answer.raise_for_status()
        kinds[:] = [decode_line(line).kind for line in answer.content.splitlines()]
        return "cluster_restored" in kinds[:-1]

    await wait_until(goes_on, "the audit has the restore, and what came after it")
    assert "topic_created" in kinds[: kinds.index("cluster_restored")], kinds


async def write(cluster: Cluster, count: int) -> None:
    for _ in range(count):
        await cluster.client.produce(TOPIC, 0, [OutgoingRecord(b"one")])


async def test_leadline_up_goes_on_where_it_was_with_users_and_groups(tmp_path: Path) -> None:
    data_dir, backup = tmp_path / "data", tmp_path / "cluster.backup"
    whole = Cluster(data_dir, coordinators=1, secure=True, settings=CALM)
    async with whole as cluster:
        await cluster.client.create_topic(NewTopic(TOPIC, 1, 3))
        await write(cluster, 5)
        await cluster.client.commit_offsets(GROUP, {TopicPartition(TOPIC, 0): 3})
        await command("backup", backup, "--data-dir", data_dir)
        await write(cluster, 4)
        known = await cluster.client.new_producer_id()
    shutil.rmtree(data_dir / "zookeeper-1")
    (data_dir / "controller-1" / "history.db").unlink()
    report = await command("restore", backup, "--data-dir", data_dir, "--dry-run")
    assert report["partitions"] == 1
    report = await command("restore", backup, "--data-dir", data_dir)
    assert report["histories"] == [str(data_dir / "controller-1" / "history.db")]
    code, said = await run("restore", backup, "--data-dir", data_dir)
    assert (code, "has this cluster already" in said) == (1, True), said

    again = Cluster(data_dir, coordinators=1, secure=True, settings=CALM)
    async with again as cluster:
        await cluster.in_sync(TOPIC, 3)
        await write(cluster, 1)
        fetched = await cluster.client.fetch(TOPIC, 0, 0)
        assert [record.offset for record in fetched.records] == list(range(10))
        offsets = await cluster.client.group_offsets(GROUP)
        assert [row["offset"] for row in offsets["offsets"]] == [3]
        assert (await cluster.client.new_producer_id()).producer_id > known.producer_id
        code, said = await run("restore", backup, "--data-dir", data_dir)
        assert (code, "stop it first" in said) == (1, True), said
