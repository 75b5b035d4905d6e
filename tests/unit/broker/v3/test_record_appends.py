"""Records of one request share batches, but not their fate, and keep their order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any, cast

import pytest

from leadline_broker.api.v3.errors import MALFORMED, V3Error
from leadline_broker.api.v3.records import appends
from leadline_broker.api.v3.records.appends import Appended, Result, TopicAppender
from leadline_broker.api.v3.records.reports import failure_of, report_of
from leadline_broker.api.v3.records.requests import ParsedRecord, Part
from leadline_broker.domain.topic_appends import TopicLayout
from leadline_broker.runtime.cluster.metadata import ClusterMetadataCache
from leadline_broker.runtime.serving.topic_appends import TopicAppends
from leadline_client import batches
from leadline_client.errors import (
    BodyTooLarge,
    InvalidTimestamp,
    LeadershipLost,
    LeadlineError,
    NotEnoughReplicas,
    UnknownPartition,
)
from leadline_client.wire import ProduceResult
from leadline_common.rpc import PartitionRow, TopicRows
from tests.unit.broker.v3.told_metadata import told

Refuse = Callable[[list[bytes | None]], LeadlineError | None]


class Log:
    """Partitions that keep what they are sent, unless `refuse` returns an error for the values."""

    def __init__(self, refuse: Refuse = lambda _: None) -> None:
        self.values: dict[int, list[bytes | None]] = {0: [], 1: []}
        self.batches: list[int] = []
        self.routed = self
        self._refuse = refuse

    def layout(self, topic: str, keyless: int | None = None) -> TopicLayout:
        del keyless
        return TopicLayout(topic, {0, 1}, 1)

    async def produce(self, topic: str, number: int, data: bytearray, **_: Any) -> ProduceResult:
        assert topic == "t"
        values = [record.value for record in batches.decode(data)]
        self.batches.append(len(values))
        await asyncio.sleep(0)
        if (error := self._refuse(values)) is not None:
            raise error
        base = len(self.values[number])
        self.values[number] += values
        return ProduceResult(base, 0, len(values))


def record(value: bytes, partition: int | None = 0, size: int = 0) -> ParsedRecord:
    return ParsedRecord(partition, 1, None, Part("STRING", value + b"." * size), ())


async def append(log: Log, *records: ParsedRecord | V3Error) -> list[Result]:
    return await TopicAppender("t", cast("TopicAppends", log), 1_000).append_all(records)


async def test_records_of_a_partition_share_a_batch_and_keep_their_order() -> None:
    log = Log()
    results = await append(log, record(b"a"), record(b"b", 1), record(b"c"), record(b"d", None))
    assert results == [Appended(0, 0), Appended(1, 0), Appended(0, 1), Appended(1, 1)]
    assert log.values == {0: [b"a", b"c"], 1: [b"b", b"d"]}
    assert log.batches == [2, 2]


def topic_led(*leaders: int) -> list[TopicRows]:
    """Return the topic, whose partitions have these leaders."""
    rows = [PartitionRow(number, one, 1, (1,), (1,), 0) for number, one in enumerate(leaders)]
    return [TopicRows("t", "id", {}, rows)]


async def test_records_without_a_key_go_to_one_partition_however_they_arrive() -> None:
    log, metadata = Log(), ClusterMetadataCache()
    log.values = {number: [] for number in range(8)}
    metadata.apply(told(1, topic_led(*[1] * 8)))
    given = TopicAppends(metadata=metadata, routed=cast("Any", log), random=Random(1))
    appender = TopicAppender("t", given, 1_000)
    for number in range(20):
        await appender.append_all([record(b"%d" % number, None)])
    (chosen,) = (number for number, values in log.values.items() if values)
    assert log.values[chosen] == [b"%d" % number for number in range(20)]
    metadata.apply(told(2, topic_led(*(-1 if number == chosen else 1 for number in range(8)))))
    (moved,) = await appender.append_all([record(b"x", None)])
    assert isinstance(moved, Appended)
    assert moved.partition != chosen


async def test_errors_stay_where_they_are_and_stop_nobody() -> None:
    bad = V3Error(MALFORMED, "no")
    first, second, third, fourth = await append(
        Log(), bad, record(b"a"), record(b"b", 7), record(b"c")
    )
    assert (first, second, fourth) == (bad, Appended(0, 0), Appended(0, 1))
    assert isinstance(third, UnknownPartition)


@pytest.mark.parametrize("error", [BodyTooLarge, InvalidTimestamp])
async def test_a_batch_that_is_refused_for_a_record_is_tried_record_by_record(
    error: type[LeadlineError],
) -> None:
    log = Log(lambda values: error("no") if b"bad" in values else None)
    first, second, third = await append(log, record(b"a"), record(b"bad"), record(b"c"))
    assert (first, third) == (Appended(0, 0), Appended(0, 1))
    assert isinstance(second, error)
    assert log.values[0] == [b"a", b"c"]


async def test_a_refusal_of_the_partition_is_not_repeated_for_each_record() -> None:
    log = Log(lambda _: NotEnoughReplicas("two"))
    results = await append(log, *(record(b"a") for _ in range(3)))
    assert all(isinstance(one, NotEnoughReplicas) for one in results)
    assert log.batches == [3]


async def test_an_unknown_outcome_is_that_of_every_record_and_is_never_repeated() -> None:
    log = Log(lambda _: LeadershipLost("gone"))
    results = await append(log, record(b"a"), record(b"b"))
    assert [type(one) for one in results] == [LeadershipLost] * 2
    assert log.batches == [2]
    code, message = failure_of(results[0])
    assert (code, "unknown" in message) == (50003, True)


async def test_batches_are_bounded_in_records_and_bytes() -> None:
    log = Log()
    many = [record(b"%d" % number) for number in range(appends.BATCH_RECORDS + 1)]
    assert (await append(log, *many))[-1] == Appended(0, appends.BATCH_RECORDS)
    large = [record(b"%d" % number, size=appends.BATCH_BYTES // 2) for number in range(3)]
    await append(log, *large)
    assert log.batches == [appends.BATCH_RECORDS, 1, 1, 1, 1]
    assert log.values[0] == [one.value for one in (*many, *large)]


def test_a_report_has_what_the_request_had() -> None:
    given = ParsedRecord(0, 1612552482123, None, Part("STRING", None), ())
    report = report_of("c", "t", given, Appended(0, 2**40))
    assert (report.error_code, report.offset, report.key) == (200, 2**40, None)
    assert report.value is not None
    assert (report.value.type, report.value.size) == ("STRING", 0)
    assert report.timestamp == "2021-02-05T19:14:42.123Z"
