"""The table of options, and how what users give is checked against it."""

from __future__ import annotations

import pickle
from functools import partial

import pytest

from leadline_broker.api.fetch import MAX_FETCH_BYTES
from leadline_client.wire import TopicPartition
from leadline_spark.cluster.cluster_client import Connection
from leadline_spark.errors import CODES, LeadlineSparkError
from leadline_spark.option_table import OPTIONS
from leadline_spark.options import (
    DOCUMENT,
    DURATION,
    FLAG,
    LIST,
    NUMBER,
    TEXT,
    Options,
    parse_duration,
)
from leadline_spark.read.bounds import end_of, refuse_ends, start_of
from leadline_spark.read.columns import spark_schema, wanted_columns
from leadline_spark.read.offsets import EARLIEST, LATEST
from leadline_spark.read.stream_planning import StreamSettings
from leadline_spark.read.subscription import SourceSubscription
from leadline_spark.source import LeadlineDataSource


def given(**options: str) -> Options:
    return Options(OPTIONS, {name.lower(): text for name, text in options.items()})


def test_the_table_is_sound() -> None:
    names = [name.lower() for row in OPTIONS for name in (row.name, *row.aliases)]

    assert len(set(names)) == len(names)
    assert {row.kind for row in OPTIONS} <= {TEXT, NUMBER, FLAG, DURATION, DOCUMENT, LIST}
    # A default is a value that a user could have given.
    Options(OPTIONS, {row.name: row.default for row in OPTIONS if row.default is not None})


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        ({"failOnDataLos": "true"}, "UNKNOWN", "Did you mean failOnDataLoss?"),
        ({"kafka.security.protocol": "SSL"}, "UNKNOWN", "spoken to by HTTP"),
        ({"kafka.auto.offset.reset": "latest"}, "UNKNOWN", "no option"),
        ({"minPartitions": "0"}, "INVALID", "at least 1"),
        ({"minPartitions": "many"}, "INVALID", "a whole number"),
        ({"minPartitions": "9" * 20}, "INVALID", "at most 9223372036854775807"),
        ({"minPartitions": "9" * 5_000}, "INVALID", "a whole number"),
        # Beyond it no clock or socket can wait, and no broker answers.
        ({"requestTimeoutMs": "2147483648"}, "INVALID", "at most 2147483647"),
        ({"fetchDeadlineMs": "2147483648"}, "INVALID", "at most 2147483647"),
        ({"deliveryTimeoutMs": "9" * 400}, "INVALID", "a whole number|at most 2147483647"),
        ({"kafka.max.partition.fetch.bytes": "67108865"}, "INVALID", "at most 67108864"),
        ({"failOnDataLoss": "yes"}, "INVALID", "true or false"),
        ({"snapshot": "never"}, "INVALID", "one of load, action"),
        ({"assign": "{"}, "INVALID", "JSON"),
        ({"assign": "[" * 100_000}, "INVALID", "nested too deeply"),
        ({"assign": '{"t":[0],"t":[1]}'}, "INVALID", "'t' is there twice"),
        ({"maxTriggerDelay": "15 moons"}, "INVALID", "a duration"),
        ({"bootstrap": "a", "kafka.bootstrap.servers": "b"}, "CONFLICT", "other name"),
    ],
)
def test_bad_options_are_refused(options: dict[str, str], code: str, message: str) -> None:
    with pytest.raises(LeadlineSparkError, match=message) as caught:
        Options(OPTIONS, options)

    assert caught.value.code == f"LEADLINE_OPTION_{code}"


def test_names_are_found_whatever_their_case() -> None:
    options = given(
        **{"KAFKA.BOOTSTRAP.SERVERS": "h1:9092, http://h2:9093/", "failondataloss": "FALSE"}
    )

    assert Connection.of(options).bootstrap == ("http://h1:9092", "http://h2:9093")
    assert options.flag("failOnDataLoss") is False
    assert options.duration_ms("maxTriggerDelay") == 900_000
    assert "minPartitions" not in options
    assert options.number("minPartitions") is None


def test_an_address_is_required() -> None:
    with pytest.raises(LeadlineSparkError, match="LEADLINE_OPTION_MISSING"):
        Connection.of(given())


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("15m", 900_000),
        ("500ms", 500),
        ("2 h", 7_200_000),
        ("7", 7),
        ("3000us", 3),
        ("1d", 86_400_000),
    ],
)
def test_durations_are_read_as_spark_writes_them(text: str, ms: int) -> None:
    assert parse_duration(text) == ms


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"subscribe": "a", "subscribePattern": "b"},
        {"subscribe": " , "},
        {"subscribePattern": "("},
        {"assign": "{}"},
        {"assign": '{"t":["x"]}'},
    ],
)
def test_one_way_of_naming_topics_is_given(options: dict[str, str]) -> None:
    with pytest.raises(LeadlineSparkError, match="LEADLINE_OPTION_"):
        SourceSubscription.of(given(**options))


def test_a_batch_begins_at_earliest_and_a_stream_at_latest() -> None:
    assert start_of(given(), streaming=False).everywhere == EARLIEST
    assert start_of(given(), streaming=True).everywhere == LATEST
    assert end_of(given()).everywhere == LATEST


@pytest.mark.parametrize("offsets", ["latest", '{"t":{"0":-1}}'])
def test_a_batch_cannot_start_at_latest(offsets: str) -> None:
    with pytest.raises(LeadlineSparkError, match="startingOffsets is latest"):
        start_of(given(startingOffsets=offsets), streaming=False)
    assert start_of(given(startingOffsets=offsets), streaming=True).depends_on_now


