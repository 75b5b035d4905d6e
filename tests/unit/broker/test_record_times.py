"""Records too far ahead of the clock: refused, so that they do not hold up retention by time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from leadline_broker.runtime.replication.topic_settings import TopicSettings
from leadline_broker.runtime.serving.batch_checks import check_times
from leadline_client import batches
from leadline_client.errors import InvalidTimestamp
from leadline_common.settings import BrokerSettings
from tests.unit.broker.small_cluster import TOPIC, NewRecord, SmallCluster, three

DAY_MS = 24 * 3_600_000


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[SmallCluster]:
    async with await three(tmp_path) as running:
        yield running


def ahead(cluster: SmallCluster, *by_ms: int) -> bytearray:
    """Return a batch of records that are so far ahead of a leader's clock."""
    now_ms = cluster.brokers[1].engine.serving.clock.wall_ms()
    records = [NewRecord(b"v", timestamp=now_ms + one) for one in by_ms]
    return bytearray(batches.encode(records, now_ms=now_ms))


async def own_limit(cluster: SmallCluster, limit_ms: int) -> None:
    """Repeat the role of the leader, with a limit of the topic's own."""
    request = cluster.request(1)
    configs = {"message.timestamp.after.max.ms": str(limit_ms)}
    topics = [msgspec.structs.replace(topic, configs=configs) for topic in request.topics]
    commands = cluster.brokers[1].engine.commands
    await commands.leader_and_isr(msgspec.structs.replace(request, topics=topics))


@pytest.mark.parametrize("number", [0, 1])
async def test_one_record_that_is_too_far_ahead_refuses_its_batch(
    cluster: SmallCluster, number: int
) -> None:
    times = [0, 0]
    times[number] = DAY_MS + 60_000

    with pytest.raises(InvalidTimestamp, match=r"message\.timestamp\.after\.max\.ms"):
        await cluster.send(1, ahead(cluster, *times))

    assert cluster.end(1) == 0
    await cluster.send(1, ahead(cluster, DAY_MS - 60_000))


async def test_a_staged_batch_is_checked_before_it_is_kept(cluster: SmallCluster) -> None:
    staging = cluster.brokers[1].engine.staging

    with pytest.raises(InvalidTimestamp):
        await staging.stage(TOPIC, 0, ahead(cluster, DAY_MS + 60_000))

    assert staging.used_bytes == 0


async def test_a_topic_has_a_limit_of_its_own(cluster: SmallCluster) -> None:
    await own_limit(cluster, 60_000)
    with pytest.raises(InvalidTimestamp):
        await cluster.send(1, ahead(cluster, 120_000))

    await own_limit(cluster, -1)

    await cluster.send(1, ahead(cluster, 400 * DAY_MS))


def test_the_last_moment_is_allowed() -> None:
    data = batches.encode([NewRecord(b"v", timestamp=1_000)], now_ms=0)
    headers = batches.validate(data)
    check_times(headers, 1_000)
    with pytest.raises(InvalidTimestamp):
        check_times(headers, 999)


def test_a_config_of_a_newer_release_does_not_switch_the_others_off() -> None:
    settings = TopicSettings(BrokerSettings(broker_id=1, log_dir="logs"))

    merged = settings.of({"of.the.future": "1", "min.insync.replicas": "3", "retention.ms": "no"})

    assert merged.replica.min_insync_replicas == 3
    assert merged.retention_ms == settings.of({}).retention_ms
