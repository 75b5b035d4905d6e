"""Produce, fetch and offsets, by brokers that replicate for real."""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from leadline_broker.runtime.serving.fetched_data import FetchedData
from leadline_client.batch_header import BatchHeader, Buffer
from leadline_client.errors import (
    BodyTooLarge,
    BrokerFenced,
    CorruptBatch,
    FencedLeaderEpoch,
    InvalidRequest,
    LeadershipLost,
    LeadlineError,
    LogTruncated,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeader,
    OffsetNotAvailable,
    OffsetOutOfRange,
    OutOfOrderSequence,
    RequestTimedOut,
    StorageFailed,
    TopicIdMismatch,
    UnknownLeaderEpoch,
    UnknownTopic,
)
from tests.unit.broker.small_cluster import TOPIC, SmallCluster, batch, three, values

NEXT_ID = "2" * 32


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[SmallCluster]:
    async with await three(tmp_path) as running:
        yield running


async def test_an_acknowledged_record_is_on_every_replica(cluster: SmallCluster) -> None:
    results = [await cluster.produce(1, f"v{number}") for number in range(5)]

    assert [result.base_offset for result in results] == [0, 1, 2, 3, 4]
    assert cluster.stored(1)
    assert cluster.stored(1) == cluster.stored(2) == cluster.stored(3)
    assert await cluster.read(1) == ["v0", "v1", "v2", "v3", "v4"]


async def test_an_acknowledged_record_is_durable_everywhere(cluster: SmallCluster) -> None:
    await cluster.produce(1, "v")

    durable = [
        broker.engine.replicas.describe()[0].durable_end_offset
        for broker in cluster.brokers.values()
    ]
    assert durable == [1, 1, 1]


async def test_many_producers_at_once_get_their_own_offsets(cluster: SmallCluster) -> None:
    results = await asyncio.gather(*(cluster.produce(1, f"v{n}", "w") for n in range(50)))

    assert sorted(result.base_offset for result in results) == list(range(0, 100, 2))
    assert cluster.stored(1) == cluster.stored(2) == cluster.stored(3)


async def test_acks_1_does_not_wait_for_followers(cluster: SmallCluster) -> None:
    cluster.cut = {2, 3}

    result = await cluster.produce(1, "v", acks="1")

    assert result.base_offset == 0
    assert await cluster.read(1) == []


async def test_a_follower_refuses_and_says_who_leads(cluster: SmallCluster) -> None:
    with pytest.raises(NotLeader) as refusal:
        await cluster.produce(2, "v")

    assert refusal.value.leader is not None
    assert (refusal.value.leader.id, refusal.value.leader.url) == (1, "http://b/1")
    assert cluster.end(2) == 0


@pytest.mark.parametrize(
    ("has_metadata", "error"),
    [(True, UnknownTopic), (False, BrokerFenced)],
    ids=["later", "at start"],
)
async def test_only_a_broker_with_metadata_says_that_a_topic_is_unknown(
    cluster: SmallCluster, error: type[LeadlineError], *, has_metadata: bool
) -> None:
    """One that has just started may lack what exists: a client would give its records up."""
    if has_metadata:
        cluster.tell_metadata(1)
    with pytest.raises(error):
        cluster.brokers[1].engine.topic_appends.layout("no")
    with pytest.raises(error):
        await cluster.brokers[1].engine.serving.produce(
            "no", 0, batch("v"), acks="1", timeout_ms=10
        )


@pytest.mark.parametrize(("stated", "error"), [(-1, FencedLeaderEpoch), (7, UnknownLeaderEpoch)])
async def test_a_stated_epoch_must_be_the_leader_s(
    cluster: SmallCluster, stated: int, error: type[Exception]
) -> None:
    with pytest.raises(error):
        await cluster.brokers[1].engine.serving.produce(
            TOPIC, 0, batch("v"), acks="1", timeout_ms=10, leader_epoch=stated
        )

    assert cluster.end(1) == 0


async def test_without_a_grant_nothing_is_served(tmp_path: Path) -> None:
    async with SmallCluster(tmp_path) as cluster:
        await cluster.start(1)

        with pytest.raises(BrokerFenced):
            await cluster.produce(1, "v")


