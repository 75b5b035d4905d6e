"""Batches that one leader staged are published by the next; brokers in one process."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from leadline_broker.adapters.staged_files import StagedFiles
from leadline_broker.domain.state import ReplicaKey
from leadline_broker.runtime.staging import staged_copies
from leadline_broker.runtime.staging.publishing import PublishedBatch
from leadline_broker.runtime.staging.staging import Staging
from leadline_client.batch_header import Buffer
from leadline_client.errors import (
    BodyTooLarge,
    FencedLeaderEpoch,
    InvalidRequest,
    LeaderNotAvailable,
    LeadlineError,
    NotEnoughReplicas,
    NotLeader,
    StagingFull,
    StaleIncarnation,
    UnknownLeaderEpoch,
    UnknownPartition,
    UnknownStaged,
)
from leadline_common.clock import SystemClock
from leadline_common.staged_copies import (
    DropStagedRequest,
    KeepStagedRequest,
    ReadStagedRequest,
)
from tests.support.manual_clock import ManualClock
from tests.unit.broker.small_cluster import TOPIC, TOPIC_ID, SmallCluster, batch, three

STAGED = Path("staged") / f"{TOPIC_ID}-0"
ID = "0123456789abcdef" * 2
YEAR = 365 * 86_400_000
DEADLINE_S = 20
SOON_S = 0.2
"""How long a test looks at what must not happen."""
TTL_MS = 3_600_000
"""The default of `staging.ttl.ms`."""


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[SmallCluster]:
    async with await three(tmp_path) as running:
        yield running


async def stage(cluster: SmallCluster, to: int, *words: str) -> list[str]:
    """Stage an upload for each word: a record for each letter."""
    staging = cluster.brokers[to].engine.staging
    return [(await staging.stage(TOPIC, 0, batch(*word))).staged_id for word in words]


async def publish(cluster: SmallCluster, to: int, number: int, staged: list[str]) -> PublishedBatch:
    publishing = cluster.brokers[to].engine.publishing
    return await publishing.publish(TOPIC, 0, "app", number, staged, 5_000)


def files(cluster: SmallCluster, at: int) -> list[str]:
    directory = cluster.root / str(at) / STAGED
    return sorted(path.name for path in directory.iterdir()) if directory.exists() else []


def held(cluster: SmallCluster, at: int) -> int:
    return cluster.brokers[at].engine.staging.used_bytes


async def lead(cluster: SmallCluster, broker: int, epoch: int, isr: tuple[int, ...]) -> None:
    cluster.publish(broker, epoch, isr)
    await cluster.grant(*sorted(cluster.brokers.keys() - cluster.cut))


async def test_what_is_staged_is_with_every_in_sync_replica_when_it_is_answered(
    cluster: SmallCluster,
) -> None:
    staged = await stage(cluster, 1, "ab", "c")

    assert files(cluster, 1) == files(cluster, 2) == files(cluster, 3) == sorted(staged)
    assert held(cluster, 1) == held(cluster, 2) == held(cluster, 3) > 0


async def test_the_next_leader_publishes_what_was_staged_with_one_that_died(
    cluster: SmallCluster,
) -> None:
    staged = await stage(cluster, 1, "ab", "c")
    cluster.cut = {1}
    await lead(cluster, 3, 1, (2, 3))

    done = await publish(cluster, 3, 0, staged)
    again = await publish(cluster, 3, 0, staged)

    assert done == PublishedBatch(0, 2, 1, duplicate=False)
    assert (again.base_offset, again.duplicate) == (0, True)
    assert await cluster.read(3) == ["a", "b", "c"]


async def test_what_is_published_or_dropped_is_let_go_of_everywhere(cluster: SmallCluster) -> None:
    published = await stage(cluster, 1, "ab")
    (dropped,) = await stage(cluster, 1, "c")
    await publish(cluster, 1, 0, published)
    cluster.brokers[1].engine.staging.drop(TOPIC, 0, dropped)

    everywhere = (1, 2, 3)
    await cluster.until(
        lambda: not any(files(cluster, broker) for broker in everywhere), "the copies are deleted"
    )
    assert not any(held(cluster, broker) for broker in everywhere)


async def test_a_leader_that_joined_later_asks_the_others(cluster: SmallCluster) -> None:
    cluster.cut = {3}
    await lead(cluster, 1, 1, (1, 2))
    staged = await stage(cluster, 1, "ab", "c")
    assert files(cluster, 3) == []
    cluster.cut = set()
    await lead(cluster, 3, 2, (2, 3))

    await publish(cluster, 3, 0, staged)

    assert await cluster.read(3) == ["a", "b", "c"]


async def test_a_damaged_copy_is_replaced_by_another(cluster: SmallCluster) -> None:
    staged = await stage(cluster, 1, "ab")
    path = cluster.root / "1" / STAGED / staged[0]
    path.write_bytes(path.read_bytes()[:-1])

    await publish(cluster, 1, 0, staged)

    assert await cluster.read(1) == ["a", "b"]


async def test_what_no_replica_has_any_more_is_unknown(cluster: SmallCluster) -> None:
    staged = await stage(cluster, 1, "ab")
    for broker in (1, 2, 3):
        cluster.brokers[broker].engine.staging.forget((TOPIC_ID, 0))

    with pytest.raises(UnknownStaged):
        await publish(cluster, 1, 0, staged)

    assert cluster.end(1) == 0


async def test_staging_waits_for_an_in_sync_replica_to_answer_or_to_go(
    cluster: SmallCluster,
) -> None:
    cluster.cut = {3}
    staging = asyncio.create_task(stage(cluster, 1, "ab"))
    await cluster.until(lambda: bool(files(cluster, 2)), "one replica has it")
    assert not staging.done()
    await lead(cluster, 1, 1, (1, 2))

    (staged,) = await staging

    assert files(cluster, 1) == files(cluster, 2) == [staged]


async def test_what_too_few_hold_is_refused_and_kept_nowhere(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staged_copies, "_REPLICATE_TIMEOUT_MS", 1_000)
    cluster.cut = {3}
    with pytest.raises(NotEnoughReplicas, match="broker 3"):
        await stage(cluster, 1, "ab")
    await cluster.until(lambda: not files(cluster, 1) + files(cluster, 2), "nothing is left")

    cluster.cut = {2, 3}
    await lead(cluster, 1, 1, (1,))
    with pytest.raises(NotEnoughReplicas):
        await stage(cluster, 1, "ab")
    assert held(cluster, 1) == 0


async def test_a_replica_without_room_refuses_for_all(tmp_path: Path) -> None:
    async with await three(tmp_path, staging_max_bytes=1_024) as cluster:
        await cluster.brokers[2].engine.staging.keep(("f" * 32, 0), ID, batch("x" * 940))

        with pytest.raises(StagingFull, match="broker 2"):
            await stage(cluster, 1, "x" * 10)
        with pytest.raises(BodyTooLarge):
            await stage(cluster, 1, "x" * 2_000)

        await cluster.until(lambda: not files(cluster, 1) and not files(cluster, 3), "none is kept")


async def test_a_leader_that_was_succeeded_stages_nothing(cluster: SmallCluster) -> None:
    """It does not know yet, but the replicas that must store the copies do."""
    cluster.publish(2, 1, (1, 2, 3))
    await cluster.grant(2, 3)
    staging = asyncio.create_task(stage(cluster, 1, "ab"))
    await cluster.until(lambda: bool(files(cluster, 1)), "it has begun")
    await cluster.grant(1)

    with pytest.raises(NotLeader):
        await staging

    assert files(cluster, 2) == files(cluster, 3) == []


async def test_one_replica_is_enough_where_there_is_no_other(tmp_path: Path) -> None:
    async with SmallCluster(tmp_path) as cluster:
        await cluster.start(1)
        cluster.publish(1, 0, (1,))
        await cluster.grant(1, init=True, replicas=(1,))

        await publish(cluster, 1, 0, await stage(cluster, 1, "ab"))

        assert await cluster.read(1) == ["a", "b"]
        assert not cluster.brokers[1].engine.copies._discarded, "there is no other replica"


def said(cluster: SmallCluster, **changed: Any) -> dict[str, Any]:
    """Return the identity fields of a request from the leader to broker 2."""
    return {
        "broker_id": 2,
        "incarnation": cluster.brokers[2].state.incarnation,
        "leader": 1,
        "leader_epoch": 1,
        "topic_id": TOPIC_ID,
        "partition": 0,
        **changed,
    }


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"broker_id": 3}, InvalidRequest),
        ({"incarnation": 0}, StaleIncarnation),
        ({"topic_id": "2" * 32}, UnknownPartition),
        ({"partition": 9}, UnknownPartition),
        ({"leader_epoch": 0}, FencedLeaderEpoch),
        ({"leader_epoch": 2}, UnknownLeaderEpoch),
        ({"leader": 3}, UnknownLeaderEpoch),
    ],
)
async def test_only_the_leader_has_others_keep_anything_or_let_go_of_it(
    cluster: SmallCluster, changed: dict[str, Any], error: type[LeadlineError]
) -> None:
    await lead(cluster, 1, 1, (1, 2, 3))
    staged = await stage(cluster, 1, "ab")
    copies = cluster.brokers[2].engine.copy_store
    identity = said(cluster, **changed)

    with pytest.raises(error):
        await copies.keep(KeepStagedRequest(**identity, staged_id=ID, records=bytes(batch("x"))))
    if identity["leader_epoch"] < 2:
        with pytest.raises(error):
            await copies.drop(DropStagedRequest(**identity, staged_ids=staged))
        with pytest.raises(error):
            await copies.read(ReadStagedRequest(**identity, staged_id=staged[0]))

    assert files(cluster, 2) == staged


async def test_a_copy_is_kept_once(cluster: SmallCluster) -> None:
    """The answer to the first request was lost, or is still to come."""
    copies = cluster.brokers[2].engine.copy_store
    identity = said(cluster, leader_epoch=0)
    request = KeepStagedRequest(**identity, staged_id=ID, records=bytes(batch("x")))

    await asyncio.gather(copies.keep(request), copies.keep(request))

    assert held(cluster, 2) == len(request.records)
    read = await copies.read(ReadStagedRequest(**identity, staged_id=ID))
    assert read.records == request.records
    with pytest.raises(UnknownStaged):
        await copies.read(ReadStagedRequest(**identity, staged_id="f" * 32))


async def content(staging: Staging) -> bytes:
    """Return what the upload has."""
    with staging.pinned((TOPIC_ID, 0), [ID]) as [upload]:
        return await staging.read((TOPIC_ID, 0), upload)


class GatedFiles(StagedFiles):
    """Staged uploads whose writes, removals and reads wait until the test opens their gates."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.writing, self.removing = Event(), Event()
        self.reading, self.answering = Event(), Event()
        self.reading.set()
        self.answering.set()
        self.begun = self.looked = 0

    def write(self, key: ReplicaKey, staged_id: str, data: Buffer) -> None:
        self.begun += 1
        assert self.writing.wait(DEADLINE_S)
        super().write(key, staged_id, data)

    def remove(self, key: ReplicaKey, staged_ids: Iterable[str]) -> None:
        assert self.removing.wait(DEADLINE_S)
        super().remove(key, staged_ids)

    def read(self, key: ReplicaKey, staged_id: str) -> bytes | None:
        assert self.reading.wait(DEADLINE_S)
        found = super().read(key, staged_id)
        self.looked += 1
        assert self.answering.wait(DEADLINE_S)
        return found


