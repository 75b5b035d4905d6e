"""What retention has deleted told who wrote it; a new replica is told by its leader."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline_broker.adapters.log import snapshots
from leadline_broker.adapters.log.file_cache import FileCache
from leadline_broker.domain.following import Told
from leadline_broker.domain.producers import NO_PRODUCER_ID, ProducerStates
from leadline_broker.domain.publishes import FIRST_PUBLISHER_ID, piece_epoch
from leadline_broker.runtime.replication import fetch_answers
from leadline_broker.runtime.replication.partition import Partition
from leadline_client.errors import OffsetOutOfRange, OutOfOrderSequence
from leadline_common.rpc import FetchedRow, KnownProducers
from tests.runtime_simulation.disk import Disk
from tests.runtime_simulation.event_loop import SimulatedLoop
from tests.runtime_simulation.system_calls import SimulatedSystem
from tests.unit.broker.log_support import batch as stored_batch
from tests.unit.broker.log_support import open_log
from tests.unit.broker.small_cluster import TOPIC, SmallCluster, batch, three
from tests.unit.broker.test_producers import Header, table
from tests.unit.broker.test_runtime_publishing import publish, stage

FILL = "x" * 600
FILLED = 6
WRITTEN = Header(7, 0, 0, 2, 10)
"""A batch of producer 7 before offset 20."""


def told_before_20(*headers: Header) -> ProducerStates:
    """Return what a replica whose log begins at offset 20 is told of these batches."""
    return ProducerStates.after(table(*headers).before(20), 20)


@st.composite
def batches(draw: st.DrawFn) -> list[Header]:
    """Draw a log of batches by three producers, two applications and nobody in particular."""
    found, offset = list[Header](), 0
    sequences, epochs = dict.fromkeys(range(3), 0), dict.fromkeys(range(3), 0)
    for writer in draw(st.lists(st.integers(0, 5), max_size=40)):
        count = draw(st.integers(1, 3))
        if writer < 3:
            if draw(st.integers(0, 9)) == 0:
                epochs[writer], sequences[writer] = epochs[writer] + 1, 0
            found.append(Header(writer, epochs[writer], sequences[writer], count, offset))
            sequences[writer] += count
        elif writer < 5:
            number = len(found)
            pieces = draw(st.integers(1, 2))
            for position in range(pieces):
                identity, epoch = FIRST_PUBLISHER_ID + writer, piece_epoch(position, pieces)
                found.append(Header(identity, epoch, number, count, offset))
                offset += count
            continue
        else:
            found.append(Header(NO_PRODUCER_ID, -1, -1, count, offset))
        offset += count
    return found


@given(batches(), st.integers(1, 3), st.data())
def test_a_log_that_is_told_in_parts_knows_the_same(
    log: list[Header], most: int, data: st.DataObject
) -> None:
    """Each may come twice, and retention may delete more in between."""
    leader, later = ProducerStates(), [one.base_offset for one in log]
    for header in log:
        leader.apply(header)
    start = data.draw(st.sampled_from([0, *later]))
    told, ended = Told(start), False
    while not ended:
        part = leader.before(start, told.last, most)
        sent = msgspec.msgpack.decode(msgspec.msgpack.encode(part), type=KnownProducers)
        assert len(sent.producers) + len(sent.publishes) <= most
        ended = told.learn(sent)
        if not ended and data.draw(st.booleans()):
            assert not told.learn(sent)
    assert told.table is not None
    whole = ProducerStates.after(leader.before(start), start)
    assert {row[0]: row for row in told.table.rows()} == {row[0]: row for row in whole.rows()}
    assert sorted(told.table.publishes.rows()) == sorted(whole.publishes.rows())


@given(batches(), st.data())
def test_a_log_that_begins_later_knows_the_same(log: list[Header], data: st.DataObject) -> None:
    start = data.draw(st.sampled_from([0, *(one.base_offset for one in log)]))
    leader = ProducerStates()
    for header in log:
        leader.apply(header)
    sent = msgspec.msgpack.encode(leader.before(start))
    follower = ProducerStates.after(msgspec.msgpack.decode(sent, type=KnownProducers), start)
    for header in log:
        if header.base_offset >= start:
            follower.apply(header)

    assert {p: (e, b) for p, e, _, b in follower.rows()} == {
        p: (e, b) for p, e, _, b in leader.rows()
    }
    pieces_before = {one.producer_id: one.base_sequence for one in log if one.base_offset < start}
    for identity, _, latest in leader.publishes.rows():
        known = follower.publishes.latest(identity)
        assert known is not None
        assert (known.batch, known.last_offset) == (latest.batch, latest.last_offset)
        if pieces_before.get(identity) != latest.batch:
            assert known == latest


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_keeps_what_it_was_told(tmp_path: Path, *, clean: bool) -> None:
    log = open_log(tmp_path)
    log.reset_to(20, told_before_20(WRITTEN))
    for _ in range(2):
        log.append(stored_batch(log.log_end_offset))
    log.flush()
    log.truncate_to(21)
    if clean:
        log.close()
    else:
        log.discard()
    log = open_log(tmp_path, clean=clean)

    known = log.producers.get(7)
    assert known is not None
    assert known.find(0, 1) is not None
    log.reset_to(30, ProducerStates())
    assert log.producers.get(7) is None
    log.discard()
    log = open_log(tmp_path)
    assert log.producers.get(7) is None
    log.close()


def test_a_log_does_not_begin_before_it_has_stored_what_it_was_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is killed in between would begin there, and nobody would tell it again."""

    def kill(*_: object, **__: object) -> None:
        raise SystemExit

    log = open_log(tmp_path)
    with monkeypatch.context() as killing:
        killing.setattr(snapshots, "write_snapshot", kill)
        with pytest.raises(SystemExit):
            log.reset_to(20, told_before_20(WRITTEN))

    assert open_log(tmp_path).log_end_offset == 0


