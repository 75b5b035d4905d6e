"""A table's end that no longer exists is an error: nobody waits for it for ever."""

from __future__ import annotations

import pytest

from leadline_client import batches
from leadline_client.client import Client
from leadline_client.errors import OffsetOutOfRange
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
        del row.log[list(batches.parse_headers(bytes(row.log)))[5].position :]
        row.end = 5
        with pytest.raises(OffsetOutOfRange, match=r"t-0 .* 10, .* 0\.2 s"):
            reader.read_all()