async def test_an_upload_is_written_again_after_its_removal_has_ended(
    cluster: SmallCluster,
) -> None:
    """A damaged copy is replaced under the same name; the removal ended after the new write."""
    key, data, staging = (TOPIC_ID, 0), batch("x"), cluster.brokers[1].engine.staging
    store = staging.store = GatedFiles(cluster.root / "1")
    store.writing.set()
    await staging.keep(key, ID, data)
    staging.discard(key, [ID])

    again = asyncio.create_task(staging.keep(key, ID, data))
    await asyncio.wait({again}, timeout=SOON_S)
    assert not again.done()
    store.removing.set()
    await again
    await cluster.until(lambda: not cluster.brokers[1].engine.removals, "nothing is removed")

    assert await content(staging) == data


async def test_an_upload_is_written_again_after_its_first_write_has_ended(
    cluster: SmallCluster,
) -> None:
    """The replica was removed and made again meanwhile, and the leader sent the copy again."""
    key, data, staging = (TOPIC_ID, 0), batch("x"), cluster.brokers[1].engine.staging
    store = staging.store = GatedFiles(cluster.root / "1")
    store.removing.set()
    first = asyncio.create_task(staging.keep(key, ID, data))
    await cluster.until(lambda: store.begun == 1, "the first write has begun")
    staging.forget(key)

    again = asyncio.create_task(staging.keep(key, ID, data))
    await asyncio.wait({again}, timeout=SOON_S)
    assert store.begun == 1
    store.writing.set()
    await again
    with pytest.raises(LeaderNotAvailable):
        await first
    await cluster.until(lambda: not cluster.brokers[1].engine.removals, "nothing is removed")

    assert await content(staging) == data


