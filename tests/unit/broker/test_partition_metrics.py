"""The metrics of a broker's replicas, flushes and stages, and their limits."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from leadline_client.errors import NotEnoughReplicasAfterAppend, RequestTimedOut
from tests.unit.broker.small_cluster import TOPIC, SmallCluster, three

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[SmallCluster]:
    async with await three(tmp_path) as running:
        yield running


def scrape(cluster: SmallCluster, number: int = 1) -> Samples:
    """Return the samples that a broker serves, by name and labels."""
    text = cluster.brokers[number]._dependencies.metrics._metrics.render().decode()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(samples: Samples, name: str, **labels: str) -> float | None:
    return samples.get((f"leadline_{name}", frozenset(labels.items())))


def labelled(samples: Samples, name: str) -> list[dict[str, str]]:
    return [dict(labels) for found, labels in samples if found == f"leadline_{name}"]


def add_replicas(cluster: SmallCluster, topic: str, count: int) -> None:
    """Create empty replicas on broker 1."""
    replicas = cluster.brokers[1].engine.replicas
    known = replicas.named(TOPIC, 0)
    assert known is not None
    for number in range(count):
        replicas.create(topic, f"id-of-{topic}", number, known.settings)


async def test_a_partition_shows_its_log_and_its_isr(cluster: SmallCluster) -> None:
    await cluster.produce(1, "one", "two")
    where = {"topic": TOPIC, "partition": "0"}

    leader, follower = scrape(cluster), scrape(cluster, 2)

    assert value(leader, "partition_log_end_offset", **where) == 2
    assert value(leader, "partition_high_watermark_offset", **where) == 2
    assert value(leader, "partition_log_start_offset", **where) == 0
    assert (value(leader, "partition_log_size_bytes", **where) or 0) > 0
    assert value(leader, "partition_in_sync_replicas", **where) == 3
    assert value(leader, "partition_under_replicated", **where) == 0
    assert value(leader, "partition_leader", **where) == 1
    assert value(follower, "partition_leader", **where) == 0
    assert value(follower, "partition_in_sync_replicas", **where) is None
    assert value(follower, "partition_log_end_offset", **where) == 2


async def test_replicas_out_of_sync_are_counted_with_their_topic(cluster: SmallCluster) -> None:
    cluster.cut.update((2, 3))
    with pytest.raises((RequestTimedOut, NotEnoughReplicasAfterAppend)):
        await cluster.produce(1, "alone", timeout_ms=50)
    await cluster.until(lambda: cluster.nodes.states[TOPIC, 0].isr == (1,), "2 and 3 are out")
    await cluster.until(
        lambda: value(scrape(cluster), "under_replicated") == 1, "the leader knows it"
    )

    samples = scrape(cluster)

    assert value(samples, "topic_under_replicated_partitions", topic=TOPIC) == 1
    assert value(samples, "partition_under_replicated", topic=TOPIC, partition="0") == 1
    assert value(samples, "partition_in_sync_replicas", topic=TOPIC, partition="0") == 1
    assert value(samples, "uncommitted_records_max") == 1


async def test_produced_and_fetched_records_count_for_their_topic(cluster: SmallCluster) -> None:
    await cluster.produce(1, "one", "two")
    fetched = await cluster.brokers[1].engine.serving.fetch(
        TOPIC, 0, 0, max_bytes=1_000, min_bytes=1, wait_ms=0
    )

    samples = scrape(cluster)

    assert value(samples, "topic_records_in_total", topic=TOPIC) == 2
    assert value(samples, "topic_records_out_total", topic=TOPIC) == 2
    assert value(samples, "topic_bytes_out_total", topic=TOPIC) == len(fetched.records)
    assert value(samples, "topic_bytes_in_total", topic=TOPIC) == len(fetched.records)
    assert value(scrape(cluster, 2), "topic_records_in_total", topic=TOPIC) == 0


async def test_beyond_the_limits_there_are_only_sums_and_what_was_left_out(
    tmp_path: Path,
) -> None:
    async with await three(tmp_path, metrics_partitions_max=5, metrics_topics_max=2) as cluster:
        add_replicas(cluster, "a", 3)
        add_replicas(cluster, "b", 4)
        await cluster.produce(1, "counted")

        samples = scrape(cluster)

    shown = labelled(samples, "partition_log_end_offset")
    assert sorted((one["topic"], one["partition"]) for one in shown) == [
        ("a", "0"),
        ("a", "1"),
        ("a", "2"),
        ("b", "0"),
        ("b", "1"),
    ]
    assert value(samples, "topic_replicas", topic="b") == 4
    assert value(samples, "topic_replicas", topic=TOPIC) is None
    assert value(samples, "metrics_omitted", kind="partitions") == 3
    assert value(samples, "metrics_omitted", kind="topics") == 1
    assert value(samples, "replicas") == 8
    assert value(samples, "records_in_total") == 1


async def test_the_labels_of_a_deleted_topic_go_and_so_does_its_traffic(
    cluster: SmallCluster,
) -> None:
    await cluster.produce(1, "one")
    replicas = cluster.brokers[1].engine.replicas
    found = replicas.named(TOPIC, 0)
    assert found is not None
    replicas.delete(found)()
    assert not labelled(scrape(cluster), "topic_records_in_total")

    replicas.create(TOPIC, "recreated", 0, found.settings)

    assert value(scrape(cluster), "topic_records_in_total", topic=TOPIC) == 0


async def test_the_log_directory_and_its_disk_have_sizes(cluster: SmallCluster) -> None:
    await cluster.produce(1, "one")
    where = {"log_dir": str(cluster.root / "1")}

    samples = scrape(cluster)

    size = value(samples, "partition_log_size_bytes", topic=TOPIC, partition="0")
    assert value(samples, "log_dir_size_bytes", **where) == size
    free = value(samples, "log_dir_free_bytes", **where)
    assert 0 < (free or 0) < (value(samples, "log_dir_capacity_bytes", **where) or 0)


async def test_flushes_and_stages_are_timed(cluster: SmallCluster) -> None:
    before = scrape(cluster)
    await cluster.produce(1, "one", "two")
    await cluster.produce(1, "three")
    await cluster.brokers[1].engine.serving.fetch(
        TOPIC, 0, 3, max_bytes=1_000, min_bytes=1, wait_ms=1
    )

    samples = scrape(cluster)

    def grown(name: str, **labels: str) -> float:
        return (value(samples, name, **labels) or 0) - (value(before, name, **labels) or 0)

    assert grown("flush_group_records_sum") == 3
    assert grown("flush_group_bytes_sum") == grown("bytes_in_total")
    assert grown("fsync_seconds_count") == grown("flush_group_logs_sum") == 2
    for stage in ("check", "append", "replicate"):
        assert grown("produce_stage_seconds_count", stage=stage) == 2
    assert grown("fetch_stage_seconds_count", stage="wait") == 1
    assert grown("fetch_stage_seconds_count", stage="read") >= 1
