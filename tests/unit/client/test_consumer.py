"""Readers deliver every offset once and in order, whoever leads (rule R15)."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable

import pytest

from leadline_client import batches
from leadline_client.batch_header import header_at, parse_headers
from leadline_client.client import AsyncClient, Client
from leadline_client.consumer import AsyncConsumer
from leadline_client.consumer_settings import ConsumerSettings
from leadline_client.errors import (
    InvalidRequest,
    LeaderNotAvailable,
    LogTruncated,
    OffsetOutOfRange,
    PartitionNotOwned,
    TopicIdMismatch,
    UnreadableBatch,
)
from leadline_client.payloads import OutgoingRecord
from leadline_client.readers import PartitionReader
from leadline_client.reading import ReadLimits
from leadline_client.retry import RetryPolicy
from leadline_client.sync_consumer import Consumer
from leadline_client.transport import Request, Response
from leadline_client.wire import LogPosition, Record
from tests.support.bad_input.batches import forged, half_readable
from tests.unit.client.standin import StandInCluster

NO_WAIT = ReadLimits(wait_ms=0)


def fill(cluster: StandInCluster, partition: int, values: range) -> None:
    with Client(cluster.bootstrap) as client:
        for first in range(values.start, values.stop, 10):
            group = range(first, min(first + 10, values.stop))
            records = [OutgoingRecord(str(n).encode(), timestamp=1000 + n) for n in group]
            client.produce_batches("t", partition, batches.encode(records, now_ms=0))


def numbers(records: Iterable[Record]) -> list[int]:
    return [int(one.value or b"-1") for one in records]


def test_a_reader_follows_the_leader_and_misses_nothing(cluster: StandInCluster) -> None:
    fill(cluster, 0, range(20))
    with Client(cluster.bootstrap) as client:
        reader = PartitionReader(client, "t", 0, limits=NO_WAIT)
        found = reader.read()
        cluster.move(0, leader=3)
        fill(cluster, 0, range(20, 40))
        cluster.move(0, leader=2)
        found += list(reader.read_to(40))
    assert numbers(found) == list(range(40))


def test_a_read_may_start_inside_a_batch(cluster: StandInCluster) -> None:
    fill(cluster, 0, range(20))
    with Client(cluster.bootstrap) as client:
        reader = PartitionReader(client, "t", 0, start=7, limits=NO_WAIT)
        assert numbers(reader.read_to(15)) == list(range(7, 15))


def test_the_response_of_a_former_leader_is_dropped(
    cluster: StandInCluster,
) -> None:
    fill(cluster, 0, range(10))
    other = [OutgoingRecord(b"666")] * 10
    stale = bytearray(batches.encode(other, now_ms=0))
    batches.stamp(stale, header_at(stale), 10, 0)
    cluster.move(0, leader=2)
    with Client(cluster.bootstrap) as client:
        reader = PartitionReader(client, "t", 0, limits=NO_WAIT)
        assert numbers(reader.read()) == list(range(10))
        fill(cluster, 0, range(10, 20))
        cluster.stale_fetches.append((0, bytes(stale)))
        assert reader.read() == []
        assert numbers(reader.read()) == list(range(10, 20))


def test_a_batch_that_cannot_be_decoded_is_named_and_can_be_skipped(
    cluster: StandInCluster,
) -> None:
    fill(cluster, 0, range(10))
    hostile = bytearray(forged(b"\xff" * 100, 10))
    batches.stamp(hostile, header_at(hostile), 10, 0)
    cluster.partitions[0].log += hostile
    cluster.partitions[0].end = 20
    fill(cluster, 0, range(20, 30))
    cluster.stale_fetches.append((0, bytes(cluster.partitions[0].log)))
    with Client(cluster.bootstrap) as client:
        reader = PartitionReader(client, "t", 0, limits=NO_WAIT)
        assert numbers(reader.read()) == list(range(10))
        with pytest.raises(UnreadableBatch, match="t-0 at offsets 10 to 19") as refusal:
            reader.read()
        assert (refusal.value.details["topic"], refusal.value.offset) == ("t", 10)
        assert reader.position.offset == 10
        reader = PartitionReader(client, "t", 0, start=refusal.value.next_offset, limits=NO_WAIT)
        assert numbers(reader.read()) == list(range(20, 30))


def test_missing_records_raise_and_are_not_skipped(cluster: StandInCluster) -> None:
    fill(cluster, 0, range(30))
    log = bytes(cluster.partitions[0].log)
    third = list(parse_headers(log))[2]
    cluster.stale_fetches.append((0, log[third.position :]))
    with Client(cluster.bootstrap) as client:
        reader = PartitionReader(client, "t", 0, start=5, limits=NO_WAIT)
        with pytest.raises(OffsetOutOfRange, match="first record that came is 20"):
            reader.read()
        assert reader.position.offset == 5


def test_records_that_retention_took_meanwhile_are_not_stepped_over(
    cluster: StandInCluster,
) -> None:
    """The log start passes the position while the leader reads."""
    fill(cluster, 0, range(10))
    with Client(cluster.bootstrap) as client:
        reader = PartitionReader(client, "t", 0, start=0, limits=NO_WAIT)
        data = bytearray(cluster.partitions[0].log)
        batches.stamp(data, header_at(bytes(data)), 5, 0)
        cluster.stale_fetches.append((0, bytes(data)))
        cluster.log_start = 5
        with pytest.raises(OffsetOutOfRange):
            reader.read()
        assert reader.position.offset == 0


def test_a_recreated_topic_is_another_topic(cluster: StandInCluster) -> None:
    fill(cluster, 0, range(10))
    with Client(cluster.bootstrap) as client:
        reader = PartitionReader(client, "t", 0, limits=NO_WAIT)
        reader.read()
        cluster.topic_id = "id-2"
        cluster.version += 1
        client.metadata()
        for _ in range(2):
            with pytest.raises(TopicIdMismatch):
                reader.read()
        reader.position.seek("earliest")
        assert numbers(reader.read()) == list(range(10)), "a seek accepts the new topic"


def test_defect_02_a_position_with_a_wrong_epoch_is_an_error(cluster: StandInCluster) -> None:
    """The log has records of that epoch, but only after the position."""
    fill(cluster, 0, range(20))
    cluster.move(0, leader=2)
    fill(cluster, 0, range(20, 30))
    with Client(cluster.bootstrap) as client:
        reader = PartitionReader(client, "t", 0, LogPosition(20, 1), limits=NO_WAIT)
        with pytest.raises(LogTruncated):
            reader.read()
        reader.position.seek(LogPosition(20, 0))
        assert numbers(reader.read()) == list(range(20, 30))


def test_defect_02_a_recreated_topic_is_noticed_without_new_metadata(
    cluster: StandInCluster,
) -> None:
    """Its log has the reader's offset, in the same leader epoch and at the same leader."""
    fill(cluster, 0, range(10))
    with Client(cluster.bootstrap) as client:
        reader = PartitionReader(client, "t", 0, limits=NO_WAIT)
        reader.read()
        cluster.topic_id = "id-2"
        fill(cluster, 0, range(10, 30))
        with pytest.raises(TopicIdMismatch):
            reader.read()
        assert reader.position.offset == 10


