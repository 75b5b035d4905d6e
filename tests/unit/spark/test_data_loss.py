"""Losses found by a stream whose log has later epochs than those in which it has read."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from leadline_client.wire import TopicPartition
from leadline_spark.cluster.cluster_client import (
    ClusterClient,
    Connection,
    LeaderAndEpoch,
    LeaderOffsets,
)
from leadline_spark.errors import LeadlineSparkError
from leadline_spark.read.data_loss import DataLossChecker
from leadline_spark.read.offset_fetcher import OffsetFetcher, OffsetSnapshot
from leadline_spark.read.offsets import OffsetAndEpoch, SourceOffset
from leadline_spark.read.subscription import SourceSubscription
from tests.unit.spark.standin import Said, StandIn, stand_in

PARTITION = TopicPartition("t", 0)
STOOD = SourceOffset({PARTITION: OffsetAndEpoch(40, 1)}, {"t": "id"})


@pytest.fixture
def broker() -> Iterator[StandIn]:
    with stand_in() as one:
        yield one


def begins(broker: StandIn, start: int, *, fail: bool) -> int:
    """Return where a stream that stood at 40 in epoch 1 goes on, with a leader of epoch 3."""
    fetcher = OffsetFetcher(
        ClusterClient(Connection((broker.url,))), SourceSubscription(topics=("t",)), 5.0
    )
    snapshot = OffsetSnapshot(
        {PARTITION: "id"}, {PARTITION: LeaderOffsets(start, 50, LeaderAndEpoch(broker.url, 3))}
    )
    return DataLossChecker(fetcher, fail=fail).start_offsets(STOOD, snapshot)[PARTITION]


def test_a_partition_that_was_removed_and_added_again_is_read_from_its_beginning(
    broker: StandIn,
) -> None:
    """It has as many records as were read of the old one, and the topic's id is the same."""
    broker.answer = lambda _: Said({"epoch": -1, "end_offset": 0, "leader_epoch": 3})

    with pytest.raises(LeadlineSparkError, match="LEADLINE_DATA_LOSS"):
        begins(broker, 0, fail=True)
    assert begins(broker, 0, fail=False) == 0


def test_retention_that_took_the_epoch_in_which_all_was_read_is_no_loss(broker: StandIn) -> None:
    broker.answer = lambda _: Said({"epoch": -1, "end_offset": 40, "leader_epoch": 3})

    assert begins(broker, 40, fail=True) == 40
