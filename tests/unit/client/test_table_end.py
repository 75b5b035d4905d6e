"""A table's end that no longer exists is an error: nobody waits for it for ever."""

from __future__ import annotations

import pytest

from leadline_client import batches
from leadline_client.batch_header import parse_headers
from leadline_client.client import Client
from leadline_client.errors import OffsetOutOfRange, TopicIdMismatch
from leadline_client.payloads import OutgoingRecord
from leadline_client.reading import ReadLimits
from leadline_client.retry import RetryPolicy
from leadline_client.table_reading import read_batches
from tests.unit.client.standin import StandInCluster


def test_an_end_that_an_election_has_cut_off_is_an_error(cluster: StandInCluster) -> None:
    with Client(cluster.bootstrap, policy=RetryPolicy(timeout_s=0.2)) as client:
        for number in range(10):
            client.produce("t", 0, [OutgoingRecord(b"%d" % number)])
        reader = read_batches(client, "t", [0], limits=ReadLimits(max_bytes=1, wait_ms=0))
        row = cluster.partitions[0]
        del row.log[list(parse_headers(bytes(row.log)))[5].position :]
        row.end = 5
        with pytest.raises(OffsetOutOfRange, match=r"t-0 .* 10, .* 0\.2 s"):
            reader.read_all()


def fill(client: Client, values: list[bytes]) -> None:
    """Append one batch for each value."""
    for value in values:
        client.produce_batches("t", 0, batches.encode([OutgoingRecord(value)], now_ms=0))


OLD = [b"old %d" % number for number in range(10)]
NEW = [b"new %d" % number for number in range(10)]
ONE_BATCH = ReadLimits(max_bytes=1, wait_ms=0)


@pytest.mark.parametrize("read_first", [0, 2], ids=["before it is read", "while it is read"])
@pytest.mark.parametrize("kept", [5, 9])
def test_records_of_another_history_are_not_read_up_to_the_old_end(
    cluster: StandInCluster, kept: int, read_first: int
) -> None:
    with Client(cluster.bootstrap, policy=RetryPolicy(timeout_s=20)) as client:
        fill(client, OLD)
        reader = read_batches(client, "t", [0], limits=ONE_BATCH)
        read = [reader.read_next_batch().num_rows for _ in range(read_first)]
        cluster.truncate(0, end=kept)
        fill(client, NEW)
        what = rf"cut off records of t-0 .* 10 .* epoch 0 up to {kept};"
        with pytest.raises(OffsetOutOfRange, match=what):
            read.extend(batch.num_rows for batch in reader)
        assert sum(read) <= read_first + 1, "what was fetched ahead is the last"


def test_a_new_leader_with_the_whole_history_is_asked_once(cluster: StandInCluster) -> None:
    with Client(cluster.bootstrap, policy=RetryPolicy(timeout_s=20)) as client:
        fill(client, OLD)
        reader = read_batches(client, "t", [0], limits=ONE_BATCH)
        assert reader.read_next_batch().num_rows == 1
        assert cluster.requests["epoch end"] == 0
        cluster.move(0, leader=2)
        fill(client, NEW)
        values = reader.read_all().column("value").to_pylist()
        assert values == OLD[1:]
        assert cluster.requests["epoch end"] == 1


def test_what_was_cut_off_behind_the_wanted_end_does_not_matter(cluster: StandInCluster) -> None:
    with Client(cluster.bootstrap, policy=RetryPolicy(timeout_s=20)) as client:
        fill(client, OLD)
        reader = read_batches(client, "t", [0], end={0: 5}, limits=ONE_BATCH)
        cluster.truncate(0, end=5)
        fill(client, NEW)
        assert reader.read_all().column("value").to_pylist() == OLD[:5]


def test_another_history_of_the_same_length_in_an_older_epoch_is_noticed(
    cluster: StandInCluster,
) -> None:
    with Client(cluster.bootstrap, policy=RetryPolicy(timeout_s=20)) as client:
        fill(client, OLD[:8])
        of_the_former_leader = bytes(cluster.partitions[0].log)
        cluster.truncate(0, end=3)
        fill(client, NEW)
        reader = read_batches(client, "t", [0], end={0: 6}, limits=ONE_BATCH)
        cluster.move(0, leader=1)
        cluster.partitions[0].log[:] = of_the_former_leader
        cluster.partitions[0].end = 8
        with pytest.raises(OffsetOutOfRange, match="cut off"):
            reader.read_all()


def test_a_topic_that_is_recreated_before_it_is_read_is_another_one(
    cluster: StandInCluster,
) -> None:
    with Client(cluster.bootstrap, policy=RetryPolicy(timeout_s=20)) as client:
        fill(client, OLD)
        reader = read_batches(client, "t", [0], limits=ONE_BATCH)
        cluster.topic_id = "id-2"
        cluster.version += 1
        row = cluster.partitions[0]
        row.log.clear()
        row.end = 0
        fill(client, NEW)
        with pytest.raises(TopicIdMismatch):
            reader.read_all()
