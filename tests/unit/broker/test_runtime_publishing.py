"""Staging and publishing, by brokers that replicate for real."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from leadline_broker.domain.publishes import FIRST_PUBLISHER_ID, piece_epoch, publisher_id
from leadline_broker.runtime.staging import publishing
from leadline_broker.runtime.staging.publishing import PublishedBatch
from leadline_broker.runtime.staging.staging import StagingResult
from leadline_client.batch_header import parse_headers
from leadline_client.batches import crc_matches, stamp_producer
from leadline_client.errors import (
    BodyTooLarge,
    CorruptBatch,
    FencedLeaderEpoch,
    InvalidRequest,
    LeadershipLost,
    NotEnoughReplicas,
    NotLeader,
    PublishMismatch,
    RequestTimedOut,
    StagingFull,
    UnknownStaged,
)
from tests.unit.broker.small_cluster import TOPIC, TOPIC_ID, SmallCluster, batch, three

STAGED = Path("staged") / f"{TOPIC_ID}-0"


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[SmallCluster]:
    async with await three(tmp_path) as running:
        yield running


async def stage(cluster: SmallCluster, to: int, *uploads: str) -> list[str]:
    """Stage an upload for each text: a batch for each word, a record for each letter."""
    ids = []
    for text in uploads:
        data = b"".join(batch(*word) for word in text.split())
        upload: StagingResult = await cluster.brokers[to].engine.staging.stage(TOPIC, 0, data)
        ids.append(upload.staged_id)
    return ids


async def publish(
    cluster: SmallCluster, to: int, number: int, staged: list[str], timeout_ms: int = 5_000
) -> PublishedBatch:
    publishing = cluster.brokers[to].engine.publishing
    return await publishing.publish(TOPIC, 0, "app", number, staged, timeout_ms)


def files(cluster: SmallCluster, at: int) -> list[str]:
    directory = cluster.root / str(at) / STAGED
    return sorted(path.name for path in directory.iterdir()) if directory.exists() else []


async def lead(cluster: SmallCluster, broker: int, epoch: int, isr: tuple[int, ...]) -> None:
    cluster.publish(broker, epoch, isr)
    await cluster.grant(*sorted(cluster.brokers.keys() - cluster.cut))


async def test_what_is_staged_is_in_no_log_before_it_is_published(cluster: SmallCluster) -> None:
    staged = await stage(cluster, 1, "ab c", "d")
    assert cluster.end(1) == 0

    done = await publish(cluster, 1, 0, staged)

    assert done == PublishedBatch(0, 3, 0, duplicate=False)
    assert await cluster.read(1) == ["a", "b", "c", "d"]
    assert cluster.stored(1) == cluster.stored(2) == cluster.stored(3)
    await cluster.until(lambda: not files(cluster, 1), "the uploads are deleted")
    assert cluster.brokers[1].engine.staging.used_bytes == 0


async def test_the_log_says_who_published_what(cluster: SmallCluster) -> None:
    await publish(cluster, 1, 41, await stage(cluster, 1, "ab c", "d"))

    stored = cluster.stored(1)
    headers = list(parse_headers(stored))
    assert [header.producer_id for header in headers] == [publisher_id("app")] * 3
    assert [header.base_sequence for header in headers] == [41] * 3
    assert [header.producer_epoch for header in headers] == [piece_epoch(n, 3) for n in range(3)]
    assert all(crc_matches(stored, header) for header in headers)


async def test_a_batch_is_published_once(cluster: SmallCluster) -> None:
    first = await publish(cluster, 1, 0, await stage(cluster, 1, "ab"))
    await publish(cluster, 1, 3, await stage(cluster, 1, "c"))
    staged = await stage(cluster, 1, "c")

    again = await publish(cluster, 1, 3, staged)
    earlier = await publish(cluster, 1, 0, ["nothing-like-it"])

    assert first == PublishedBatch(0, 1, 0, duplicate=False)
    assert again == PublishedBatch(2, 2, 0, duplicate=True)
    assert earlier == PublishedBatch(None, None, 0, duplicate=True)
    assert await cluster.read(1) == ["a", "b", "c"]
    await cluster.until(lambda: not files(cluster, 1), "the repeated upload is deleted")


async def test_a_batch_is_known_to_the_next_leader(cluster: SmallCluster) -> None:
    await publish(cluster, 1, 0, await stage(cluster, 1, "ab"))
    await lead(cluster, 2, 1, (1, 2, 3))

    again = await publish(cluster, 2, 0, ["lost"])

    assert (again.base_offset, again.last_offset, again.duplicate) == (0, 1, True)


async def test_a_batch_is_known_after_a_restart(cluster: SmallCluster) -> None:
    await publish(cluster, 1, 0, await stage(cluster, 1, "ab"))
    for number in (1, 2, 3):
        await cluster.stop(number)
    await cluster.start(1, 2, 3)
    cluster.publish(3, 1, (1, 2, 3))
    await cluster.grant(1, 2, 3, init=True)

    again = await publish(cluster, 3, 0, ["lost"])

    assert (again.base_offset, again.last_offset, again.duplicate) == (0, 1, True)


async def test_uploads_outlive_a_restart_of_the_leader(cluster: SmallCluster) -> None:
    await cluster.produce(1, "x")
    staged = await stage(cluster, 1, "ab")
    await cluster.stop(1)
    await cluster.start(1)
    cluster.publish(1, 1, (1, 2, 3))
    await cluster.grant(2, 3)
    await cluster.grant(1, init=True)

    await publish(cluster, 1, 0, staged)

    assert await cluster.read(1) == ["x", "a", "b"]


async def test_a_duplicate_is_not_answered_before_it_is_committed(cluster: SmallCluster) -> None:
    staged = await stage(cluster, 1, "ab")
    cluster.cut = {2, 3}
    with pytest.raises(RequestTimedOut):
        await publish(cluster, 1, 0, staged, timeout_ms=50)
    with pytest.raises(RequestTimedOut):
        await publish(cluster, 1, 0, staged, timeout_ms=50)

    waiting = asyncio.create_task(publish(cluster, 1, 0, staged))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    cluster.cut = set()

    assert await waiting == PublishedBatch(0, 1, 0, duplicate=True)
    assert await cluster.read(1) == ["a", "b"]


async def test_two_publishes_of_one_batch_at_once_are_one(cluster: SmallCluster) -> None:
    staged = await stage(cluster, 1, "ab", "c")

    done = await asyncio.gather(*(publish(cluster, 1, 0, staged) for _ in range(5)))

    assert sorted(one.duplicate for one in done) == [False, True, True, True, True]
    assert {(one.base_offset, one.last_offset) for one in done} == {(0, 2)}
    assert await cluster.read(1) == ["a", "b", "c"]


async def test_what_all_replicas_have_lost_is_published_by_the_replay(
    cluster: SmallCluster,
) -> None:
    staged = await stage(cluster, 1, "ab")
    for broker in cluster.brokers.values():
        broker.engine.staging.forget((TOPIC_ID, 0))
    await lead(cluster, 2, 1, (1, 2, 3))

    with pytest.raises(UnknownStaged):
        await publish(cluster, 2, 0, staged)
    await publish(cluster, 2, 0, await stage(cluster, 2, "ab"))

    assert await cluster.read(2) == ["a", "b"]


async def test_a_late_removal_spares_what_was_staged_after_the_replica_returned(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    late: list[Callable[[], None]] = []

    def take_later(work: Callable[[], None]) -> asyncio.Future[None]:
        late.append(work)
        return asyncio.get_running_loop().create_future()

    stagings = [broker.engine.staging for broker in cluster.brokers.values()]
    await stage(cluster, 1, "cd")
    with monkeypatch.context() as slow_disk:
        for staging in stagings:
            slow_disk.setattr(staging, "in_background", take_later)
            staging.forget((TOPIC_ID, 0))
    staged = await stage(cluster, 1, "ab")

    for remove in late:
        remove()
    await publish(cluster, 1, 0, staged)

    assert await cluster.read(1) == ["a", "b"]


async def half_published(cluster: SmallCluster, text: str, pieces: int) -> None:
    """Append only the first pieces, as a leader that died in the middle of a publish."""
    words = text.split()
    led = cluster.brokers[1].engine.replicas.named(TOPIC, 0)
    assert led is not None
    for place in range(pieces):
        data = batch(*words[place])
        (header,) = parse_headers(data)
        stamp_producer(data, header, publisher_id("app"), piece_epoch(place, len(words)), 0)
        (header,) = parse_headers(data)
        serving = cluster.brokers[1].engine.serving
        _, end = serving.append(led, data, [header], led.replica.state.leader_epoch)
        await serving.committed(led, end, 5_000)


async def test_a_batch_that_a_leader_left_half_done_is_completed(cluster: SmallCluster) -> None:
    await half_published(cluster, "ab c de", pieces=2)
    await cluster.produce(1, "between")
    await lead(cluster, 3, 1, (1, 2, 3))

    done = await publish(cluster, 3, 0, await stage(cluster, 3, "ab", "c de"))
    again = await publish(cluster, 3, 0, ["gone"])

    assert await cluster.read(3) == ["a", "b", "c", "between", "d", "e"]
    assert (done.base_offset, done.last_offset, done.duplicate) == (0, 5, False)
    assert (again.base_offset, again.last_offset, again.duplicate) == (0, 5, True)


async def test_a_replay_that_differs_from_what_is_there_changes_nothing(
    cluster: SmallCluster,
) -> None:
    await half_published(cluster, "ab c de", pieces=2)

    with pytest.raises(PublishMismatch):
        await publish(cluster, 1, 0, await stage(cluster, 1, "a bc de"))

    assert cluster.end(1) == 3


async def test_a_large_batch_is_appended_in_parts(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing, "_APPEND_BYTES", 200)
    words = ["ab", "c", "de", "f", "gh"]

    await publish(cluster, 1, 0, await stage(cluster, 1, *words))

    assert await cluster.read(1) == list("abcdefgh")
    headers = list(parse_headers(cluster.stored(1)))
    assert [header.producer_epoch for header in headers] == [piece_epoch(n, 5) for n in range(5)]


async def test_a_part_that_is_lost_on_the_way_leaves_the_outcome_unknown(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing, "_APPEND_BYTES", 1)
    staged = await stage(cluster, 1, "ab", "c", "de")
    appended = asyncio.Event()
    serving = cluster.brokers[1].engine.serving
    append = serving.append

    def once(*arguments: object) -> tuple[int, int]:
        found = append(*arguments)  # type: ignore[arg-type]  # Whatever it was called with.
        (cluster.root / "1" / STAGED / staged[1]).unlink()
        appended.set()
        return found

    monkeypatch.setattr(serving, "append", once)
    with pytest.raises(LeadershipLost):
        await publish(cluster, 1, 0, staged)
    assert appended.is_set()
    monkeypatch.undo()

    await publish(cluster, 1, 0, await stage(cluster, 1, "ab", "c", "de"))

    assert await cluster.read(1) == list("abcde")


async def test_what_was_begun_in_another_term_is_not_appended(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which pieces are missing was decided in that term; the log may have been truncated since."""
    staged = await stage(cluster, 1, "ab c")
    stamped, reached, released = publishing._stamped, asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def held(*arguments: object) -> bytearray:
        loop.call_soon_threadsafe(reached.set)
        assert released.wait(10)
        return stamped(*arguments)  # type: ignore[arg-type]  # Whatever it was called with.

    monkeypatch.setattr(publishing, "_stamped", held)
    publishing_it = asyncio.create_task(publish(cluster, 1, 0, staged))
    await reached.wait()
    await lead(cluster, 2, 1, (1, 2, 3))
    await lead(cluster, 1, 2, (1, 2, 3))
    released.set()
    with pytest.raises(FencedLeaderEpoch):
        await publishing_it

    assert cluster.end(1) == 0