@pytest.mark.parametrize("offsets", ["earliest", '{"t":{"0":-2}}'])
def test_a_batch_cannot_end_at_earliest(offsets: str) -> None:
    with pytest.raises(LeadlineSparkError, match="endingOffsets is earliest"):
        end_of(given(endingOffsets=offsets))


@pytest.mark.parametrize(
    "text",
    [
        *("soon", "{}", '{"t":{"0":-3}}', '{"t":{"0":"1"}}', '{"t":{"0":1e3}}', '{"t":{"0":NaN}}'),
        *("[" * 100_000, '{"t":{"0":1,"0":2}}', '{"t":{"0":1},"t":{"1":2}}'),
    ],
)
def test_offsets_that_mean_nothing_are_refused(text: str) -> None:
    with pytest.raises(LeadlineSparkError, match="LEADLINE_O"):
        start_of(given(startingOffsets=text), streaming=True)


@pytest.mark.parametrize("times", ["{}", '{"t":{}}', '{"t":{"0":-1}}'])
@pytest.mark.parametrize("name", ["startingOffsetsByTimestamp", "endingOffsetsByTimestamp"])
def test_times_that_mean_nothing_are_refused(name: str, times: str) -> None:
    # None of them is passed over; and -1 would be the end to the cluster, not a time.
    options = given(**{name: times})

    with pytest.raises(LeadlineSparkError, match=f"LEADLINE_OFFSETS_INVALID. {name}"):
        start_of(options, streaming=True) if name.startswith("s") else end_of(options)


def test_values_of_a_choice_are_known_whatever_their_case() -> None:
    options = given(
        startingTimestamp="9", startingOffsetsByTimestampStrategy="ERROR", snapshot=" Load "
    )

    assert not start_of(options, streaming=True).latest_where_none
    assert options.text("snapshot") == "load"


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    text = {"endingOffsets": "latest", "endingTimestamp": "5"}.get(name, '{"t":{"0":5}}')

    with pytest.raises(LeadlineSparkError, match="not valid in a streaming query"):
        refuse_ends(given(**{name: text}))


def test_a_time_for_all_goes_before_times_for_each_and_before_offsets() -> None:
    options = {"startingOffsets": "earliest", "startingOffsetsByTimestamp": '{"t":{"0":7}}'}

    each = start_of(given(**options), streaming=True)
    one = start_of(given(**options, startingTimestamp="9"), streaming=True)

    assert (each.timestamps, each.timestamp) == ({TopicPartition("t", 0): 7}, None)
    assert (one.timestamps, one.timestamp) == ({}, 9)
    assert not each.depends_on_now
    assert start_of(
        given(startingTimestamp="9", startingOffsetsByTimestampStrategy="latest"), streaming=True
    ).depends_on_now


def test_a_least_number_above_the_greatest_is_refused() -> None:
    with pytest.raises(LeadlineSparkError, match="greater than maxOffsetsPerTrigger"):
        StreamSettings.of(given(minOffsetsPerTrigger="5", maxOffsetsPerTrigger="4"))


@pytest.mark.parametrize("name", ["txnAppId", "txnVersion"])
def test_a_read_takes_no_option_that_would_make_a_write_exact(name: str) -> None:
    shared = {"bootstrap": "h:1", "subscribe": "t", "topic": "t", "acks": "all"}
    source = LeadlineDataSource({**shared, "snapshot": "action"})
    schema = source.schema()
    source.reader(schema)
    source.streamReader(schema)

    refused = LeadlineDataSource({**shared, name: "1"})
    for call in (refused.schema, partial(refused.reader, schema)):
        with pytest.raises(LeadlineSparkError, match=f"CONFLICT.*{name} .*give it to the write"):
            call()
    with pytest.raises(LeadlineSparkError, match="give it to the write"):
        refused.streamReader(schema)


def test_columns_are_those_of_kafka_s_source() -> None:
    kafka = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")

    assert wanted_columns(given()) == kafka
    assert wanted_columns(given(includeHeaders="true")) == (*kafka, "headers")
    assert wanted_columns(given(columns="value, key", includeLeaderEpoch="true")) == (
        "value",
        "key",
        "leaderEpoch",
    )
    assert spark_schema(("offset", "timestamp")).simpleString() == (
        "struct<offset:bigint,timestamp:timestamp>"
    )


@pytest.mark.parametrize("columns", ["valu", "key,key", ","])
def test_unknown_columns_are_refused(columns: str) -> None:
    with pytest.raises(LeadlineSparkError, match="LEADLINE_OPTION_INVALID"):
        wanted_columns(given(columns=columns))


def test_errors_survive_the_way_from_a_worker() -> None:
    error = LeadlineSparkError("LEADLINE_DATA_LOSS", "t-0: gone")

    back = pickle.loads(pickle.dumps(error))  # noqa: S301 - what was pickled a moment ago

    assert (back.code, str(back)) == (error.code, "[LEADLINE_DATA_LOSS] t-0: gone")
    assert error.code in CODES


def test_a_fetch_may_be_as_large_as_a_broker_allows() -> None:
    (row,) = (option for option in OPTIONS if option.name == "fetchMaxBytes")
    assert row.maximum == MAX_FETCH_BYTES
