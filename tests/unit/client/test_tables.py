"""Topics as Arrow tables and data frames, and tables as records."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from leadline_client import (
    Client,
    MissingExtra,
    OutgoingRecord,
    Producer,
    ReadLimits,
    SerializationFailed,
    batches,
    produce_table,
    read_batches,
    read_pandas,
    read_table,
    table_reading,
)
from leadline_client.batch_header import HEADER_BYTES, header_at, parse_headers
from leadline_client.codec import CODEC
from leadline_client.errors import (
    BodyTooLarge,
    CorruptBatch,
    InvalidRequest,
    NotEnoughReplicas,
    OffsetOutOfRange,
    UnknownTopic,
    UnreadableBatch,
)
from leadline_client.producer_settings import ProducerSettings
from leadline_client.retry import RetryPolicy
from leadline_client.table_reading import SCHEMA
from leadline_client.wire import LogPosition
from tests.support.pandas.packages import environment
from tests.unit.client.standin import StandInCluster

NO_WAIT = ReadLimits(wait_ms=0)
FRAMES = """
import sys
import pandas as pd
from leadline_client import Client, Producer, produce_table, read_pandas

frame = pd.DataFrame({"who": ["ann", "bob"], "cents": [1.5, None], "at": pd.Timestamp(0)})
with Producer(sys.argv[1:]) as producer:
    assert produce_table(producer, "t", frame, key="who", partition=0) == 2
with Client(sys.argv[1:]) as client:
    read = read_pandas(client, "t", columns=["offset", "key", "timestamp"])