def test_starting_points(cluster: StandInCluster) -> None:
    fill(cluster, 1, range(20))
    with Client(cluster.bootstrap) as client:
        reader = PartitionReader(client, "t", 1, "latest", limits=NO_WAIT)
        assert reader.read() == []
        assert reader.position.offset == 20
        assert reader.seek_to_time(1013) == 13
        assert reader.seek_to_time(9999) == 20
        assert reader.seek_to_time(-1) == 0, "no record is older than 1970"
        assert client.offset_for_timestamp("t", 1, -1) == 0
        reader.position.seek("earliest")
        assert numbers(reader.read()) == list(range(10))


def test_defect_18_a_reader_uses_the_replica_of_its_rack_and_then_the_others(
    cluster: StandInCluster,
) -> None:
    cluster.isr, cluster.racks = [1, 2, 3], {1: "r1", 2: "r2", 3: "r3"}
    fill(cluster, 0, range(30))
    with Client(cluster.bootstrap) as client:
        reader = PartitionReader(client, "t", 0, limits=NO_WAIT, replica="any", rack="r3")
        found = numbers(reader.read())
        assert cluster.requests["fetch at 3"] == cluster.requests["fetch"] == 1
        cluster.isr = [1, 2]
        found += numbers(reader.read())
        cluster.kill(2)
        found += numbers(reader.read_to(30))
    assert found == list(range(30))


