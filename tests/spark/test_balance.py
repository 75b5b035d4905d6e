"""The balance job on a live cluster: measured, proposed, tried, applied."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from leadline_client.payloads import OutgoingRecord
from leadline_client.wire import NewTopic
from leadline_spark.cluster.cluster_client import ClusterClient
from leadline_spark.jobs import balance
from leadline_spark.jobs.balancing.cluster_snapshot import ClusterSnapshot
from leadline_spark.jobs.balancing.cluster_snapshot import cluster_snapshot as really_look
from tests.spark.live import Live, live_cluster
from tests.support.services.cluster import wait_until

pytestmark = pytest.mark.slow

PARTITIONS = 3


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """A cluster of this module's own that forgets no load: other tests' would count as well."""
    folder = tmp_path_factory.mktemp("balance")
    with live_cluster(folder, settings={"load.window.ms": "600000"}) as cluster:
        yield cluster


@pytest.fixture
def uneven(live: Live, topic: str) -> str:
    """A topic that broker 1 leads all of, with something in it."""

    async def make() -> None:
        everywhere = dict.fromkeys(range(PARTITIONS), (1, 2, 3))
        await live.client.create_topic(NewTopic(topic, replica_assignment=everywhere))
        await live.cluster.in_sync(topic, 3)

    live.run(make())
    for number in range(PARTITIONS):
        live.send(topic, [OutgoingRecord(b"x" * 100_000) for _ in range(20)], partition=number)
    return topic


def balanced(live: Live, capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    """Run the job, copying nothing, and return what it prints."""
    asked = ["--bootstrap", live.bootstrap, "--max-moves", "0", "--tolerance", "0", "--json"]
    assert balance.main([*asked, *words]) == 0
    return json.loads(capsys.readouterr().out.splitlines()[-1])


async def leaders(live: Live, topic: str) -> set[int]:
    state = await live.client.metadata([topic])
    return {partition.leader for partition in state.topics[topic].partitions}


def test_what_is_proposed_is_tried_and_only_applied_on_request(
    spark: SparkSession,
    live: Live,
    uneven: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = tmp_path / "reassignment.json"
    looks: list[ClusterSnapshot] = []

    def cluster_snapshot(cluster: ClusterClient) -> ClusterSnapshot:
        """Look, but see an old version when it first matters."""
        looks.append(really_look(cluster))
        stale = ClusterSnapshot(
            '"0"', *(getattr(looks[-1], name) for name in ClusterSnapshot.__slots__[1:])
        )
        return stale if len(looks) == 2 else looks[-1]

    monkeypatch.setattr(balance, "cluster_snapshot", cluster_snapshot)
    told = balanced(live, capsys, "--out", str(out))
    assert len(looks) >= 3, "once to measure, once in vain, once again"
    assert told["skew"]["leader_bytes"]["after"] < told["skew"]["leader_bytes"]["before"]
    assert (told["moves"], told["bytes_to_move"], told["task"]["dry_run"]) == (0, 0, True)
    ours = [row for row in told["reassignment"]["partitions"] if row["topic"] == uneven]
    assert ours
    assert all(sorted(row["replicas"]) == [1, 2, 3] for row in ours)
    assert json.loads(out.read_text()) == told["reassignment"]
    assert live.run(leaders(live, uneven)) == {1}, "nothing has changed"

    applied = balanced(live, capsys, "--apply")
    assert applied["task"]["id"]

    async def moved() -> bool:
        return len(await leaders(live, uneven)) > 1

    live.run(wait_until(moved, "leaders have been handed over"))