async def test_without_a_lease_nothing_is_appended(cluster: SmallCluster) -> None:
    cluster.stores[1].lease = False

    with pytest.raises(BrokerFenced):
        await cluster.produce(1, "v", acks="1")
    with pytest.raises(BrokerFenced):
        await cluster.read(1)

    assert cluster.end(1) == 0


async def test_a_lease_that_ends_during_the_checks_is_noticed_before_the_append(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large batches are checked in a thread, and another leader may have been elected since."""
    serving = cluster.brokers[1].engine.serving
    check = serving.checks.check

    async def slow(data: Buffer, limit: int) -> list[BatchHeader]:
        headers = await check(data, limit)
        cluster.stores[1].lease = False
        return headers

    monkeypatch.setattr(serving.checks, "check", slow)

    with pytest.raises(BrokerFenced):
        await cluster.produce(1, "v", acks="1")

    assert cluster.end(1) == 0


async def test_a_produce_for_the_topic_that_had_the_name_before_is_refused(
    cluster: SmallCluster,
) -> None:
    with pytest.raises(TopicIdMismatch):
        await cluster.brokers[1].engine.serving.produce(
            TOPIC, 0, batch("v"), acks="1", timeout_ms=10, topic_id="0" * 32
        )

    assert cluster.end(1) == 0


async def test_a_lease_that_ends_before_the_ack_leaves_the_outcome_unknown(
    cluster: SmallCluster,
) -> None:
    cluster.cut = {2, 3}
    produce = asyncio.create_task(cluster.produce(1, "v"))
    await cluster.until(lambda: cluster.end(1) == 1, "the record is appended")
    cluster.stores[1].lease = False
    cluster.cut = set()

    with pytest.raises(LeadershipLost):
        await produce


async def test_too_few_in_sync_refuse_before_the_append(tmp_path: Path) -> None:
    async with SmallCluster(tmp_path) as cluster:
        await cluster.start(1, 2, 3)
        cluster.publish(1, 0, (1,))
        cluster.cut = {2, 3}
        await cluster.grant(1, init=True)

        with pytest.raises(NotEnoughReplicas):
            await cluster.produce(1, "v")

        assert cluster.end(1) == 0


async def test_too_few_in_sync_after_the_append_is_said(cluster: SmallCluster) -> None:
    await cluster.produce(1, "v")
    cluster.cut = {2, 3}

    with pytest.raises(NotEnoughReplicasAfterAppend):
        await cluster.produce(1, "w", timeout_ms=2_500)

    assert cluster.nodes.states[TOPIC, 0].isr == (1,)
    assert await cluster.read(1) == ["v"]


async def test_a_slow_follower_makes_a_produce_time_out(cluster: SmallCluster) -> None:
    cluster.cut = {2}

    with pytest.raises(RequestTimedOut):
        await cluster.produce(1, "v", timeout_ms=100)

    assert cluster.end(1) == 1


async def test_the_high_watermark_bounds_what_is_read(cluster: SmallCluster) -> None:
    await cluster.produce(1, "v")
    cluster.cut = {2, 3}
    await cluster.produce(1, "w", acks="1")

    assert await cluster.read(1) == ["v"]
    assert await cluster.read(1, offset=1) == []
    assert await cluster.read(1, offset=2) == []
    with pytest.raises(OffsetOutOfRange) as refusal:
        await cluster.read(1, offset=3)
    assert refusal.value.details == {"log_start_offset": 0, "high_watermark": 1}


async def test_defect_02_the_epoch_of_a_record_that_is_not_committed_is_not_told(
    cluster: SmallCluster,
) -> None:
    """A clean election may replace that record: a reader at its end has not lost anything."""
    await cluster.produce(1, "v")
    cluster.cut = {2, 3}
    await cluster.produce(1, "w", acks="1")

    async def told(offset: int, last_epoch: int | None = None) -> int | None:
        fetched = await cluster.brokers[1].engine.serving.fetch(
            TOPIC, 0, offset, max_bytes=1, min_bytes=1, wait_ms=0, last_epoch=last_epoch
        )
        return fetched.last_epoch

    assert await told(1) == 0
    assert await told(2) is None
    assert await told(2, last_epoch=0) == 0, "what the reader has stated, and the log confirms"


async def test_a_long_poll_ends_with_the_commit(cluster: SmallCluster) -> None:
    reading = asyncio.create_task(cluster.read(1, wait_ms=60_000))
    await asyncio.sleep(0)

    await cluster.produce(1, "v")

    assert await asyncio.wait_for(reading, 5) == ["v"]


async def test_a_wait_that_ends_as_the_topic_is_recreated_returns_nothing_of_the_former_one(
    cluster: SmallCluster,
) -> None:
    """The records of the former topic were returned with the id of the new one."""
    await cluster.produce(1, "former")
    engine, wait_s = cluster.brokers[1].engine, 0.05
    fetching = asyncio.create_task(
        engine.serving.fetch(
            TOPIC, 0, 0, max_bytes=1 << 20, min_bytes=1 << 10, wait_ms=int(wait_s * 1000)
        )
    )
    await asyncio.sleep(0)
    cluster.publish(1, 0, (1, 2, 3))
    granting = engine.commands.leader_and_isr(cluster.request(1, topic_id=NEXT_ID))

    def recreate() -> None:
        with pytest.raises(StopIteration):  # It has ended without a wait.
            granting.send(None)

    # The loop stands still until both are due, so that it runs the end of the wait, then this.
    asyncio.get_running_loop().call_later(wait_s, recreate)
    time.sleep(2 * wait_s)  # noqa: ASYNC251 - the loop is to stand still
    fetched = await fetching

    assert (fetched.topic_id, values(fetched.records)) == (NEXT_ID, [])


async def test_a_long_poll_ends_when_leadership_goes(cluster: SmallCluster) -> None:
    reading = asyncio.create_task(cluster.read(1, wait_ms=60_000))
    await asyncio.sleep(0)

    cluster.publish(2, 1, (1, 2, 3))
    await cluster.grant(1)

    with pytest.raises(NotLeader):
        await asyncio.wait_for(reading, 5)


async def test_a_fetch_tells_where_to_read_on(cluster: SmallCluster) -> None:
    await cluster.produce(1, "a", "b")
    await cluster.produce(1, "c")

    first = await cluster.brokers[1].engine.serving.fetch(
        TOPIC, 0, 1, max_bytes=1, min_bytes=1, wait_ms=0
    )

    assert (first.next_offset, first.high_watermark, first.leader_epoch) == (2, 3, 0)
    assert (
        await cluster.brokers[1].engine.serving.fetch(
            TOPIC, 0, 3, max_bytes=1, min_bytes=1, wait_ms=0
        )
    ).next_offset == 3


async def test_defect_02_a_fetch_validates_the_record_before_it(cluster: SmallCluster) -> None:
    """The log is a (epoch 0), b, c (epoch 2); epoch 1 wrote nothing that is left."""
    await cluster.produce(1, "a")
    cluster.publish(1, 2, (1, 2, 3))
    await cluster.grant(1, 2, 3)
    await cluster.produce(1, "b", "c")

    async def fetch(offset: int, last_epoch: int | None) -> FetchedData:
        return await cluster.brokers[1].engine.serving.fetch(
            TOPIC, 0, offset, max_bytes=1, min_bytes=1, wait_ms=0, last_epoch=last_epoch
        )

    first = await fetch(0, None)
    assert (first.next_offset, first.last_epoch) == (1, 0)
    rest = await fetch(first.next_offset, first.last_epoch)
    assert (rest.next_offset, rest.last_epoch) == (3, 2)
    assert (await fetch(3, 2)).last_epoch == 2
    for position, divergence in {
        (2, 1): (1, 0),  # it has read a record of epoch 1
        (3, 0): (1, 0),  # epoch 0 has ended before
        (9, 2): (3, 2),  # beyond the end of the log
    }.items():
        with pytest.raises(LogTruncated) as truncated:
            await fetch(*position)
        error = truncated.value
        assert (error.topic, error.partition, error.position) == (TOPIC, 0, position[0])
        assert (error.divergence_offset, error.divergence_epoch) == divergence
        assert error.body()["error_code"] == 41651
    with pytest.raises(UnknownLeaderEpoch):  # the reader knows more than this leader
        await fetch(3, 3)
    with pytest.raises(OffsetOutOfRange):
        await fetch(9, None)
    assert (await cluster.brokers[1].engine.serving.offsets(TOPIC, 0)).last_epoch == 2


async def test_a_repeated_idempotent_batch_is_answered_as_before(cluster: SmallCluster) -> None:
    broker = cluster.brokers[1]
    sent = batch("a", "b", producer=(7, 0, 0))
    first = await broker.engine.serving.produce(
        TOPIC, 0, bytearray(sent), acks="all", timeout_ms=5_000
    )

    again = await broker.engine.serving.produce(
        TOPIC, 0, bytearray(sent), acks="all", timeout_ms=5_000
    )

    assert (first.base_offset, first.duplicate) == (0, False)
    assert (again.base_offset, again.duplicate, again.count) == (0, True, 2)
    assert cluster.end(1) == 2


async def test_a_duplicate_waits_until_the_original_is_committed(cluster: SmallCluster) -> None:
    broker = cluster.brokers[1]
    cluster.cut = {2, 3}
    await broker.engine.serving.produce(
        TOPIC, 0, batch("a", producer=(7, 0, 0)), acks="1", timeout_ms=10
    )

    with pytest.raises(RequestTimedOut):
        await broker.engine.serving.produce(
            TOPIC, 0, batch("a", producer=(7, 0, 0)), acks="all", timeout_ms=50
        )


async def test_the_next_leader_knows_the_producer(cluster: SmallCluster) -> None:
    await cluster.brokers[1].engine.serving.produce(
        TOPIC, 0, batch("a", producer=(7, 0, 0)), acks="all", timeout_ms=5_000
    )
    cluster.publish(2, 1, (1, 2, 3))
    await cluster.grant(1, 2, 3)
    broker = cluster.brokers[2]

    again = await broker.engine.serving.produce(
        TOPIC, 0, batch("a", producer=(7, 0, 0)), acks="all", timeout_ms=5_000
    )

    assert again.duplicate
    with pytest.raises(OutOfOrderSequence):
        await broker.engine.serving.produce(
            TOPIC, 0, batch("c", producer=(7, 0, 2)), acks="all", timeout_ms=9
        )


async def test_bad_bodies_append_nothing(cluster: SmallCluster) -> None:
    broker = cluster.brokers[1]
    flipped = batch("v")
    flipped[-1] ^= 1
    two = batch("a", producer=(7, 0, 0)) + batch("b", producer=(7, 0, 1))
    huge = batch("x" * 2_000_000)

    for data, error in ((flipped, CorruptBatch), (two, InvalidRequest), (huge, BodyTooLarge)):
        with pytest.raises(error):
            await broker.engine.serving.produce(TOPIC, 0, data, acks="all", timeout_ms=10)

    assert cluster.end(1) == 0


async def test_offsets_wait_for_what_the_predecessor_committed(cluster: SmallCluster) -> None:
    await cluster.produce(1, "v")
    assert (await cluster.brokers[1].engine.serving.offsets(TOPIC, 0)).high_watermark == 1
    cluster.cut = {1, 3}
    cluster.brokers[2].engine.replicas.all()[0].replica.state.high_watermark = 0
    cluster.publish(2, 1, (1, 2, 3))
    await cluster.grant(2)

    with pytest.raises(OffsetNotAvailable):
        await cluster.brokers[2].engine.serving.offsets(TOPIC, 0)

    cluster.cut = set()
    await cluster.grant(1, 3)
    await cluster.until(
        lambda: cluster.brokers[2].engine.replicas.describe()[0].high_watermark == 1,
        "the leader has caught up",
    )
    assert (await cluster.brokers[2].engine.serving.offsets(TOPIC, 0)).high_watermark == 1


async def test_a_full_disk_is_a_definite_refusal(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.produce(1, "v")

    def no_room(*_: object) -> int:
        raise OSError(errno.ENOSPC, "no room")

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", no_room)
        with pytest.raises(StorageFailed) as refusal:
            await cluster.produce(1, "w")

    assert refusal.value.outcome == "refused"
    assert (await cluster.produce(1, "x")).base_offset == 1
    assert await cluster.read(1) == ["v", "x"]


async def test_a_failed_fsync_ends_the_broker(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = cluster.brokers[1]
    real = os.fdatasync

    def failing(fd: int) -> None:
        if "/1/" in str(Path(f"/proc/self/fd/{fd}").readlink()):
            raise OSError(errno.EIO, "broken")
        real(fd)

    monkeypatch.setattr(os, "fdatasync", failing)

    with pytest.raises(LeadershipLost):
        await cluster.produce(1, "v")
    with pytest.raises(StorageFailed):
        await asyncio.wait_for(leader.failed(), 5)
    with pytest.raises(BrokerFenced):
        await cluster.produce(1, "w")