async def test_a_damaged_upload_is_not_published(cluster: SmallCluster) -> None:
    staged = await stage(cluster, 1, "ab")
    for broker in cluster.brokers:
        path = cluster.root / str(broker) / STAGED / staged[0]
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)

    with pytest.raises(UnknownStaged):
        await publish(cluster, 1, 0, staged)

    assert cluster.end(1) == 0


async def test_too_few_in_sync_refuse_before_anything_is_appended(cluster: SmallCluster) -> None:
    staged = await stage(cluster, 1, "ab")
    cluster.cut = {2, 3}
    await cluster.produce(1, "x", acks="1")
    led = cluster.brokers[1].engine.replicas.named(TOPIC, 0)
    assert led is not None
    await cluster.until(lambda: led.replica.state.isr == (1,), "the leader is alone in the ISR")

    with pytest.raises(NotEnoughReplicas):
        await publish(cluster, 1, 0, staged)

    assert cluster.end(1) == 1
    assert files(cluster, 1) == staged


async def test_only_the_leader_stages_and_publishes(cluster: SmallCluster) -> None:
    with pytest.raises(NotLeader):
        await stage(cluster, 2, "ab")
    with pytest.raises(NotLeader):
        await publish(cluster, 2, 0, ["x"])


async def test_nobody_else_may_write_as_an_application(cluster: SmallCluster) -> None:
    forged = batch("x", producer=(FIRST_PUBLISHER_ID + 5, 0, 0))

    with pytest.raises(InvalidRequest):
        await cluster.brokers[1].engine.serving.produce(TOPIC, 0, forged, acks="1", timeout_ms=10)

    assert cluster.end(1) == 0