async def test_a_write_whose_request_was_cancelled_leaves_no_file(cluster: SmallCluster) -> None:
    """The thread goes on: its file came after the removal, and counted at the next start."""
    key, staging = (TOPIC_ID, 0), cluster.brokers[1].engine.staging
    store = staging.store = GatedFiles(cluster.root / "1")
    store.removing.set()
    keeping = asyncio.create_task(staging.keep(key, ID, batch("x")))
    await cluster.until(lambda: store.begun == 1, "the write has begun")
    keeping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await keeping
    stopping = asyncio.create_task(cluster.stop(1))
    await asyncio.wait({stopping}, timeout=SOON_S)
    assert not stopping.done()
    store.writing.set()
    await stopping

    assert (staging.used_bytes, store.found()) == (0, [])


async def test_an_upload_is_written_again_after_a_cancelled_write_has_ended(
    cluster: SmallCluster,
) -> None:
    """Both threads wrote to one temporary file."""
    key, data, staging = (TOPIC_ID, 0), batch("x"), cluster.brokers[1].engine.staging
    store = staging.store = GatedFiles(cluster.root / "1")
    store.removing.set()
    keeping = asyncio.create_task(staging.keep(key, ID, data))
    await cluster.until(lambda: store.begun == 1, "the write has begun")
    keeping.cancel()

    again = asyncio.create_task(staging.keep(key, ID, data))
    await asyncio.wait({again}, timeout=SOON_S)
    assert store.begun == 1
    store.writing.set()
    await again
    await cluster.until(lambda: not cluster.brokers[1].engine.removals, "nothing is removed")

    assert await content(staging) == data


