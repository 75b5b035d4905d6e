"""Brokers and batches that nobody can decode: refused from producers, and no obstacle if stored."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path

import msgspec
import pytest

from leadline_broker.api.json_answers import JsonShape, answer_json
from leadline_broker.runtime.serving.batch_checks import LIGHT_RECORDS, SMALL_BYTES, BatchChecks
from leadline_broker.runtime.serving.fetched_data import FetchedData
from leadline_client import batches
from leadline_client.batch_header import header_at, parse_headers
from leadline_client.errors import (
    BodyTooLarge,
    CorruptBatch,
    InvalidRequest,
    LeadlineError,
    OutOfOrderSequence,
    UnreadableBatch,
)
from leadline_client.payloads import OutgoingRecord
from tests.support.bad_input.batches import HOSTILE, NOW, Hostile, forged, good, zstd_bomb
from tests.unit.broker.log_support import first_at, open_log
from tests.unit.broker.small_cluster import TOPIC, SmallCluster, batch, three

LARGE = 1 << 24
UNREADABLE = forged(b"\xff" * 100, 3)


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[SmallCluster]:
    async with await three(tmp_path) as running:
        yield running


def checks_of(max_decompressed_bytes: int) -> BatchChecks:
    """Return checks that take no time."""
    return BatchChecks(lambda: max_decompressed_bytes, lambda: 0)


async def turns_during(checks: BatchChecks, data: bytes) -> int:
    """How often another task had its turn while a batch was checked."""
    turns = 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(take_turns())
    await checks.check(data, LARGE)
    other.cancel()
    return turns


async def test_a_small_batch_is_checked_without_a_thread() -> None:
    assert await turns_during(checks_of(LARGE), good("lz4")) == 0


async def test_a_large_batch_of_few_records_is_checked_without_a_thread() -> None:
    data = batches.encode([OutgoingRecord(b"v" * 1000) for _ in range(1_000)], now_ms=NOW)

    assert len(data) > SMALL_BYTES
    assert await turns_during(checks_of(LARGE), data) == 0


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(batches.encode([OutgoingRecord(b"v" * 2_000_000)], now_ms=NOW), id="bytes"),
        pytest.param(good("none", LIGHT_RECORDS), id="records"),
        pytest.param(good("none", 10) * (SMALL_BYTES // 100), id="batches"),
    ],
)
async def test_other_tasks_run_while_what_is_not_light_is_checked(data: bytes) -> None:
    assert await turns_during(checks_of(LARGE), data) > 0


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(good("lz4", 900) * 8, id="small"),
        pytest.param(good("none", LIGHT_RECORDS - 100), id="large"),
    ],
)
async def test_a_check_that_takes_long_goes_on_in_a_thread(data: bytes) -> None:
    """As that of many headers does, or of batches that each decompress to as much as one may.

    Each step takes a millisecond here.
    """
    steps = count()

    assert await turns_during(BatchChecks(lambda: LARGE, lambda: 0), data) == 0
    assert await turns_during(BatchChecks(lambda: LARGE, lambda: next(steps)), data) > 0


async def test_a_broken_batch_that_is_large_is_refused() -> None:
    data = batches.encode([OutgoingRecord(b"v" * 100_000)], now_ms=NOW)
    for broken in (data[:-1], data[:70_000] + b"w" + data[70_001:]):
        with pytest.raises(CorruptBatch):
            await checks_of(LARGE).check(broken, LARGE)


@pytest.mark.parametrize("codec", ["none", "zstd"])
async def test_other_tasks_run_while_a_large_batch_is_checked(codec: str) -> None:
    assert await turns_during(checks_of(LARGE), good(codec, 50_000)) > 0


async def test_a_small_batch_that_turns_out_large_is_checked_in_a_thread() -> None:
    [header] = await checks_of(LARGE).check(good("zstd", 5_000), LARGE)

    assert header.size < SMALL_BYTES
    assert header.record_count == 5_000


async def test_a_caller_that_leaves_does_not_make_room_for_another_thread() -> None:
    """Else a client that asks and leaves, again and again, has any number of batches decoded."""
    checks = checks_of(LARGE)
    begun, goes_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def hold() -> None:
        loop.call_soon_threadsafe(begun.set)
        goes_on.wait(60)

    left = asyncio.create_task(checks.read_in_worker(hold))
    await begun.wait()
    left.cancel()
    with pytest.raises(asyncio.CancelledError):
        await left
    next_one = asyncio.create_task(checks.read_in_worker(goes_on.is_set))
    # Its thread would have begun by the time another one, which is started later, has ended.
    for _ in range(20):
        await asyncio.to_thread(str)
    goes_on.set()
    assert await next_one, "two threads decoded at a time"


async def test_a_small_limit_holds_for_small_batches() -> None:
    with pytest.raises(BodyTooLarge):
        await checks_of(1_024).check(good("zstd", 50), 1_024)


@pytest.mark.parametrize("one", HOSTILE, ids=str)
async def test_a_refused_batch_changes_nothing(cluster: SmallCluster, one: Hostile) -> None:
    with pytest.raises(LeadlineError) as refusal:
        await cluster.send(1, one.data)
    with pytest.raises(LeadlineError):
        await cluster.brokers[1].engine.staging.stage(TOPIC, 0, one.data)

    assert refusal.value.code == one.code
    assert (cluster.end(1), cluster.brokers[1].engine.staging.used_bytes) == (0, 0)


async def test_a_batch_that_is_checked_longer_does_not_lose_its_place(
    cluster: SmallCluster,
) -> None:
    """The check of the first batch takes a thread, that of the second does not."""
    records = [OutgoingRecord(b"v" * 50) for _ in range(5_000)]
    first = batches.encode(records, now_ms=NOW, producer_id=7, producer_epoch=0, base_sequence=0)
    second = batch("last", producer=(7, 0, 5_000))

    sent = await asyncio.gather(
        cluster.send(1, first), cluster.send(1, second), return_exceptions=True
    )

    assert isinstance(sent[1], OutOfOrderSequence)
    assert (await cluster.send(1, second)).base_offset == 5_000


async def test_what_nobody_can_decode_is_replicated_and_read_around(
    cluster: SmallCluster, tmp_path: Path
) -> None:
    """A broker of an earlier release accepted it."""
    await cluster.produce(1, "before")
    serving = cluster.brokers[1].engine.serving
    stored = bytearray(UNREADABLE)
    serving.append(serving.led(TOPIC, 0), stored, list(parse_headers(stored)), 0)
    await cluster.produce(1, "after")

    await cluster.until(
        lambda: cluster.stored(1) == cluster.stored(2) == cluster.stored(3), "all have the same"
    )
    data = await fetched(cluster, 0)
    first = msgspec.json.decode(answer_json(data, 0, JsonShape("string", 100, LARGE)))
    assert [one["value"] for one in first["records"]] == ["before"]
    assert first["next_offset"] == 1
    with pytest.raises(UnreadableBatch) as refusal:
        answer_json(await fetched(cluster, 1), 1, JsonShape("string", 100, LARGE))
    assert (refusal.value.offset, refusal.value.next_offset) == (1, 4)
    assert await cluster.read(1, refusal.value.next_offset) == ["after"]
    assert (await serving.offsets(TOPIC, 0, NOW)).offset == 1
    assert (await serving.offsets(TOPIC, 0, 0)).offset == 0


def test_a_log_with_a_batch_that_nobody_can_decode_recovers(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    stored = bytearray(UNREADABLE)
    batches.stamp(stored, header_at(stored), 0, 0)
    log.append(stored)
    log.flush()
    log.close()

    again = open_log(tmp_path)

    assert again.log_end_offset == 3
    assert again.read(0, 1 << 20, 3) == bytes(stored)
    assert first_at(again, NOW) == (0, NOW)


async def fetched(cluster: SmallCluster, offset: int) -> FetchedData:
    return await cluster.brokers[1].engine.serving.fetch(
        TOPIC, 0, offset, max_bytes=1 << 20, min_bytes=1, wait_ms=0
    )


def data_of(records: bytes, limit: int = LARGE) -> FetchedData:
    end = max(one.next_offset for one in parse_headers(records))
    return FetchedData(records, end, 0, 0, end, "id", None, limit)


def test_json_holds_what_fits_and_says_where_to_read_on() -> None:
    data = data_of(good("zstd", 100))

    part = msgspec.json.decode(answer_json(data, 10, JsonShape("string", 1_000, 1_000)))

    offsets = [one["offset"] for one in part["records"]]
    assert offsets == list(range(10, 10 + len(offsets)))
    assert 1 < len(offsets) < 20
    assert part["next_offset"] == offsets[-1] + 1
    assert len(msgspec.json.encode(part["records"])) <= 1_000 + len(offsets) + 1


def test_json_holds_one_record_whatever_its_size() -> None:
    part = msgspec.json.decode(answer_json(data_of(good("none")), 1, JsonShape("string", 9, 1)))

    assert [one["offset"] for one in part["records"]] == [1]
    assert part["next_offset"] == 2


def test_json_of_a_stored_bomb_is_refused() -> None:
    with pytest.raises(UnreadableBatch, match="decompress to more than 1048576 bytes"):
        answer_json(data_of(zstd_bomb(4_800), 1 << 20), 0, JsonShape("string", 9, LARGE))


@pytest.mark.parametrize("value", [b"[" * 100_000, b"9" * 5_000, b"1e400", b"\xff"])
def test_a_stored_value_that_is_no_usable_json_is_an_error(value: bytes) -> None:
    data = data_of(batches.encode([OutgoingRecord(value)], now_ms=NOW))

    with pytest.raises(InvalidRequest, match="use format=base64"):
        answer_json(data, 0, JsonShape("json", 9, LARGE))
