"""Settings that change while a broker runs: each takes effect at once; invalid ones are ignored."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import msgspec
import pytest

from leadline_broker.adapters.disk import DiskLogs
from leadline_client import batches
from leadline_client.errors import (
    BodyTooLarge,
    InvalidTimestamp,
    NotEnoughReplicas,
    StagingFull,
    TooManyProducers,
)
from leadline_common import rpc
from leadline_common.settings import BrokerSettings, settings_table
from leadline_common.slices import SLICE
from leadline_common.zk.errors import ConnectionLoss
from tests.support.bad_input.batches import bomb
from tests.support.turns import answer_and_turns
from tests.unit.broker.small_cluster import (
    CLUSTER,
    TOPIC,
    TOPIC_ID,
    NewRecord,
    NodeStore,
    SmallCluster,
    batch,
    three,
)

PROVED = {
    "controlled.shutdown.enable",
    "controlled.shutdown.timeout.ms",
    "load.window.ms",
    "log.flush.timeout.ms",
    "log.message.timestamp.after.max.ms",
    "log.retention.bytes",
    "log.retention.ms",
    "log.scrub.bytes.per.s",
    "log.scrub.interval.ms",
    "log.segment.bytes",
    "message.max.bytes",
    "message.max.decompressed.bytes",
    "min.insync.replicas",
    "open.files.max",
    "producer.ids.max",
    "quota.fetch.bytes.per.s",
    "quota.produce.bytes.per.s",
    "quota.requests.per.s",
    "replica.lag.time.max.ms",
    "staging.max.bytes",
    "staging.ttl.ms",
}
"""The settings whose effect on a running broker a test shows.