assert list(read["offset"]) == [0, 1]
assert list(read["key"]) == [b"ann", b"bob"]
assert str(read["timestamp"].dtype) == "datetime64[ms, UTC]"
"""


@pytest.fixture
def client(cluster: StandInCluster) -> Iterator[Client]:
    with Client(cluster.bootstrap, policy=RetryPolicy(timeout_s=5)) as made:
        yield made


def fill(client: Client, partition: int, count: int, **fields: Any) -> None:
    """Append records in batches of ten."""
    for first in range(0, count, 10):
        records = [
            OutgoingRecord(b"%d" % n, timestamp=1000 + n, **fields)
            for n in range(first, min(first + 10, count))
        ]
        client.produce_batches("t", partition, batches.encode(records, now_ms=0))


def offsets(table: pa.Table) -> list[int]:
    found: list[int] = table.column("offset").to_pylist()
    return found


def test_a_table_has_every_field_of_every_record(client: Client) -> None:
    headers = (("h", b"1"), ("h", None))
    records = [
        OutgoingRecord(b"v", b"k", headers, 1_767_225_600_000),
        OutgoingRecord(None, None, (), 0),
    ]
    client.produce_batches("t", 2, batches.encode(records, now_ms=0))
    table = read_table(client, "t")
    assert table.schema == SCHEMA
    table.validate(full=True)
    new_year = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    first = {"topic": "t", "partition": 2, "offset": 0, "timestamp": new_year, "key": b"k"}
    first |= {"value": b"v", "headers": [{"key": "h", "value": b"1"}, {"key": "h", "value": None}]}
    epoch = dt.datetime.fromtimestamp(0, dt.UTC)
    second = {"topic": "t", "partition": 2, "offset": 1, "timestamp": epoch, "key": None}
    assert table.to_pylist() == [first, second | {"value": None, "headers": []}]


def test_all_partitions_are_read_up_to_their_ends(client: Client) -> None:
    for partition, count in enumerate((25, 0, 7)):
        fill(client, partition, count)
    table = read_table(client, "t", limits=NO_WAIT)
    assert table.column("partition").to_pylist() == [0] * 25 + [2] * 7
    assert offsets(table) == [*range(25), *range(7)]
    assert table.column("value").to_pylist()[:25] == [b"%d" % n for n in range(25)]


def test_a_range_of_offsets_is_read(client: Client) -> None:
    fill(client, 0, 30)
    fill(client, 1, 5)
    table = read_table(client, "t", partitions=[1, 0], start={0: 12}, end={0: 17})
    assert offsets(table) == [*range(5), *range(12, 17)]
    assert offsets(read_table(client, "t", partitions=[0], start=28)) == [28, 29]
    assert offsets(read_table(client, "t", partitions=[0], start="latest")) == []


def test_batches_come_one_fetch_at_a_time(client: Client, cluster: StandInCluster) -> None:
    fill(client, 0, 50)
    reader = read_batches(client, "t", [0], limits=NO_WAIT)
    before = cluster.requests["fetch"]
    sizes = [len(reader.read_next_batch()) for _ in range(2)]
    assert sizes == [10, 10]
    del reader  # That waits for the fetch under way.
    assert cluster.requests["fetch"] == before + 3, "one is fetched ahead, and no more"


def test_records_that_come_during_the_reading_are_left_out(client: Client) -> None:
    fill(client, 0, 10)
    reader = read_batches(client, "t", [0])
    fill(client, 0, 10)
    assert offsets(reader.read_all()) == list(range(10))


def test_only_the_columns_that_are_asked_for_are_made(client: Client) -> None:
    fill(client, 0, 3)
    table = read_table(client, "t", columns=["value", "offset"])
    assert table.to_pylist() == [{"value": b"%d" % n, "offset": n} for n in range(3)]


def test_nothing_is_read_from_the_end_on(client: Client) -> None:
    fill(client, 0, 3)
    assert read_table(client, "t", partitions=[0], start=3).num_rows == 0


def test_what_does_not_exist_is_refused_before_anything_is_read(
    client: Client, cluster: StandInCluster
) -> None:
    fill(client, 0, 3)
    with pytest.raises(InvalidRequest, match="no columns \\['size'\\]"):
        read_batches(client, "t", columns=["size"])
    with pytest.raises(InvalidRequest, match="partitions \\[1\\] have a start or an end"):
        read_batches(client, "t", [0], start={1: 0})
    with pytest.raises(OffsetOutOfRange, match="t-0 ends at 3, before offset 4"):
        read_batches(client, "t", [0], end={0: 4})
    for start in (4, LogPosition(4, 0)):
        with pytest.raises(OffsetOutOfRange, match="t-0 ends at 3, before offset 4"):
            read_batches(client, "t", [0], start={0: start})
    with pytest.raises(UnknownTopic):
        read_batches(client, "nowhere")
    assert cluster.requests["fetch"] == 0


def damage_second_batch(cluster: StandInCluster, position: int, *, seal: bool) -> None:
    """Change a byte of the batch at offset 10, with a right checksum or not."""
    log = cluster.partitions[0].log
    second = list(parse_headers(bytes(log)))[1]
    log[second.position + position] ^= 0xFF
    if seal:
        body = bytes(log[second.position + 21 : second.position + second.size])
        log[second.position + 17 : second.position + 21] = CODEC.crc32c(body).to_bytes(4, "big")


def test_a_malformed_batch_is_named_after_the_rows_before_it(
    client: Client, cluster: StandInCluster
) -> None:
    fill(client, 0, 30)
    damage_second_batch(cluster, HEADER_BYTES + 1, seal=True)
    reader = read_batches(client, "t", [0], limits=NO_WAIT)
    assert reader.read_next_batch().num_rows == 10
    with pytest.raises(UnreadableBatch, match="the batch of t-0 at offsets 10 to 19") as refused:
        reader.read_next_batch()
    after = read_table(client, "t", partitions=[0], start=refused.value.next_offset)
    assert offsets(after) == list(range(20, 30))


def test_a_wrong_checksum_is_an_error(client: Client, cluster: StandInCluster) -> None:
    fill(client, 0, 30)
    damage_second_batch(cluster, HEADER_BYTES + 1, seal=False)
    with pytest.raises(CorruptBatch, match="the batch at offset 10 has the checksum"):
        read_table(client, "t", partitions=[0], limits=NO_WAIT)


def test_a_broker_that_skips_records_is_not_believed(
    client: Client, cluster: StandInCluster
) -> None:
    fill(client, 0, 10)
    gap = bytearray(batches.encode([OutgoingRecord(b"late")], now_ms=0))
    batches.stamp(gap, header_at(gap), 5, 0)
    cluster.stale_fetches.append((0, bytes(gap)))
    with pytest.raises(OffsetOutOfRange, match=r"asked for offset 0, but .* is 5"):
        read_table(client, "t", partitions=[0], limits=NO_WAIT)


def test_a_former_leader_is_not_believed(client: Client, cluster: StandInCluster) -> None:
    fill(client, 0, 20)
    late = bytearray(batches.encode([OutgoingRecord(b"never committed")] * 10, now_ms=0))
    batches.stamp(late, header_at(late), 10, 0)
    cluster.move(0, 1)
    reader = read_batches(client, "t", [0], limits=NO_WAIT)
    first = reader.read_next_batch()
    cluster.stale_fetches.append((0, bytes(late)))
    values = first.column("value").to_pylist() + reader.read_all().column("value").to_pylist()
    assert values == [b"%d" % n for n in range(20)]


def test_data_frames_become_records_and_records_data_frames(cluster: StandInCluster) -> None:
    code = [sys.executable, "-W", "error", "-c", FRAMES, *cluster.bootstrap]
    done = subprocess.run(code, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    first, second = (json.loads(value or b"") for value in cluster.values(0))
    assert first == {"cents": 1.5, "at": "1970-01-01T00:00:00"}
    assert second["cents"] is None


def test_a_data_frame_names_its_extra(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_reading, "installed", lambda *_: False)
    with pytest.raises(MissingExtra, match=r"leadline-client\[pandas\]"):
        read_pandas(client, "t")


@pytest.mark.parametrize("name", ["read_table", "produce_table"])
def test_tables_name_their_extra(name: str) -> None:
    code = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "import leadline_client\n"
        f"try: leadline_client.{name}\n"
        "except leadline_client.MissingExtra as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "leadline-client[arrow]" in done.stdout


@pytest.mark.parametrize("kind", [pa.string(), pa.binary(), pa.large_string(), pa.large_binary()])
def test_a_column_becomes_the_values(cluster: StandInCluster, kind: pa.DataType) -> None:
    table = pa.table({"v": pa.array(["a", None, "c"], kind), "k": pa.array(["x", None, "z"], kind)})
    with Producer(cluster.bootstrap) as producer:
        assert produce_table(producer, "t", table, key="k", value="v", partition=1) == 3
    assert cluster.values(1) == [b"a", None, b"c"]
    stored = batches.decode(bytes(cluster.partitions[1].log))
    assert [one.key for one in stored] == [b"x", None, b"z"]


def test_rows_become_json_without_the_key(cluster: StandInCluster) -> None:
    table = pa.table({"who": ["ann", "bob"], "cents": [1.5, None], "on": [dt.date(2026, 1, 1)] * 2})
    with Producer(cluster.bootstrap) as producer:
        assert produce_table(producer, "t", table, key="who", partition=0) == 2
    assert cluster.values(0) == [
        b'{"cents":1.5,"on":"2026-01-01"}',
        b'{"cents":null,"on":"2026-01-01"}',
    ]


def test_any_source_of_rows_keeps_their_order(cluster: StandInCluster, client: Client) -> None:
    table = pa.table({"n": range(2500)})
    sources = [table, table.to_batches()[0], table.to_reader(max_chunksize=700)]
    with Producer(cluster.bootstrap) as producer:
        for partition, source in enumerate(sources):
            assert produce_table(producer, "t", source, partition=partition) == 2500
    for partition in range(3):
        values = [json.loads(value or b"")["n"] for value in cluster.values(partition)]
        assert values == list(range(2500))


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"key": "x"}, "not one column 'x'"),
        ({"key": "n"}, "the column 'n' holds int64"),
        ({"value": "n"}, "the column 'n' holds int64"),
        ({"key": "s", "columns": ["s"]}, "columns of different names"),
    ],
)
def test_wrong_columns_are_refused_and_nothing_is_sent(
    cluster: StandInCluster, options: dict[str, Any], why: str
) -> None:
    table = pa.table({"n": [1], "s": ["x"]}).select(options.pop("columns", ["n", "s"]))
    with Producer(cluster.bootstrap) as producer, pytest.raises(InvalidRequest, match=why):
        produce_table(producer, "t", table, **options)
    assert all(cluster.values(partition) == [] for partition in range(3))


@pytest.mark.parametrize("value", [float("nan"), b"bytes"])
def test_a_row_without_json_is_named_and_its_thousand_is_not_sent(
    cluster: StandInCluster, value: object
) -> None:
    values = pa.array([*[None] * 1500, value])
    with (
        Producer(cluster.bootstrap) as producer,
        pytest.raises(SerializationFailed, match="row 1500 has no JSON"),
    ):
        produce_table(producer, "t", pa.table({"v": values}), partition=0)
    assert len(cluster.values(0)) == 1000


def test_decimals_are_text(cluster: StandInCluster) -> None:
    with Producer(cluster.bootstrap) as producer:
        produce_table(producer, "t", pa.table({"v": [Decimal("1.50")]}), partition=0)
    assert cluster.values(0) == [b'{"v":"1.50"}']


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_rows_are_sent_by_halves_where_the_topic_takes_smaller_batches(
    cluster: StandInCluster, compression: str
) -> None:
    row = cluster.partitions[0]
    row.max_bytes = 2_000
    table = pa.table({"n": range(1_000)})
    with Producer(cluster.bootstrap, ProducerSettings(compression=compression)) as producer:
        assert produce_table(producer, "t", table, partition=0) == 1_000
        refused = row.too_large
        assert refused > 0
        assert produce_table(producer, "t", table.slice(0, 5), partition=0) == 5
        assert row.too_large == refused
    wanted = [b'{"n":%d}' % number for number in [*range(1_000), *range(5)]]
    assert [one.value for one in batches.decode(bytes(row.log))] == wanted
    headers = list(parse_headers(bytes(row.log)))
    assert [one.base_sequence for one in headers] == [one.base_offset for one in headers]


def test_batches_behind_a_refused_one_are_filled_by_half(cluster: StandInCluster) -> None:
    row = cluster.partitions[0]
    row.max_bytes = 4_000
    table = pa.table({"n": range(20_000)})
    settings = ProducerSettings(batch_bytes=10_000, buffer_bytes=20_000)
    with Producer(cluster.bootstrap, settings) as producer:
        assert produce_table(producer, "t", table, partition=0) == 20_000
    in_the_buffer = 5
    assert 0 < row.too_large <= in_the_buffer
    assert len(list(parse_headers(bytes(row.log)))) > 100


def test_one_row_that_is_too_large_fails_and_the_others_are_sent(cluster: StandInCluster) -> None:
    cluster.partitions[0].max_bytes = 2_000
    values = pa.array(["a", "x" * 3_000, "b"])
    with Producer(cluster.bootstrap) as producer, pytest.raises(BodyTooLarge):
        produce_table(producer, "t", pa.table({"v": values}), partition=0)
    assert cluster.values(0) == [b'{"v":"a"}', b'{"v":"b"}']


def test_a_refused_row_is_an_error(cluster: StandInCluster, client: Client) -> None:
    cluster.partitions[0].faults.extend([NotEnoughReplicas("too few")] * 1000)
    with Client(cluster.bootstrap, policy=RetryPolicy(timeout_s=0.2)) as hurried:
        from_settings = Producer(hurried, ProducerSettings(delivery_timeout_s=0.2))
        with from_settings as producer, pytest.raises(NotEnoughReplicas):
            produce_table(producer, "t", pa.table({"v": [1]}), partition=0)
    assert cluster.values(0) == []