def test_what_a_log_was_told_that_never_began_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stayed, and was taken for what another leader's log had at that offset."""

    def kill(*_: object) -> None:
        raise SystemExit

    log = open_log(tmp_path)
    with monkeypatch.context() as killing:
        killing.setattr(FileCache, "create", kill)
        with pytest.raises(SystemExit):
            log.reset_to(20, told_before_20(WRITTEN))
    log = open_log(tmp_path)
    for number in range(25):
        log.append(stored_batch(number, producer=(8, 0, number)))
    log.flush()
    log.discard()
    log = open_log(tmp_path)

    assert log.producers.get(7) is None
    log.truncate_to(22)
    known = log.producers.get(8)
    assert known is not None
    assert [one.base_offset for one in known.batches] == [17, 18, 19, 20, 21]
    log.close()


@contextmanager
def simulated_disk(root: Path) -> Iterator[Disk]:
    """Yield a disk on which logs write within the block, and whose power can be cut."""
    disk = Disk(root / "disk", Random(0))
    loop = SimulatedLoop()
    with SimulatedSystem(loop, Random(0), [disk]).in_force():
        yield disk
    loop.close()


def test_a_power_cut_leaves_no_log_that_does_not_know(tmp_path: Path) -> None:
    """The entries of the directory are written before that of the segment."""
    with simulated_disk(tmp_path) as disk:
        log = open_log(disk.root)
        log.reset_to(20, told_before_20(WRITTEN))
        log.append(stored_batch(20))
        log.flush()
        disk.cut_power()
        again = open_log(disk.root)
    assert again.log_end_offset == 21
    assert again.producers.get(7) is not None


@pytest.mark.parametrize("is_killed", [False, True])
def test_defect_29_a_power_cut_leaves_known_what_retention_has_deleted(
    tmp_path: Path, *, is_killed: bool
) -> None:
    """Its snapshot is all that is left of the deleted batch."""
    with simulated_disk(tmp_path) as disk:
        log = open_log(disk.root, segment_bytes=300)
        log.append(stored_batch(0, producer=(7, 0, 0)))
        log.flush()
        log.append(stored_batch(1, b"x" * 300))
        if is_killed:
            log.discard()
            log = open_log(disk.root, segment_bytes=300)
        log.flush()
        assert log.apply_retention(0, -1, 0, log.log_end_offset) > 0
        log.flush()
        disk.cut_power()
        again = open_log(disk.root)
    assert (again.log_start_offset, again.log_end_offset) == (1, 2)
    assert again.producers.get(7) is not None