async def test_what_is_no_batch_is_not_staged(cluster: SmallCluster) -> None:
    with pytest.raises(CorruptBatch):
        await cluster.brokers[1].engine.staging.stage(TOPIC, 0, b"x" * 100)

    assert cluster.brokers[1].engine.staging.used_bytes == 0


async def test_no_more_is_staged_than_allowed(tmp_path: Path) -> None:
    async with await three(tmp_path, staging_max_bytes=1_024) as cluster:
        (first,) = await stage(cluster, 1, "x" * 10)

        with pytest.raises(BodyTooLarge):
            await stage(cluster, 1, " ".join("y" * 15))
        with pytest.raises(StagingFull):
            await stage(cluster, 1, " ".join("y" * 13))
        cluster.brokers[1].engine.staging.drop(TOPIC, 0, first)

        await stage(cluster, 1, " ".join("y" * 13))


async def test_what_is_dropped_is_gone(cluster: SmallCluster) -> None:
    staged = await stage(cluster, 1, "ab", "c")
    cluster.brokers[1].engine.staging.drop(TOPIC, 0, staged[0])

    with pytest.raises(UnknownStaged):
        cluster.brokers[1].engine.staging.drop(TOPIC, 0, staged[0])
    with pytest.raises(UnknownStaged):
        await publish(cluster, 1, 0, staged)

    await cluster.until(lambda: files(cluster, 1) == staged[1:], "its file is deleted")


async def test_what_nobody_publishes_is_deleted_in_time(tmp_path: Path) -> None:
    async with await three(tmp_path, staging_ttl_ms=1_000) as cluster:
        await stage(cluster, 1, "ab")

        await cluster.until(lambda: not files(cluster, 1), "the upload is deleted")

        assert cluster.brokers[1].engine.staging.used_bytes == 0


async def test_what_is_too_old_is_deleted_at_the_start(cluster: SmallCluster) -> None:
    old, young = await stage(cluster, 1, "ab", "c")
    await cluster.stop(1)
    path = cluster.root / "1" / STAGED / old
    os.utime(path, ns=(0, 0))
    (path.parent / "torn.tmp").write_bytes(b"x")

    await cluster.start(1)

    await cluster.until(lambda: files(cluster, 1) == [young], "only the younger is left")


async def test_uploads_go_with_their_replica(cluster: SmallCluster) -> None:
    await stage(cluster, 1, "ab")

    assert await cluster.stop_replica(1, 0) == 0

    uploads = cluster.root / "1" / STAGED
    await cluster.until(lambda: not any(uploads.iterdir()), "the uploads are gone")
    assert cluster.brokers[1].engine.staging.used_bytes == 0