Here, in test_record_quotas.py, in test_hanging_disk.py, or in test_runtime_scrubber.py.
"""


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[SmallCluster]:
    async with await three(tmp_path, replica_lag_time_max_ms=60_000) as running:
        yield running


def current(cluster: SmallCluster, number: int = 1) -> BrokerSettings:
    return cluster.brokers[number]._configuration.current


async def configured(cluster: SmallCluster, level: int = CLUSTER, **settings: object) -> None:
    """Set dynamic settings, and wait until the brokers use them."""
    cluster.nodes.configure(level, **settings)
    numbers = cluster.brokers if level == CLUSTER else [level]
    await cluster.until(
        lambda: all(
            getattr(current(cluster, number), name) == value
            for number in numbers
            for name, value in settings.items()
        ),
        "the settings are in force",
    )


async def granted(cluster: SmallCluster, **configs: str) -> None:
    """Repeat the role of the leader, with other settings of the topic."""
    request = cluster.request(1)
    topics = [msgspec.structs.replace(topic, configs=configs) for topic in request.topics]
    (
        await cluster.brokers[1].engine.commands.leader_and_isr(
            msgspec.structs.replace(request, topics=topics)
        )
    )


def segments(cluster: SmallCluster, number: int = 1) -> int:
    return len(list((cluster.root / str(number) / f"{TOPIC}-0").glob("*.log")))


def test_every_setting_that_can_change_is_shown_to_change_something() -> None:
    dynamic = {
        row.name
        for row in settings_table()
        if row.dynamic and row.owner in {"broker", "every service"}
    }

    assert dynamic == PROVED


async def test_fewer_in_sync_replicas_are_enough_from_now_on(tmp_path: Path) -> None:
    async with await three(tmp_path, min_insync_replicas=3) as cluster:
        cluster.cut.update((2, 3))
        waiting = asyncio.create_task(cluster.produce(1, "parked"))
        await cluster.until(lambda: len(cluster.nodes.states[TOPIC, 0].isr) == 1, "2 and 3 are out")
        with pytest.raises(NotEnoughReplicas):
            await cluster.produce(1, "refused")

        await configured(cluster, min_insync_replicas=1)

        await waiting
        await cluster.produce(1, "accepted")


async def test_more_in_sync_replicas_are_asked_for_from_now_on(tmp_path: Path) -> None:
    async with await three(tmp_path, min_insync_replicas=1) as cluster:
        cluster.cut.update((2, 3))
        await cluster.produce(1, "accepted")

        await configured(cluster, min_insync_replicas=3)

        with pytest.raises(NotEnoughReplicas):
            await cluster.produce(1, "refused")


async def test_a_setting_that_changes_during_a_large_grant_holds_for_all_of_it(
    tmp_path: Path,
) -> None:
    """Roles are taken in turns, and other things happen between two of them."""
    async with SmallCluster(tmp_path, min_insync_replicas=1) as cluster:
        await cluster.start(1)
        numbers = range(SLICE + 10)
        for number in numbers:
            cluster.publish(1, 0, (1,), partition=number)
        granting = asyncio.create_task(
            cluster.grant(1, init=True, replicas=(1,), partitions=numbers)
        )
        engine = cluster.brokers[1].engine
        async with asyncio.timeout(10):
            while not len(engine.replicas):  # noqa: ASYNC110 - the next turn is meant
                await asyncio.sleep(0)  # one turn of the loop
        assert len(engine.replicas) < len(numbers)
        changed = current(cluster).model_copy(update={"min_insync_replicas": 2})
        cluster.brokers[1]._configuration.current = changed
        await engine.reconfigure()

        await granting

        settings = {partition.settings.replica for partition in engine.replicas.all()}
        assert {one.min_insync_replicas for one in settings} == {2}


async def test_very_many_replicas_are_reconfigured_in_turns(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = cluster.brokers[1].engine
    many = engine.replicas.all() * (5 * SLICE)
    monkeypatch.setattr(engine.replicas, "all", lambda: many)
    changed = current(cluster).model_copy(update={"log_segment_bytes": 2**20})
    cluster.brokers[1]._configuration.current = changed

    _, turns = await answer_and_turns(engine.reconfigure())

    assert turns >= 5


async def test_a_replica_that_is_deleted_meanwhile_is_left_alone(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = cluster.brokers[1].engine
    (partition,) = engine.replicas.all()
    before = partition.settings
    monkeypatch.setattr(engine.replicas, "all", lambda: [partition] * (SLICE + 1))
    monkeypatch.setattr(type(engine.replicas), "__contains__", lambda *_: False)
    changed = current(cluster).model_copy(update={"min_insync_replicas": 2})
    cluster.brokers[1]._configuration.current = changed

    await engine.reconfigure()

    assert partition.settings is before


async def test_configs_that_a_role_changed_are_those_of_later_metadata(
    cluster: SmallCluster,
) -> None:
    """They were changed and changed back while the role was on its way to the broker."""
    commands = cluster.brokers[1].engine.commands

    def tell(**configs: str) -> None:
        asked = cluster.request(1, **configs)  # type: ignore[arg-type]  # options of request
        version = commands.metadata.version + 1
        controller = rpc.ControllerRow(9, "http://c/9", 1)
        told = rpc.UpdateMetadataRequest(
            "cluster",
            controller,
            1,
            asked.incarnation,
            version,
            0,
            True,
            "test",
            asked.brokers,
            asked.topics,
        )
        commands.update_metadata(told)

    tell()
    await granted(cluster, **{"max.message.bytes": "1024"})
    with pytest.raises(BodyTooLarge):
        await cluster.produce(1, "x" * 2_000)

    tell()

    await cluster.produce(1, "x" * 2_000)


async def test_followers_may_lag_for_another_time(cluster: SmallCluster) -> None:
    """At 60 s, the setting at start, they would stay in the ISR longer than the test waits."""
    cluster.cut.update((2, 3))
    waiting = asyncio.create_task(cluster.produce(1, "lagging", timeout_ms=60_000))

    await configured(cluster, replica_lag_time_max_ms=100)

    await cluster.until(lambda: cluster.nodes.states[TOPIC, 0].isr == (1,), "they are dropped")
    waiting.cancel()


async def test_larger_batches_are_accepted(tmp_path: Path) -> None:
    async with await three(tmp_path, message_max_bytes=1_024) as cluster:
        with pytest.raises(BodyTooLarge):
            await cluster.produce(1, "x" * 2_000)

        await configured(cluster, message_max_bytes=4_096)

        await cluster.produce(1, "x" * 2_000)


async def test_batches_that_decompress_to_more_are_accepted(tmp_path: Path) -> None:
    async with await three(
        tmp_path, message_max_bytes=1_024, message_max_decompressed_bytes=1_024
    ) as cluster:
        with pytest.raises(BodyTooLarge):
            await cluster.send(1, bomb(2_000, "zstd"))

        await configured(cluster, message_max_decompressed_bytes=4_096)

        await cluster.send(1, bomb(2_000, "zstd"))


async def test_a_topic_of_large_batches_allows_them_compressed_too(tmp_path: Path) -> None:
    async with await three(tmp_path, message_max_decompressed_bytes=1_024) as cluster:
        await granted(cluster, **{"max.message.bytes": "3000"})

        await cluster.send(1, bomb(2_000, "zstd"))
        with pytest.raises(BodyTooLarge):
            await cluster.send(1, bomb(4_000, "zstd"))


async def test_records_further_ahead_are_accepted(tmp_path: Path) -> None:
    async with await three(tmp_path, log_message_timestamp_after_max_ms=0) as cluster:
        clock = cluster.brokers[1].engine.serving.clock
        ahead = [NewRecord(b"v", timestamp=clock.wall_ms() + 3_600_000)]
        with pytest.raises(InvalidTimestamp):
            await cluster.send(1, batches.encode(ahead, now_ms=0))

        await configured(cluster, log_message_timestamp_after_max_ms=-1)

        await cluster.send(1, batches.encode(ahead, now_ms=0))


async def test_segments_are_closed_at_another_size(cluster: SmallCluster) -> None:
    for _ in range(3):
        await cluster.produce(1, "x" * 1_000)
    assert segments(cluster) == 1

    await configured(cluster, log_segment_bytes=1_024)
    for _ in range(3):
        await cluster.produce(1, "x" * 1_000)

    assert segments(cluster) == 4


@pytest.mark.parametrize("limit", [{"log_retention_bytes": 0}, {"log_retention_ms": 0}])
async def test_retention_keeps_less(tmp_path: Path, limit: dict[str, int]) -> None:
    async with await three(tmp_path, log_segment_bytes=1_024, log_retention_ms=-1) as cluster:
        for _ in range(4):
            await cluster.produce(1, "x" * 1_000)
        work = cluster.brokers[1].engine.maintenance
        await work.apply_retention()
        assert cluster.brokers[1].engine.replicas.describe()[0].log_start_offset == 0

        await configured(cluster, **limit)
        await work.apply_retention()

        assert cluster.brokers[1].engine.replicas.describe()[0].log_start_offset == 3


async def test_less_may_be_staged_and_for_a_shorter_time(cluster: SmallCluster) -> None:
    staging = cluster.brokers[1].engine.staging
    kept = await staging.stage(TOPIC, 0, batch("x" * 2_000))

    await configured(cluster, staging_ttl_ms=60_000)
    assert (await staging.stage(TOPIC, 0, batch("x"))).expires_at_ms < kept.expires_at_ms
    await configured(cluster, staging_max_bytes=1_024)
    with pytest.raises(StagingFull):
        await staging.stage(TOPIC, 0, batch("x"))


async def test_the_load_is_told_of_a_shorter_window(cluster: SmallCluster) -> None:
    load = cluster.brokers[1].engine.load
    begin, first = load._samples[0].at_ms, (await load.report()).window_start_ms

    await configured(cluster, load_window_ms=100)

    async with asyncio.timeout(20):
        while load._samples[0].at_ms <= begin:  # The window begins later.
            await asyncio.sleep(0.01)
            await load.sample()
    assert (await load.report()).window_start_ms > first


async def test_fewer_files_are_held_open(cluster: SmallCluster) -> None:
    logs = cast("DiskLogs", cluster.brokers[1].engine.logs)
    for number in range(40):
        log = logs.open("many", "2" * 32, number)
        log.append(batch_at_0())
        log.flush()
    assert logs._files.open_count >= 40

    await configured(cluster, level=1, open_files_max=16)

    assert logs._files.open_count <= 16


def batch_at_0() -> bytearray:
    data = batch("v")
    data[12:16] = (0).to_bytes(4, "big")  # the leader epoch
    return data


async def test_controlled_shutdown_can_be_switched_off_and_limited(cluster: SmallCluster) -> None:
    asked: list[int] = []

    async def never(request: rpc.ControlledShutdownRequest) -> rpc.ControlledShutdownResponse:
        asked.append(request.broker_id)
        await asyncio.Event().wait()
        raise AssertionError

    cluster.on_controlled_shutdown = never
    await configured(cluster, controlled_shutdown_timeout_ms=1)
    await cluster.brokers[1].controlled_shutdown()
    assert asked in ([], [1])
    asked.clear()

    await configured(cluster, controlled_shutdown_enable=False)
    await cluster.brokers[1].controlled_shutdown()
    assert asked == []


# -- levels ------------------------------------------------------------------------------


async def test_a_broker_comes_before_the_cluster_and_both_before_the_start(
    cluster: SmallCluster,
) -> None:
    started_with = current(cluster).message_max_bytes
    await configured(cluster, CLUSTER, message_max_bytes=2_000)
    await configured(cluster, 1, message_max_bytes=3_000)
    assert (current(cluster).message_max_bytes, current(cluster, 2).message_max_bytes) == (
        3_000,
        2_000,
    )

    cluster.nodes.configure(1)
    await cluster.until(lambda: current(cluster).message_max_bytes == 2_000, "the cluster's holds")
    del cluster.nodes.configs[CLUSTER]
    cluster.nodes.configure(1)
    await cluster.until(lambda: current(cluster).message_max_bytes == started_with, "its own holds")


async def test_a_topic_comes_before_its_broker(cluster: SmallCluster) -> None:
    await granted(cluster, **{"max.message.bytes": "3000"})
    await configured(cluster, message_max_bytes=1_024)

    await cluster.produce(1, "x" * 2_000)


async def test_settings_that_were_made_before_the_start_hold(tmp_path: Path) -> None:
    async with SmallCluster(tmp_path) as cluster:
        cluster.nodes.configure(CLUSTER, message_max_bytes=2_000)

        await cluster.start(1)

        assert current(cluster).message_max_bytes == 2_000
        assert cluster.stores[1].registered_settings["log.dir"] == str(tmp_path / "1")
        assert "message.max.bytes" not in cluster.stores[1].registered_settings


async def test_a_slip_in_one_setting_costs_no_other(cluster: SmallCluster) -> None:
    await configured(cluster, message_max_bytes=2_000)

    cluster.nodes.configure(CLUSTER, message_max_bytes="much", log_segment_bytes=5_000)
    await cluster.until(lambda: current(cluster).log_segment_bytes == 5_000, "the other one holds")
    assert current(cluster).message_max_bytes == 2_000

    cluster.nodes.configs[CLUSTER] = b"{"
    await cluster.brokers[1]._configuration.refresh()
    assert current(cluster).log_segment_bytes == 5_000


async def test_what_cannot_be_read_changes_nothing(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await configured(cluster, message_max_bytes=2_000)

    async def fail(*_: object) -> None:
        raise ConnectionLoss

    monkeypatch.setattr(NodeStore, "configs", fail)
    await cluster.brokers[1]._configuration.refresh()

    assert current(cluster).message_max_bytes == 2_000


# -- topics' own settings within a leader epoch --------------------------------------------


def metadata(cluster: SmallCluster, version: int, **configs: str) -> rpc.UpdateMetadataRequest:
    row = rpc.PartitionRow(0, 1, 0, (1, 2, 3), (1, 2, 3), 0)
    return rpc.UpdateMetadataRequest(
        cluster_id="cluster",
        controller=rpc.ControllerRow(9, "http://c/9", cluster.controller_epoch),
        broker_id=1,
        incarnation=cluster.brokers[1].state.incarnation,
        version=version,
        base_version=-1,
        full=True,
        cause="test",
        brokers=[],
        topics=[rpc.TopicRows(TOPIC, TOPIC_ID, configs, [row])],
    )


async def test_a_topics_setting_that_comes_with_metadata_takes_effect(
    cluster: SmallCluster,
) -> None:
    cluster.brokers[1].engine.commands.update_metadata(
        metadata(cluster, 5, **{"segment.bytes": "1024"})
    )
    for _ in range(3):
        await cluster.produce(1, "x" * 1_000)
    assert segments(cluster) == 3

    cluster.brokers[1].engine.commands.update_metadata(metadata(cluster, 6))
    for _ in range(3):
        await cluster.produce(1, "x" * 1_000)
    assert segments(cluster) == 3


async def test_a_topics_setting_that_comes_with_the_role_again_takes_effect(
    cluster: SmallCluster,
) -> None:
    late = cluster.request(1)
    await granted(cluster, **{"max.message.bytes": "3000"})
    await cluster.produce(1, "x" * 2_000)

    await cluster.brokers[1].engine.commands.leader_and_isr(late)

    partition = cluster.brokers[1].engine.replicas.named(TOPIC, 0)
    assert partition is not None
    assert partition.settings.max_message_bytes == 3_000, "it was overtaken"


async def test_a_metadata_row_of_a_replica_elsewhere_is_no_harm(cluster: SmallCluster) -> None:
    request = metadata(cluster, 5, **{"segment.bytes": "1024"})
    other = rpc.TopicRows(
        "other", "2" * 32, {"segment.bytes": "1024"}, request.topics[0].partitions
    )

    cluster.brokers[1].engine.commands.update_metadata(
        msgspec.structs.replace(request, topics=[other])
    )

    assert len(cluster.brokers[1].engine.replicas.describe()) == 1


async def test_more_producers_are_remembered_from_now_on(tmp_path: Path) -> None:
    async with await three(tmp_path, producer_ids_max=1) as cluster:
        await cluster.send(1, batch("v", producer=(1, 0, 0)))
        with pytest.raises(TooManyProducers):
            await cluster.send(1, batch("v", producer=(2, 0, 0)))

        await configured(cluster, producer_ids_max=2)

        await cluster.send(1, batch("v", producer=(2, 0, 0)))


async def test_defect_32_nothing_is_deleted_before_the_topics_own_retention_is_known(
    tmp_path: Path,
) -> None:
    """Without a controller a started broker knows its own defaults only."""
    async with await three(tmp_path, log_segment_bytes=1_024, log_retention_bytes=0) as cluster:
        await granted(cluster, **{"retention.bytes": "-1"})
        for _ in range(4):
            await cluster.produce(1, "x" * 1_000)
        await cluster.brokers[1].engine.maintenance.checkpoint()
        await cluster.stop(1)
        await cluster.start(1)
        engine = cluster.brokers[1].engine
        work, replicas = engine.maintenance, engine.replicas

        await work.apply_retention()
        await configured(cluster, log_retention_ms=0)
        await work.apply_retention()
        assert replicas.describe()[0].log_start_offset == 0

        await cluster.grant(1, init=True)
        await work.apply_retention()
        assert replicas.describe()[0].log_start_offset == 3