async def test_a_read_of_a_former_file_does_not_discard_the_upload_that_follows(
    cluster: SmallCluster,
) -> None:
    """The replica was removed and made again, and was sent the copy again, while a thread read."""
    key, data, staging = (TOPIC_ID, 0), batch("x"), cluster.brokers[1].engine.staging
    store = staging.store = GatedFiles(cluster.root / "1")
    store.writing.set()
    store.removing.set()
    await staging.keep(key, ID, data)
    store.reading.clear()
    store.answering.clear()
    reading = asyncio.create_task(content(staging))
    await asyncio.sleep(0)
    staging.forget(key)
    await cluster.until(lambda: not cluster.brokers[1].engine.removals, "the file is removed")
    store.reading.set()
    await cluster.until(lambda: store.looked == 1, "the file was not found")
    await staging.keep(key, ID, data)
    store.answering.set()
    with pytest.raises(UnknownStaged):
        await reading

    assert await content(staging) == data
    assert staging.used_bytes == len(data)


@pytest.mark.parametrize("years", [10, -10])
async def test_an_upload_expires_in_its_time_although_the_wall_clock_is_set(
    cluster: SmallCluster, years: int
) -> None:
    """Set forward, a publish would miss its uploads; set back, abandoned ones would stay."""
    staging, clock = cluster.brokers[1].engine.staging, ManualClock()
    staging.clock = clock
    await stage(cluster, 1, "ab")
    clock.step_wall(years * YEAR)
    staging.sweep()
    assert held(cluster, 1)

    clock.advance(TTL_MS)
    staging.sweep()

    assert not held(cluster, 1)


async def test_an_upload_from_the_future_expires_after_its_time_from_a_restart_on(
    cluster: SmallCluster,
) -> None:
    """The clock was ahead when it was written."""
    await stage(cluster, 1, "ab")
    (staged,) = files(cluster, 1)
    path = cluster.root / "1" / STAGED / staged
    os.utime(path, (2**33, 2**33))
    await cluster.stop(1)
    await cluster.start(1)
    staging = cluster.brokers[1].engine.staging
    assert held(cluster, 1)

    clock = ManualClock(SystemClock().monotonic_ms() + TTL_MS)
    staging.clock = clock
    staging.sweep()

    assert not held(cluster, 1)
