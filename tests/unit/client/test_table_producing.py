"""Rows of tables become batches, which a producer sends as it sends its own: once, in order."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline_client import Client, Producer, batches, produce_table
from leadline_client.batch_header import BatchHeader, parse_headers
from leadline_client.columnar.encode import Records
from leadline_client.columnar.murmur2 import partitions_of
from leadline_client.columnar.partitioning import StickyPartitions, by_partition
from leadline_client.errors import (
    InvalidRequest,
    NotEnoughReplicas,
    OutcomeUnknown,
    SerializationFailed,
    UnknownPartition,
    UnknownTopic,
)
from leadline_client.murmur2 import partition_for_key
from leadline_client.producer_settings import ProducerSettings
from leadline_client.retry import RetryPolicy
from leadline_client.serializers.plain import BytesSerializer
from tests.unit.client.standin import StandInCluster

SMALL = ProducerSettings(batch_bytes=500)
KEYS = st.lists(st.none() | st.binary(max_size=80), min_size=1, max_size=60)


def table_of(count: int, first: int = 0) -> pa.Table:
    values = [b"%d" % number for number in range(first, first + count)]
    return pa.table({"k": [b"k%d" % (n % 7) for n in range(count)], "v": pa.array(values)})


def headers(cluster: StandInCluster, partition: int) -> list[BatchHeader]:
    return list(parse_headers(bytes(cluster.partitions[partition].log)))


@pytest.fixture
def hurried(cluster: StandInCluster) -> Iterator[Client]:
    """A client that retries for a short time."""
    policy = RetryPolicy(timeout_s=1, request_timeout_s=1)
    with Client(cluster.bootstrap, policy=policy) as made:
        yield made


def test_rows_go_where_the_producer_sends_records_with_their_keys(cluster: StandInCluster) -> None:
    rows = [(b"key %d" % (n % 50), b"%d" % n) for n in range(500)]
    with Producer(cluster.bootstrap) as producer:
        for key, value in rows:
            producer.send("t", value, key=key)
        producer.flush()
        by_record = [cluster.values(partition) for partition in range(3)]
        table = pa.table({"k": [key for key, _ in rows], "v": [value for _, value in rows]})
        assert produce_table(producer, "t", table, key="k", value="v") == 500
    for partition, expected in enumerate(by_record):
        assert cluster.values(partition) == expected * 2
        assert expected, "each partition has a part of the keys"


@given(KEYS, st.integers(1, 50), st.integers(0, 1 << 16), st.integers(50, 1000))
def test_keys_decide_and_rows_without_one_fill_batches_in_turn(
    keys: list[bytes | None], count: int, first: int, batch_bytes: int
) -> None:
    """Each row is in one partition, and the rows of a partition keep their order."""
    column = pa.array(keys, pa.binary())
    numbers = pa.array([b"%d" % n for n in range(len(keys))], pa.binary())
    sticky = StickyPartitions(first, batch_bytes)
    records = Records(column, numbers)
    assigned = sticky.assign(records, partitions_of(column, count), count)
    parts = dict(by_partition(records, assigned))
    found = {n: [int(v) for v in part.value.to_pylist()] for n, part in parts.items()}
    assert sorted(row for rows in found.values() for row in rows) == list(range(len(keys)))
    assert all(rows == sorted(rows) for rows in found.values())
    places = {row: partition for partition, rows in found.items() for row in rows}
    for row, key in enumerate(keys):
        if key is not None:
            assert places[row] == partition_for_key(key, count)
    keyless = [places[row] for row, key in enumerate(keys) if key is None]
    moves = [(after - before) % count for before, after in pairwise(keyless)]
    assert set(moves) <= {0, 1 % count}, "the partition stays, or the next one follows"
    again = StickyPartitions(first, batch_bytes)
    for row in range(len(keys)):
        one = records.slice(row, 1)
        (number,) = again.assign(one, partitions_of(one.key, count), count).to_pylist()
        assert number == places[row], "how the rows are divided into tables makes no difference"


def test_rows_without_keys_are_spread_by_batches(cluster: StandInCluster) -> None:
    with Producer(cluster.bootstrap, SMALL) as producer:
        assert produce_table(producer, "t", table_of(300), value="v") == 300
    found = [value for partition in range(3) for value in cluster.values(partition)]
    assert sorted(int(value or b"") for value in found) == list(range(300))
    for partition in range(3):
        rows = [int(value or b"") for value in cluster.values(partition)]
        assert rows == sorted(rows)
        assert rows, "batches go to all partitions"


def test_batches_have_the_size_and_the_compression_of_the_producer(cluster: StandInCluster) -> None:
    settings = ProducerSettings(batch_bytes=2_000, compression="gzip")
    with Producer(cluster.bootstrap, settings) as producer:
        produce_table(producer, "t", table_of(500), value="v", partition=0)
    found = headers(cluster, 0)
    assert all(one.attributes == batches.CODECS["gzip"] for one in found)
    assert 5 < len(found) < 10, "500 records of 23 bytes, 2,000 bytes a batch"


def test_the_chunks_of_a_reader_fill_batches_together(cluster: StandInCluster) -> None:
    with Producer(cluster.bootstrap, SMALL) as producer:
        chunks = table_of(400).to_reader(max_chunksize=30)
        produce_table(producer, "t", chunks, value="v", partition=0)
    counts = [one.record_count for one in headers(cluster, 0)]
    assert sum(counts) == 400
    assert min(counts[:-1]) > 20, "a row takes 21 to 23 bytes, a batch 500"


def test_batches_are_numbered_with_the_records_around_them(cluster: StandInCluster) -> None:
    """In the order of the calls, by one producer id, and without a gap."""
    with Producer(cluster.bootstrap, SMALL) as producer:
        for first in (0, 100):
            producer.send("t", b"%d" % first, partition=0)
            produce_table(producer, "t", table_of(99, first + 1), value="v", partition=0)
        assert producer.send("t", b"200", partition=0).result().offset == 200
    assert cluster.values(0) == [b"%d" % n for n in range(201)]
    found = headers(cluster, 0)
    assert len({(one.producer_id, one.producer_epoch) for one in found}) == 1
    assert [one.base_sequence for one in found] == [one.base_offset for one in found]


def test_a_record_that_waits_is_sent_before_a_batch(cluster: StandInCluster) -> None:
    with Producer(cluster.bootstrap, ProducerSettings(linger_ms=60_000)) as producer:
        sent = producer.send("t", b"0", partition=0)
        produce_table(producer, "t", table_of(9, 1), value="v", partition=0)
        assert sent.result().offset == 0
    assert cluster.values(0) == [b"%d" % n for n in range(10)]


@pytest.mark.parametrize("fault", ["append, then hang up", "hang up"])
def test_a_lost_answer_makes_no_second_copy(cluster: StandInCluster, fault: str) -> None:
    cluster.partitions[0].faults.extend([fault] * 3)  # type: ignore[list-item]  # a literal
    with Producer(cluster.bootstrap, SMALL) as producer:
        assert produce_table(producer, "t", table_of(100), value="v", partition=0) == 100
    assert cluster.values(0) == [b"%d" % n for n in range(100)]


def test_a_batch_follows_its_leader(cluster: StandInCluster) -> None:
    with Producer(cluster.bootstrap, SMALL) as producer:
        produce_table(producer, "t", table_of(50), value="v", partition=0)
        cluster.move(0, 1 + cluster.partitions[0].leader % 2)
        produce_table(producer, "t", table_of(50, 50), value="v", partition=0)
    assert cluster.values(0) == [b"%d" % n for n in range(100)]


def test_an_unknown_outcome_is_an_error_and_ends_the_numbering(
    cluster: StandInCluster, hurried: Client
) -> None:
    """The batch may be in the log, so that what follows has another producer id."""
    row = cluster.partitions[0]
    row.faults.append("append, then hang up")
    row.faults.extend(["hang up"] * 1000)
    settings = ProducerSettings(delivery_timeout_s=1)
    with Producer(hurried, settings) as producer:
        with pytest.raises(OutcomeUnknown):
            produce_table(producer, "t", table_of(10), value="v", partition=0)
        row.faults.clear()
        assert produce_table(producer, "t", table_of(10, 10), value="v", partition=0) == 10
    assert cluster.values(0) == [b"%d" % n for n in range(20)]
    first, second = headers(cluster, 0)
    assert first.producer_id != second.producer_id
    assert (first.base_sequence, second.base_sequence) == (0, 0)


def test_a_refused_batch_is_an_error_and_keeps_its_numbers_free(
    cluster: StandInCluster, hurried: Client
) -> None:
    row = cluster.partitions[0]
    row.faults.extend([NotEnoughReplicas("too few")] * 1000)
    with Producer(hurried, ProducerSettings(delivery_timeout_s=1)) as producer:
        with pytest.raises(NotEnoughReplicas):
            produce_table(producer, "t", table_of(10), value="v", partition=0)
        row.faults.clear()
        produce_table(producer, "t", table_of(10, 10), value="v", partition=0)
    assert cluster.values(0) == [b"%d" % n for n in range(10, 20)]
    assert [one.base_sequence for one in headers(cluster, 0)] == [0]


def test_without_idempotence_batches_have_no_numbers(cluster: StandInCluster) -> None:
    with Producer(cluster.bootstrap, ProducerSettings(acks="1")) as producer:
        assert produce_table(producer, "t", table_of(10), value="v", partition=0) == 10
    assert [(one.producer_id, one.base_sequence) for one in headers(cluster, 0)] == [(-1, -1)]


def test_what_does_not_exist_is_refused_before_anything_is_sent(cluster: StandInCluster) -> None:
    with Producer(cluster.bootstrap) as producer:
        with pytest.raises(UnknownTopic):
            produce_table(producer, "nowhere", table_of(1), value="v")
        with pytest.raises(UnknownPartition):
            produce_table(producer, "t", table_of(1), value="v", partition=9)
    with pytest.raises(InvalidRequest, match="the producer is closed"):
        produce_table(producer, "t", table_of(1), value="v")
    assert all(row.appends == 0 for row in cluster.partitions.values())


def test_a_producer_with_serializers_gets_each_row(cluster: StandInCluster) -> None:
    class Framed(BytesSerializer):
        def serialize(self, topic: str, data: bytes) -> bytes:
            return b"framed " + super().serialize(topic, data)

    with Producer(cluster.bootstrap, value_serializer=Framed()) as producer:
        assert produce_table(producer, "t", table_of(2), key="k", value="v", partition=0) == 2
    assert cluster.values(0) == [b"framed 0", b"framed 1"]


def test_a_buffer_smaller_than_the_table_is_enough(cluster: StandInCluster) -> None:
    settings = ProducerSettings(batch_bytes=500, buffer_bytes=1_000)
    with Producer(cluster.bootstrap, settings) as producer:
        assert produce_table(producer, "t", table_of(2_000), key="k", value="v") == 2_000
    assert sum(len(cluster.values(partition)) for partition in range(3)) == 2_000


@pytest.mark.parametrize(
    "unusable",
    [pa.scalar(1 << 40, pa.timestamp("s")), pa.scalar((1 << 31) - 1, pa.date32())],
    ids=["timestamp", "date"],
)
def test_a_value_that_python_does_not_have_stops_the_call_with_its_row(
    cluster: StandInCluster, unusable: pa.Scalar
) -> None:
    """The rows of thousands before it are sent, as with any other value that has no JSON."""
    column = pa.concat_arrays(
        [pa.repeat(pa.scalar(0, unusable.type), 2_300), pa.repeat(unusable, 700)]
    )
    with Producer(cluster.bootstrap) as producer:
        with pytest.raises(SerializationFailed, match="row 2300 has no JSON") as failed:
            produce_table(producer, "t", pa.table({"at": column}), partition=0)
        assert failed.value.details == {"row": 2_300}
    assert len(cluster.values(0)) == 2_000