@pytest.mark.parametrize(
    ("settings", "limits"),
    [
        (ConsumerSettings(replica="any", rack="r2"), NO_WAIT),
        (ConsumerSettings(), ReadLimits(wait_ms=0, replica="any", rack="r2")),
    ],
    ids=["settings", "limits"],
)
async def test_defect_18_a_consumer_reads_from_the_replicas_of_its_rack(
    cluster: StandInCluster, settings: ConsumerSettings, limits: ReadLimits
) -> None:
    cluster.isr, cluster.racks = [1, 2, 3], {1: "r1", 2: "r2", 3: "r3"}
    fill(cluster, 0, range(10))
    async with (
        AsyncClient(cluster.bootstrap) as client,
        AsyncConsumer(client, settings=settings, limits=limits) as consumer,
    ):
        await consumer.assign([("t", 0)])
        assert len(await consumer.poll(5)) == 10
    assert cluster.requests["fetch at 2"] == cluster.requests["fetch"]


async def test_a_consumer_reads_partitions_side_by_side_each_in_order(
    cluster: StandInCluster,
) -> None:
    for partition in range(3):
        fill(cluster, partition, range(50))
    found: dict[int, list[int]] = {0: [], 1: [], 2: []}
    async with (
        AsyncClient(cluster.bootstrap) as client,
        AsyncConsumer(client, limits=NO_WAIT) as consumer,
    ):
        await consumer.assign([("t", number) for number in found])
        while any(len(rows) < 50 for rows in found.values()):
            for one in await consumer.poll():
                found[one.partition] += numbers([one.record])
        assert await consumer.position(("t", 2)) == 50
    assert all(rows == list(range(50)) for rows in found.values())


async def test_records_of_long_batches_come_once_and_in_order_by_polls_of_any_size(
    cluster: StandInCluster,
) -> None:
    found: dict[int, list[int]] = {0: [], 1: []}
    async with (
        AsyncClient(cluster.bootstrap) as client,
        AsyncConsumer(client, limits=NO_WAIT) as consumer,
    ):
        for partition in found:
            values = [OutgoingRecord(str(number).encode()) for number in range(1_203)]
            await client.produce_batches("t", partition, batches.encode(values, now_ms=0))
        await consumer.assign([("t", number) for number in found])
        for size in itertools.cycle([1, 499, 700, 3]):
            records = await consumer.poll(5, max_records=size)
            assert 1 <= len(records) <= size
            for one in records:
                found[one.partition] += numbers([one.record])
            for partition, rows in found.items():
                if rows:
                    assert await consumer.position(("t", partition)) == len(rows)
            if sum(map(len, found.values())) == 2 * 1_203:
                break
    assert all(rows == list(range(1_203)) for rows in found.values())


async def test_a_consumer_delivers_once_what_is_before_a_record_that_cannot_be_decoded(
    cluster: StandInCluster,
) -> None:
    cluster.partitions[0].log += half_readable(0)
    cluster.partitions[0].end = 502
    async with (
        AsyncClient(cluster.bootstrap) as client,
        AsyncConsumer(client, limits=NO_WAIT) as consumer,
    ):
        await consumer.assign([("t", 0)])
        first = await consumer.poll(5, max_records=1_000)
        with pytest.raises(UnreadableBatch) as refusal:
            await consumer.poll(5)
        assert await consumer.position(("t", 0)) == 500
        fill(cluster, 0, range(502, 512))
        await consumer.seek(("t", 0), refusal.value.next_offset)
        rest = await consumer.poll(5)
    assert [one.offset for one in first] == list(range(500))
    assert numbers(one.record for one in rest) == list(range(502, 512))


async def test_a_failing_partition_does_not_cost_records_of_another(
    cluster: StandInCluster,
) -> None:
    fill(cluster, 0, range(10))
    async with (
        AsyncClient(cluster.bootstrap) as client,
        AsyncConsumer(client, limits=NO_WAIT) as consumer,
    ):
        await consumer.assign([("t", 0), ("t", 1)])
        await consumer.seek(("t", 1), 77)
        found: list[int] = []
        failures = 0
        while not failures or len(found) < 10:
            try:
                found += numbers([one.record for one in await consumer.poll()])
            except OffsetOutOfRange:
                failures += 1
    assert found == list(range(10))