def test_a_log_that_is_truncated_below_its_start_forgets_only_what_is_gone(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.reset_to(20, told_before_20(WRITTEN, Header(8, 0, 0, 2, 16)))
    log.append(stored_batch(20))
    assert log.truncate_to(15) == 15

    assert log.producers.get(7) is not None
    assert log.producers.get(8) is None
    log.discard()
    log = open_log(tmp_path)
    assert log.producers.get(7) is not None
    log.close()


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[SmallCluster]:
    settings = {"log_segment_bytes": 1_024, "log_retention_bytes": 0}
    async with await three(tmp_path, **settings) as running:
        yield running


async def rebuild(cluster: SmallCluster, number: int) -> None:
    """Delete what was written so far, and give a broker a new disk, from which it leads then."""
    for _ in range(FILLED):
        await cluster.produce(1, FILL)
    for broker in cluster.brokers.values():
        await broker.engine.maintenance.apply_retention()
    await cluster.stop(number)
    shutil.rmtree(cluster.root / str(number) / f"{TOPIC}-0")
    await cluster.start(number)
    await cluster.grant(number, init=True)
    await cluster.until(lambda: cluster.end(number) == cluster.end(1), "it has caught up")
    cluster.publish(number, 1, (1, 2, 3))
    await cluster.grant(1, 2, 3)
    assert cluster.brokers[number].engine.replicas.describe()[0].log_start_offset > 2


async def test_defect_28_a_repeated_batch_is_known_to_a_new_replica(cluster: SmallCluster) -> None:
    first = await cluster.send(1, batch("a", "b", producer=(7, 0, 0)))
    await rebuild(cluster, 3)

    again = await cluster.send(3, batch("a", "b", producer=(7, 0, 0)))

    assert (first.base_offset, again.base_offset, again.duplicate) == (0, 0, True)
    with pytest.raises(OutOfOrderSequence):
        await cluster.send(3, batch("d", producer=(7, 0, 5)))
    assert not (await cluster.send(3, batch("c", producer=(7, 0, 2)))).duplicate


async def test_defect_28_a_repeated_publish_is_known_to_a_new_replica(
    cluster: SmallCluster,
) -> None:
    await publish(cluster, 1, 4, await stage(cluster, 1, "ab"))
    await rebuild(cluster, 3)

    again = await publish(cluster, 3, 4, ["lost"])

    assert (again.base_offset, again.last_offset, again.duplicate) == (0, 1, True)


async def test_defect_48_many_producers_are_told_of_in_parts(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table of 300,000 in one answer stopped both brokers for seconds."""
    monkeypatch.setattr(fetch_answers, "MOST_KNOWN", 3)
    parts, learn = list[int](), Told.learn

    def noted(told: Told, known: KnownProducers) -> bool:
        parts.append(len(known.producers) + len(known.publishes))
        if len(parts) == 2:  # Meanwhile retention deletes more, of another producer.
            cluster.brokers[1].engine.replicas.all()[0].log.apply_retention(0, -1, 0, FILLED + 10)
        return learn(told, known)

    for number in range(10):
        await cluster.send(1, batch("a", producer=(number, 0, 0)))
    await publish(cluster, 1, 4, await stage(cluster, 1, "ab"))
    monkeypatch.setattr(Told, "learn", noted)
    await rebuild(cluster, 3)

    assert len(parts) >= 4
    assert max(parts) <= 3
    for number in range(10):
        assert (await cluster.send(3, batch("a", producer=(number, 0, 0)))).duplicate
    assert (await publish(cluster, 3, 4, ["lost"])).duplicate


async def test_defect_48_parts_of_an_earlier_log_start_are_forgotten(
    cluster: SmallCluster,
) -> None:
    for number in range(4):
        await cluster.send(1, batch("a", producer=(number, 0, 0)))
    partition = cluster.brokers[1].engine.replicas.all()[0]
    answer = FetchedRow(0, 0, 0, -1, OffsetOutOfRange.code, 4, 4)
    answers = fetch_answers.FetchAnswers(takes_parts=True)
    for told, known in [((4, 1), [2, 3]), ((2, 1), [0, 1, 2, 3]), (None, [0, 1, 2, 3])]:
        found = answers.with_known(partition, answer, told).known
        assert found is not None
        assert [row[0] for row in found.producers] == known
    late = KnownProducers(after=1)
    assert not Told(4).learn(late), "it is the rest of what was told of another log start"


async def test_few_partitions_are_told_of_at_a_time(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_answers, "MOST_KNOWN", 1)
    numbers = (0, 1, 2)
    for number in numbers[1:]:
        cluster.publish(1, 0, (1, 2, 3), partition=number)
    await cluster.grant(1, 2, 3, init=True, partitions=numbers)
    for number in numbers:
        for data in (batch("a", producer=(7, 0, 0)), *[batch(FILL) for _ in range(FILLED)]):
            await cluster.brokers[1].engine.serving.produce(
                TOPIC, number, data, acks="all", timeout_ms=5_000
            )
    await cluster.brokers[1].engine.maintenance.apply_retention()
    await cluster.stop(3)
    for number in numbers:
        shutil.rmtree(cluster.root / "3" / f"{TOPIC}-{number}")
    await cluster.start(3)
    await cluster.grant(3, init=True, partitions=numbers)

    def replicas() -> list[Partition]:
        return cluster.brokers[3].engine.replicas.all()

    await cluster.until(
        lambda: all(one.log.log_end_offset == 1 + FILLED for one in replicas()), "all caught up"
    )
    assert len(replicas()) == len(numbers)
    assert all(one.log.log_start_offset > 0 for one in replicas())
    assert all(one.log.producers.get(7) is not None for one in replicas())
