"""Producers, consumers and readers with serializers, on brokers that keep the outward contract."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest

from leadline_client import (
    AsyncClient,
    AsyncConsumer,
    AsyncPartitionReader,
    AsyncProducer,
    Client,
    ConsumedRecord,
    Consumer,
    DeserializationFailed,
    JsonSerializer,
    OutgoingRecord,
    PartitionReader,
    Producer,
    ReadLimits,
    Record,
    SerializationFailed,
    StringSerializer,
    batches,
)
from leadline_client.batches import LATEST_TIMESTAMP
from leadline_client.errors import InvalidRequest
from tests.unit.client.standin import StandInCluster
from tests.unit.client.test_group_consumer import A, at, started

NO_WAIT = ReadLimits(wait_ms=0)
TEXT = StringSerializer()
JSON: JsonSerializer = JsonSerializer()
GOOD = [b"0", b"1", None, b"3"]
POISONED = [b"0", b"{", b"2", b"[", b"4"]


class Refusing:
    """A serializer that cannot do it."""

    def serialize(self, topic: str, value: str, /) -> bytes:
        raise ZeroDivisionError(topic, value)


class Lying:
    """A serializer that returns something else than bytes."""

    def serialize(self, _topic: str, value: str, /) -> bytes:
        return value  # type: ignore[return-value] # what is to be caught


def fill(cluster: StandInCluster, values: Sequence[bytes | None], partition: int = 0) -> None:
    with Client(cluster.bootstrap) as client:
        records = [OutgoingRecord(one, b"k") for one in values]
        client.produce_batches("t", partition, batches.encode(records, now_ms=1))


def consumed(consumer: Consumer[Any, Any], count: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(20):
        found += [one.record.value for one in consumer.poll(1)]
        if len(found) >= count:
            return found
    raise AssertionError(f"{len(found)} of {count} records came")


def test_a_record_has_the_types_of_its_serializers(cluster: StandInCluster) -> None:
    with Producer(cluster.bootstrap, key_serializer=TEXT, value_serializer=JSON) as producer:
        producer.send("t", {"cents": 1}, key="ann", partition=0, headers=[("h", b"1")])
        producer.send("t", None, key="ann", partition=0)
        producer.send("t", {"cents": 2}, partition=0, timestamp=7)
    assert cluster.values(0) == [b'{"cents":1}', None, b'{"cents":2}']
    with Consumer(
        cluster.bootstrap, limits=NO_WAIT, key_deserializer=TEXT, value_deserializer=JSON
    ) as consumer:
        consumer.assign([("t", 0)])
        records = [one.record for one in consumer.poll(5)]
    assert [(one.key, one.value) for one in records] == [
        ("ann", {"cents": 1}),
        ("ann", None),
        (None, {"cents": 2}),
    ]
    assert (records[0].headers, records[2].timestamp) == ((("h", b"1"),), 7)


async def test_asynchronous_classes_take_serializers_too(cluster: StandInCluster) -> None:
    async with AsyncClient(cluster.bootstrap) as client:
        async with AsyncProducer(client, value_serializer=JSON) as producer:
            await producer.send("t", [1], partition=0, key=b"k")
        async with AsyncConsumer(client, limits=NO_WAIT, value_deserializer=JSON) as consumer:
            await consumer.assign([("t", 0)])
            [one] = await consumer.poll(5)
        reader = AsyncPartitionReader(client, "t", 0, value_deserializer=JSON)
        [same] = await reader.read()
    assert one.record == same
    assert one == ConsumedRecord("t", 0, *same)
    assert (same.key, same.value) == (b"k", [1])
    assert (one.topic_partition, one.key, one.value) == (("t", 0), b"k", [1])


def test_a_key_decides_the_partition_by_its_bytes(cluster: StandInCluster) -> None:
    with (
        Producer(cluster.bootstrap, key_serializer=TEXT) as typed,
        Producer(cluster.bootstrap) as plain,
    ):
        for key in ("ann", "bob", "eve"):
            one = typed.send("t", b"", key=key).result()
            assert plain.send("t", b"", key=key.encode()).result().partition == one.partition


@pytest.mark.parametrize(
    ("serializer", "value", "why"),
    [
        (Refusing(), "x", "the value of a record for 't' cannot be serialized: ZeroDivisionError"),
        (Lying(), "x", "the value_serializer returned a str"),
        (None, "x", "the value of a record for 't' is a str: give bytes"),
    ],
)
async def test_what_cannot_be_serialized_is_refused_and_nothing_is_sent(
    cluster: StandInCluster, serializer: Any, value: Any, why: str
) -> None:
    with (
        Producer(cluster.bootstrap, value_serializer=serializer) as producer,
        pytest.raises(SerializationFailed, match=why) as refused,
    ):
        producer.send("t", value, partition=0)
    async with AsyncProducer(cluster.bootstrap, value_serializer=serializer) as other:
        with pytest.raises(SerializationFailed, match=why):
            await other.send("t", value, partition=0)
    assert refused.value.outcome == "refused"
    assert cluster.values(0) == []


def test_a_time_before_1970_is_refused_and_nothing_is_sent(cluster: StandInCluster) -> None:
    with Producer(cluster.bootstrap) as producer:
        with pytest.raises(InvalidRequest, match="timestamp -1 is negative"):
            producer.send("t", b"", partition=0, timestamp=-1)
        producer.send("t", b"taken", partition=0, timestamp=0).result()
    assert cluster.values(0) == [b"taken"]


@pytest.mark.parametrize(
    "bad",
    [
        {"headers": [("\udcff", b"")]},
        {"headers": [(b"name", b"")]},
        {"headers": [("name", "text")]},
        {"headers": [("good", b""), ("name",)]},
        {"headers": [("name", b"")] * 1_001},
        {"timestamp": LATEST_TIMESTAMP + 1},
    ],
)
async def test_a_record_that_no_batch_can_hold_is_refused_and_fails_no_other(
    cluster: StandInCluster, bad: dict[str, Any]
) -> None:
    async with AsyncProducer(cluster.bootstrap) as producer:
        before = await producer.send("t", b"before", partition=0, headers=[("n", None)])
        with pytest.raises(InvalidRequest, match="nothing was sent"):
            await producer.send("t", b"bad", partition=0, **bad)
        after = await producer.send("t", b"after", partition=0, timestamp=LATEST_TIMESTAMP)
        await producer.flush()
        assert [(await one).offset for one in (before, after)] == [0, 1]
    with Producer(cluster.bootstrap) as blocking, pytest.raises(InvalidRequest):
        blocking.send("t", b"bad", partition=0, **bad)
    assert cluster.values(0) == [b"before", b"after"]


def test_a_key_that_cannot_be_serialized_is_named(cluster: StandInCluster) -> None:
    with (
        Producer(cluster.bootstrap, key_serializer=Refusing()) as producer,
        pytest.raises(SerializationFailed, match="the key of a record for 't'"),
    ):
        producer.send("t", b"", key="k", partition=0)


def test_a_record_that_cannot_be_deserialized_is_raised_until_a_seek(
    cluster: StandInCluster,
) -> None:
    fill(cluster, POISONED)
    with Consumer(cluster.bootstrap, limits=NO_WAIT, value_deserializer=JSON) as consumer:
        consumer.assign([("t", 0)])
        assert [one.record.value for one in consumer.poll(5)] == [0]
        for _ in range(2):
            with pytest.raises(DeserializationFailed, match="the value of the record at t-0") as e:
                consumer.poll(5)
            failed = e.value
            assert (failed.topic, failed.partition, failed.offset, failed.part) == (
                ("t", 0, 1, "value")
            )
            assert failed.record is not None
            assert failed.record.value == b"{"
            assert consumer.position(("t", 0)) == 1
        consumer.seek(("t", 0), failed.next_offset)
        assert consumed(consumer, 1) == [2]


def test_a_key_that_cannot_be_deserialized_is_named(cluster: StandInCluster) -> None:
    fill(cluster, GOOD)
    with Consumer(cluster.bootstrap, limits=NO_WAIT, key_deserializer=JSON) as consumer:
        consumer.assign([("t", 0)])
        with pytest.raises(DeserializationFailed) as failed:
            consumer.poll(5)
    assert failed.value.part == "key"


def test_the_typed_records_before_one_that_fails_come_first_and_once(
    cluster: StandInCluster,
) -> None:
    values = [OutgoingRecord(str(number).encode(), b"k", (("h", b"1"),)) for number in range(1_002)]
    values[700] = OutgoingRecord(b"{")
    with Client(cluster.bootstrap) as client:
        client.produce_batches("t", 0, batches.encode(values, now_ms=0))
    with Consumer(cluster.bootstrap, limits=NO_WAIT, value_deserializer=JSON) as consumer:
        consumer.assign([("t", 0)])
        found = consumer.poll(5, max_records=2_000)
        with pytest.raises(DeserializationFailed, match="offset 700") as failed:
            consumer.poll(5)
        assert consumer.position(("t", 0)) == 700
        consumer.seek(("t", 0), failed.value.next_offset)
        found += consumer.poll(5, max_records=2_000)
    assert [one.value for one in found] == [n for n in range(1_002) if n != 700]
    assert {(one.key, one.headers) for one in found} == {(b"k", (("h", b"1"),))}
    assert isinstance(failed.value.record, Record)
    assert failed.value.record.value == b"{"


def test_other_partitions_are_read_while_one_has_a_record_that_fails(
    cluster: StandInCluster,
) -> None:
    fill(cluster, [b"{"], partition=0)
    with Consumer(cluster.bootstrap, limits=NO_WAIT, value_deserializer=JSON) as consumer:
        consumer.assign([("t", 0), ("t", 1)])
        with pytest.raises(DeserializationFailed):
            consumer.poll(5)
        fill(cluster, [b"1", b"2"], partition=1)
        found: list[Any] = []
        give_up = time.monotonic() + 10
        while len(found) < 2 and time.monotonic() < give_up:
            with suppress(DeserializationFailed):
                found += [one.record.value for one in consumer.poll(1, max_records=1)]
    assert found == [1, 2]


def test_records_that_fail_are_skipped_with_a_warning(
    cluster: StandInCluster, caplog: pytest.LogCaptureFixture
) -> None:
    fill(cluster, POISONED)
    with (
        caplog.at_level(logging.WARNING),
        Consumer(
            cluster.bootstrap,
            limits=NO_WAIT,
            value_deserializer=JSON,
            on_deserialization_error="skip",
        ) as consumer,
    ):
        consumer.assign([("t", 0)])
        assert consumed(consumer, 3) == [0, 2, 4]
        assert consumer.position(("t", 0)) == 5
    assert [f"offset {n}," in one.message for n, one in zip((1, 3), caplog.records, strict=True)]


def test_a_function_gets_the_stored_record_on_the_polling_thread(cluster: StandInCluster) -> None:
    fill(cluster, POISONED)
    with Producer(cluster.bootstrap) as dead_letters:

        def keep(failed: DeserializationFailed) -> None:
            assert failed.record is not None
            dead_letters.send("t", failed.record.value, partition=1).result()
            assert consumer.position(("t", 0)) == failed.offset, "the consumer can be asked"

        with Consumer(
            cluster.bootstrap,
            limits=NO_WAIT,
            value_deserializer=JSON,
            on_deserialization_error=keep,
        ) as consumer:
            consumer.assign([("t", 0)])
            assert consumed(consumer, 3) == [0, 2, 4]
    assert cluster.values(1) == [b"{", b"["]


async def test_a_coroutine_function_is_awaited_and_what_it_raises_keeps_the_record(
    cluster: StandInCluster,
) -> None:
    fill(cluster, POISONED)
    asked: list[int] = []

    async def decide(failed: DeserializationFailed) -> None:
        asked.append(failed.offset)
        if len(asked) == 1:
            raise ZeroDivisionError

    async with AsyncConsumer(
        cluster.bootstrap,
        limits=NO_WAIT,
        value_deserializer=JSON,
        on_deserialization_error=decide,
    ) as consumer:
        await consumer.assign([("t", 0)])
        found = [one.record.value for one in await consumer.poll(5)]
        with pytest.raises(ZeroDivisionError):
            await consumer.poll(5)
        for _ in range(3):
            found += [one.record.value for one in await consumer.poll(1)]
    assert found == [0, 2, 4]
    assert asked == [1, 1, 3]


async def test_a_poll_returns_in_time_however_many_records_fail(cluster: StandInCluster) -> None:
    fill(cluster, [b"{"] * 50)
    async with AsyncConsumer(
        cluster.bootstrap,
        limits=NO_WAIT,
        value_deserializer=JSON,
        on_deserialization_error="skip",
    ) as consumer:
        await consumer.assign([("t", 0)])
        positions = {0}
        while max(positions) < 50:
            assert await consumer.poll(0) == []
            positions.add(await consumer.position(("t", 0)))
    assert positions == set(range(51)), "a poll whose time is up leaves out one record"


async def test_a_member_commits_beyond_a_record_that_was_skipped(cluster: StandInCluster) -> None:
    fill(cluster, [b"{", b"{"])
    skipping = {"value_deserializer": JSON, "on_deserialization_error": "skip"}
    async with started(cluster, {A: 0}, options=skipping) as (member, _, coordinator):
        while await member.consumer.position(A) < 2:
            assert await member.consumer.poll(0) == []
        await member.consumer.aclose()
        assert coordinator.commits[-1]["offsets"] == [at(2)]


async def test_a_member_commits_nothing_of_a_record_that_was_raised(
    cluster: StandInCluster,
) -> None:
    fill(cluster, [b"0", b"{"])
    async with started(cluster, {A: 0}, options={"value_deserializer": JSON}) as (member, _, to):
        assert len(await member.records(1)) == 1
        with pytest.raises(DeserializationFailed):
            await member.consumer.poll(5)
        await member.consumer.aclose()
        assert to.commits[-1]["offsets"] == [at(1)]


def test_a_reader_delivers_what_is_before_a_record_that_fails_and_then_raises(
    cluster: StandInCluster,
) -> None:
    fill(cluster, POISONED)
    with Client(cluster.bootstrap) as client:
        reader = PartitionReader(client, "t", 0, limits=NO_WAIT, value_deserializer=JSON)
        assert [one.value for one in reader.read()] == [0]
        for _ in range(2):
            with pytest.raises(DeserializationFailed) as failed:
                reader.read()
            assert (failed.value.offset, reader.position.offset) == (1, 1)
        reader.position.seek(failed.value.next_offset)
        assert [one.value for one in reader.read()] == [2]


@pytest.mark.parametrize("kind", ["blocking", "asynchronous"])
async def test_a_reader_leaves_out_what_a_function_accepts(
    cluster: StandInCluster, kind: str
) -> None:
    fill(cluster, POISONED)
    seen: list[int] = []
    options: dict[str, Any] = {
        "limits": NO_WAIT,
        "value_deserializer": JSON,
        "on_deserialization_error": lambda failed: seen.append(failed.offset),
    }
    if kind == "blocking":
        with Client(cluster.bootstrap) as client:
            records = PartitionReader[Any, Any](client, "t", 0, **options).read()
    else:
        async with AsyncClient(cluster.bootstrap) as other:
            records = await AsyncPartitionReader[Any, Any](other, "t", 0, **options).read()
    assert [one.value for one in records] == [0, 2, 4]
    assert seen == [1, 3]


@pytest.mark.parametrize("wrong", ["ignore", None, 3])
def test_a_policy_that_is_none_is_refused(cluster: StandInCluster, wrong: Any) -> None:
    with pytest.raises(InvalidRequest, match="on_deserialization_error"):
        Consumer(cluster.bootstrap, on_deserialization_error=wrong)
    with Client(cluster.bootstrap) as client, pytest.raises(InvalidRequest):
        PartitionReader(client, "t", 0, on_deserialization_error=wrong)
