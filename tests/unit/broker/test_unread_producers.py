"""Producers of batches that were damaged when their log was opened, without a later snapshot."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from shutil import copytree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline_broker.adapters.log.errors import CorruptStoredBatch
from leadline_broker.adapters.log.partition_log import PartitionLog
from leadline_broker.domain.producers import Accept, Duplicate, ProducerStates
from leadline_broker.runtime.replication import repairs
from leadline_client.errors import DamagedBatch, OutOfOrderSequence
from leadline_client.wire import ProduceResult
from tests.support.services.cluster import wait_until
from tests.unit.broker.log_support import batch as stored_batch
from tests.unit.broker.log_support import open_log
from tests.unit.broker.small_cluster import TOPIC, SmallCluster, batch, three
from tests.unit.broker.test_known_producers import batches
from tests.unit.broker.test_producers import Header
from tests.unit.broker.test_runtime_publishing import publish, stage

SEGMENT_BYTES = 400
FILL = "x" * 600


def rows(states: ProducerStates) -> dict[int, object]:
    """Return what is known of each producer and application, whenever they wrote."""
    known: dict[int, object] = {row[0]: (row[1], row[3]) for row in states.rows()}
    return known | {row[0]: row[2] for row in states.publishes.rows()}


@given(batches(), st.data())
def test_batches_that_are_read_later_tell_the_same(log: list[Header], data: st.DataObject) -> None:
    first, last = sorted(data.draw(st.tuples(st.integers(0, len(log)), st.integers(0, len(log)))))
    whole, table, between = ProducerStates(), ProducerStates(), ProducerStates()
    for number, header in enumerate(log):
        whole.apply(header)
        (between if first <= number < last else table).apply(header)
    table.insert(between)
    assert rows(table) == rows(whole)

    cut = data.draw(st.sampled_from([0, *(one.base_offset for one in log)]))
    if table.truncate_to(cut):
        shorter = ProducerStates()
        for header in log:
            if header.base_offset + header.record_count <= cut:
                shorter.apply(header)
        assert rows(table) == rows(shorter), "or it has to be read again"


def test_an_unread_range_is_read_step_by_step_or_leaves_the_log() -> None:
    table = ProducerStates(unread=[(10, 20), (30, 40)])
    table.read_again(0, 15)
    assert table.unread == [(15, 20), (30, 40)]
    table.read_again(0, 20)
    assert table.unread == [(30, 40)]
    assert table.truncate_to(35)
    assert table.unread == [(30, 35)]
    table.keep_unread(35, 50)
    assert table.unread == []


def make_log(root: Path) -> PartitionLog:
    """Return a log of several segments; each batch is of a producer of its own."""
    root.mkdir(exist_ok=True)
    log = open_log(root, segment_bytes=SEGMENT_BYTES)
    for number in range(30):
        log.append(stored_batch(number, b"x" * 50, producer=(number, 0, 0)))
    log.flush()
    return log


def lose_snapshots(directory: Path) -> None:
    for path in directory.glob("*.snapshot"):
        path.unlink()


def damage(path: Path) -> None:
    """Damage the second half of a segment."""
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2] + bytes(len(content) - len(content) // 2))


def segment(directory: Path, number: int) -> Path:
    return sorted(directory.glob("*.log"))[number]


@pytest.mark.parametrize("is_gone", [False, True])
def test_what_a_damaged_segment_tells_is_unread_until_it_is_repaired(
    tmp_path: Path, *, is_gone: bool
) -> None:
    log = make_log(tmp_path / "a")
    copytree(tmp_path / "a", tmp_path / "b")
    source = open_log(tmp_path / "b", segment_bytes=SEGMENT_BYTES)
    log.discard()
    lose_snapshots(log.directory)
    end = int(segment(log.directory, 3).stem)
    if is_gone:
        segment(log.directory, 2).unlink()
    else:
        damage(segment(log.directory, 2))
    for _ in range(2):  # A snapshot that is written meanwhile says so, too.
        log = open_log(tmp_path / "a", segment_bytes=SEGMENT_BYTES)
        ((first, last),) = log.producers.unread
        assert last == end
        assert [n for n in range(30) if log.producers.get(n) is None] == [*range(first, end)]
        with pytest.raises(CorruptStoredBatch) as refusal:
            log.batches.read_unread()
        assert refusal.value.offset == first
        log.close()

    log = open_log(tmp_path / "a", segment_bytes=SEGMENT_BYTES, clean=True)
    at, is_damaged = log.batches.check(first)
    assert is_damaged
    while is_damaged:
        assert log.batches.repair(source.read(at, 1, source.log_end_offset))
        at, is_damaged = log.batches.check(at)
    assert not log.batches.read_unread()
    assert rows(log.producers) == rows(source.producers)
    assert not log.batches.read_unread(), "nothing is left"
    source.discard()
    log.close()


def test_what_retention_deletes_is_not_waited_for(tmp_path: Path) -> None:
    log = make_log(tmp_path)
    log.discard()
    lose_snapshots(log.directory)
    damage(segment(log.directory, 0))
    log = open_log(tmp_path, segment_bytes=SEGMENT_BYTES)
    assert log.producers.unread
    assert log.apply_retention(0, -1, 0, log.log_end_offset)
    assert not log.producers.unread
    log.close()


def test_defect_43_a_log_without_its_snapshots_still_knows_what_retention_deletes(
    tmp_path: Path,
) -> None:
    """Its producers were in memory only then, until the next segment began."""
    log = make_log(tmp_path)
    log.discard()
    lose_snapshots(log.directory)
    log = open_log(tmp_path, segment_bytes=SEGMENT_BYTES)
    assert log.apply_retention(0, -1, 0, log.log_end_offset)
    log.discard()
    log = open_log(tmp_path, segment_bytes=SEGMENT_BYTES)
    assert log.log_start_offset > 0
    assert isinstance(log.producers.check(0, 0, 0, 1, log_start_offset=1), Duplicate)
    assert isinstance(log.producers.check(0, 0, 1, 1, log_start_offset=1), Accept)
    log.close()


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[SmallCluster]:
    async with await three(tmp_path, log_segment_bytes=1_024) as running:
        yield running


async def restart_damaged(cluster: SmallCluster, *damaged: int) -> None:
    """Restart broker 1 without snapshots, and its first segment damaged; it leads again."""
    for _ in range(4):
        await cluster.produce(1, FILL)
    await cluster.until(lambda: cluster.high_watermark(2) == cluster.end(1), "2 knows the end")
    await cluster.stop(1)
    for number in {1, *damaged}:
        directory = cluster.root / str(number) / f"{TOPIC}-0"
        if number == 1:
            lose_snapshots(directory)
        content = segment(directory, 0).read_bytes()
        segment(directory, 0).write_bytes(bytes(len(content)))
    await cluster.start(1)
    cluster.publish(1, 1, (1, 2, 3))
    await cluster.grant(1, init=True)
    await cluster.grant(2, 3)
    cluster.tell_metadata(1, 2, 3)


async def answered(cluster: SmallCluster, sequence: int, value: str) -> ProduceResult:
    """Send a batch of producer 7 until it is not refused for damage."""
    found = list[ProduceResult]()

    async def is_answered() -> bool:
        try:
            found.append(await cluster.send(1, batch(value, producer=(7, 0, sequence))))
        except DamagedBatch:
            return False
        return True

    await wait_until(is_answered, "an answer to the producer")
    return found[0]


async def test_defect_42_a_repeated_batch_is_known_once_the_log_is_repaired(
    cluster: SmallCluster,
) -> None:
    """It was appended twice, and the next one of its producer was refused for good."""
    first = await cluster.send(1, batch("a", producer=(7, 0, 0)))
    await restart_damaged(cluster)
    with pytest.raises(DamagedBatch, match="being repaired") as refusal:
        await cluster.send(1, batch("a", producer=(7, 0, 0)))
    assert refusal.value.retriable
    await cluster.produce(1, "by nobody in particular")

    again = await answered(cluster, 0, "a")
    assert (again.base_offset, again.duplicate) == (first.base_offset, True)
    assert not (await answered(cluster, 1, "b")).duplicate
    with pytest.raises(OutOfOrderSequence):
        await cluster.send(1, batch("d", producer=(7, 0, 5)))


async def test_defect_42_a_repeated_publish_is_known_once_the_log_is_repaired(
    cluster: SmallCluster,
) -> None:
    await publish(cluster, 1, 4, await stage(cluster, 1, "ab"))
    await restart_damaged(cluster)
    with pytest.raises(DamagedBatch, match="being repaired"):
        await publish(cluster, 1, 4, ["lost"])

    async def is_known() -> bool:
        try:
            return (await publish(cluster, 1, 4, ["lost"])).duplicate
        except DamagedBatch:
            return False

    await wait_until(is_known, "the batch is recognized")


async def test_producers_wait_for_a_replica_that_may_have_a_copy(cluster: SmallCluster) -> None:
    await cluster.send(1, batch("a", producer=(7, 0, 0)))
    await restart_damaged(cluster)
    replica = cluster.brokers[1].engine.replicas.all()[0].replica
    replica.state.isr = (1,)
    with pytest.raises(DamagedBatch, match="cannot be repaired now") as refusal:
        await cluster.send(1, batch("a", producer=(7, 0, 0)))
    assert refusal.value.retriable


async def test_producers_do_not_wait_for_what_nobody_has(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repairs, "RETRY_MS", 0)
    await restart_damaged(cluster, 2, 3)
    assert not (await answered(cluster, 0, "a")).duplicate
    assert not (await answered(cluster, 1, "b")).duplicate