class Instant:
    """A transport that answers at once: partition 0 with one record, partition 1 with a refusal."""

    async def send(self, request: Request) -> Response:
        if request.url.endswith("/metadata"):
            rows = [[0, 1, 0, [1], [1]], [1, 1, 0, [1], [1]]]
            document = {
                "cluster_id": "c",
                "version": 1,
                "controller": None,
                "brokers": [{"id": 1, "url": "http://b", "rack": None, "incarnation": 1}],
                "topics": {"t": {"topic_id": "id", "partitions": rows}},
            }
            return Response(200, {}, json.dumps(document).encode())
        if "/partitions/1/" in request.url:
            return Response(416, {}, json.dumps(OffsetOutOfRange("no").body()).encode())
        offset = int(request.params["offset"])
        batch = bytearray(batches.encode([OutgoingRecord(b"7")], now_ms=0))
        batches.stamp(batch, header_at(batch), offset, 0)
        names = ("high-watermark", "log-start-offset", "leader-epoch", "next-offset")
        facts = zip(names, (offset + 1, 0, 0, offset + 1), strict=True)
        headers = {f"x-leadline-{name}": str(value) for name, value in facts}
        return Response(200, headers, bytes(batch))

    async def aclose(self) -> None:
        return


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
async def test_a_failed_read_beside_a_successful_one_loses_no_record(
    order: tuple[int, int],
) -> None:
    """Both reads end in the same instant, so one poll finds both."""
    client = AsyncClient("http://b", transport=Instant())
    async with client, AsyncConsumer(client) as consumer:
        await consumer.assign([("t", number) for number in order], start=0)
        offsets: list[int] = []
        failures = 0
        while len(offsets) < 5:
            try:
                offsets += [one.record.offset for one in await consumer.poll()]
            except OffsetOutOfRange:
                failures += 1
    assert offsets == list(range(len(offsets)))
    assert failures > 0


def test_the_blocking_consumer_seeks_and_reads(cluster: StandInCluster) -> None:
    fill(cluster, 0, range(10))
    with Consumer(cluster.bootstrap, limits=NO_WAIT) as consumer:
        consumer.assign([("t", 0)], "latest")
        assert consumer.position(("t", 0)) == 10
        consumer.seek(("t", 0), 4)
        assert numbers([one.record for one in consumer.poll(timeout_s=5)]) == list(range(4, 10))
        assert consumer.seek_to_time(("t", 0), 1009) == 9


def test_the_blocking_consumer_may_be_closed_twice_and_then_refuses_to_poll(
    cluster: StandInCluster,
) -> None:
    with Consumer(cluster.bootstrap, limits=NO_WAIT) as consumer:
        consumer.close()
        with pytest.raises(InvalidRequest, match="is closed"):
            consumer.poll()


async def test_a_search_by_time_that_fails_skips_nothing(cluster: StandInCluster) -> None:
    fill(cluster, 0, range(10))
    policy = RetryPolicy(timeout_s=1)
    async with (
        AsyncClient(cluster.bootstrap, policy=policy) as client,
        AsyncConsumer(client, limits=NO_WAIT) as consumer,
    ):
        await consumer.assign([("t", 0)])
        found = numbers([one.record for one in await consumer.poll(5, max_records=3)])
        cluster.offsets_refused = True
        with pytest.raises(LeaderNotAvailable):
            await consumer.seek_to_time(("t", 0), 1015)
        found += numbers([one.record for one in await consumer.poll(5)])
    assert found == list(range(10))


async def test_a_partition_that_is_not_read_is_refused_by_name(cluster: StandInCluster) -> None:
    async with (
        AsyncClient(cluster.bootstrap) as client,
        AsyncConsumer(client, limits=NO_WAIT) as consumer,
    ):
        await consumer.assign([("t", 0)])
        with pytest.raises(PartitionNotOwned, match="t-1"):
            await consumer.seek(("t", 1), 0)
        with pytest.raises(PartitionNotOwned, match="t-1"):
            await consumer.position(("t", 1))
        with pytest.raises(PartitionNotOwned, match="t-1"):
            consumer.pause([("t", 0), ("t", 1)])
        assert consumer.paused == ()
