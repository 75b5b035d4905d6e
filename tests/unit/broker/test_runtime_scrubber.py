"""Closed segments are read once in a while, and what is damaged in them is repaired."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from leadline_broker.adapters.disk import LazyLog
from leadline_broker.domain.producers import ProducerStates
from leadline_broker.runtime.replication import scrubber
from tests.unit.broker.small_cluster import CLUSTER, TOPIC, SmallCluster, three

COUNT = 40
DAMAGED = range(1, 5)
"""Which segments are damaged in the tests; all of them are closed."""


@pytest.fixture
async def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SmallCluster]:
    """Yield brokers that do not scrub yet, and look for changed settings all the time."""
    monkeypatch.setattr(scrubber, "_LOOK_MS", 10)
    async with await three(tmp_path, log_segment_bytes=1_024, log_scrub_bytes_per_s=0) as running:
        running.tell_metadata(1, 2, 3)
        for number in range(COUNT):
            await running.produce(1, f"{number:03}" * 20)
        await running.until(lambda: running.high_watermark(2) == COUNT, "2 knows the end")
        await running.until(lambda: running.high_watermark(3) == COUNT, "3 knows the end")
        yield running


def scrub(cluster: SmallCluster) -> None:
    """Let all brokers scrub from now on, one pass after another."""
    cluster.nodes.configure(CLUSTER, log_scrub_interval_ms=100, log_scrub_bytes_per_s=1_000_000)


def damage(cluster: SmallCluster, broker: int) -> None:
    paths = sorted((cluster.root / str(broker) / f"{TOPIC}-0").glob("*.log"))
    assert len(paths) > DAMAGED.stop
    for number in DAMAGED:
        data = bytearray(paths[number].read_bytes())
        data[-number * 50] ^= 1 << number
        paths[number].write_bytes(data)


def value(cluster: SmallCluster, broker: int, name: str) -> float:
    found = cluster.metrics[broker].registry.get_sample_value(f"leadline_{name}_total")
    assert found is not None
    return found


async def passes(cluster: SmallCluster, broker: int, count: int = 2) -> None:
    """Wait until all closed segments of a broker were read `count` times."""
    closed = sorted((cluster.root / str(broker) / f"{TOPIC}-0").glob("*.log"))[:-1]
    until = value(cluster, broker, "scrubbed_bytes")
    until += count * sum(path.stat().st_size for path in closed)
    await cluster.until(
        lambda: value(cluster, broker, "scrubbed_bytes") >= until, f"{count} passes of {broker}"
    )


@pytest.mark.parametrize("broker", [1, 2])
async def test_damage_that_nobody_reads_is_repaired(cluster: SmallCluster, broker: int) -> None:
    damage(cluster, broker)
    assert cluster.stored(broker) != cluster.stored(3)
    scrub(cluster)

    await cluster.until(lambda: cluster.stored(broker) == cluster.stored(3), "it is repaired")
    assert value(cluster, broker, "damaged_batches_repaired") == len(DAMAGED)
    await passes(cluster, broker)
    assert value(cluster, broker, "damaged_batches_repaired") == len(DAMAGED)


@pytest.mark.parametrize("broker", [1, 2])
async def test_defect_44_segments_that_were_removed_are_copied(
    cluster: SmallCluster, broker: int
) -> None:
    """They were open, so that nobody noticed, and refused to all readers once they were not."""
    for path in sorted((cluster.root / str(broker) / f"{TOPIC}-0").glob("*.log"))[1:3]:
        path.unlink()
    scrub(cluster)

    await cluster.until(lambda: cluster.stored(broker) == cluster.stored(3), "they are copied")
    await passes(cluster, broker)


async def test_sound_segments_are_read_again_and_again(cluster: SmallCluster) -> None:
    scrub(cluster)
    await passes(cluster, 1, count=3)
    assert value(cluster, 1, "damaged_batches_found") == 0


async def test_segments_that_are_deleted_meanwhile_are_no_damage(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file of a segment is gone then, or another one has its name."""
    engine = cluster.brokers[2].engine
    (partition,) = engine.replicas.all()
    before = partition.log.batches.closed()
    assert before[0].offset == 0
    partition.log.reset_to(0, ProducerStates())
    monkeypatch.setattr(scrubber, "_closed_segments", lambda _: before)
    await engine._scrubber().scrub_all()
    assert value(cluster, 2, "damaged_batches_found") == 0
    assert value(cluster, 2, "scrubbed_bytes") == 0


async def test_a_replica_without_records_is_left_alone(cluster: SmallCluster) -> None:
    """Its log would be opened, for which all names in the log directory are read each time."""
    cluster.publish(2, 0, (1, 2, 3), partition=1)
    await cluster.grant(1, partitions=(1,))
    engine = cluster.brokers[1].engine
    (idle,) = (one.log for one in engine.replicas.all() if one.partition == 1)
    assert isinstance(idle, LazyLog)
    await engine._scrubber().scrub_all()
    assert idle.written() is None
