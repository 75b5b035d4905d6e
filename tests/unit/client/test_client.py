"""Clients against brokers that refuse, move, hang up and lag (rule R15)."""

from __future__ import annotations

import re
from typing import Any

import pytest

from leadline_client.client import AsyncClient, Client
from leadline_client.errors import (
    AllKnownBrokersNotAvailable,
    ConnectionLost,
    LeaderHint,
    NotEnoughReplicas,
    OffsetOutOfRange,
    OutcomeUnknown,
    UnknownPartition,
    UnknownTopic,
    Unreachable,
    error_from_body,
)
from leadline_client.payloads import OutgoingRecord
from leadline_client.retry import RetryPolicy
from leadline_client.wire import BrokerInfo, Metadata, NewTopic
from tests.unit.client.standin import StandInCluster

HINT: dict[str, Any] = {"id": 1, "url": "u", "epoch": 2}
HASTY = RetryPolicy(timeout_s=0.5, unknown_topic_s=0.1, first_pause_s=0.005)
PATIENT = RetryPolicy(timeout_s=5.0, first_pause_s=0.005, longest_pause_s=0.01)
RECORDS = [OutgoingRecord(b"one"), OutgoingRecord(b"two")]


def test_records_go_to_the_leader_of_each_partition_and_come_back(cluster: StandInCluster) -> None:
    with Client(cluster.bootstrap[0]) as client:
        for partition in cluster.partitions:
            result = client.produce("t", partition, RECORDS)
            assert (result.base_offset, result.count) == (0, 2)
            fetched = client.fetch("t", partition, 1)
            assert [one.offset for one in fetched.records] == [1]
            assert client.offsets("t", partition).high_watermark == 2


def test_addresses_may_be_written_as_for_kafka(cluster: StandInCluster) -> None:
    plain = ",".join(url.removeprefix("http://") for url in cluster.bootstrap)
    with Client(plain) as client:
        assert len(client.brokers()) == 3


def test_more_topics_than_a_url_holds_can_be_asked_for(cluster: StandInCluster) -> None:
    names = [f"{'n' * 60}.{number}" for number in range(1_500)]
    with Client(cluster.bootstrap) as client:
        assert client.metadata([*names, "t"]).topics.keys() == {"t"}
        assert client.metadata(names).topics == {}


async def test_the_asynchronous_client_does_the_same(cluster: StandInCluster) -> None:
    async with AsyncClient(cluster.bootstrap) as client:
        assert (await client.produce("t", 1, RECORDS)).base_offset == 0
        assert (await client.describe("t")).topic_id == "id-1"
        assert [one.id for one in await client.brokers()] == [1, 2, 3]


def test_a_leader_hint_is_followed_without_a_metadata_request(cluster: StandInCluster) -> None:
    with Client(cluster.bootstrap) as client:
        client.metadata()
        cluster.move(0, leader=3)
        cluster.requests.clear()
        client.produce("t", 0, RECORDS)
        assert cluster.requests["metadata"] == 0
        assert client.core.cache.leader_epoch("t", 0) == 1


def test_metadata_of_a_lagging_broker_does_not_restore_an_old_leader(
    cluster: StandInCluster,
) -> None:
    before = cluster.metadata()
    cluster.move(0, leader=2)
    with Client(cluster.bootstrap) as client:
        client.metadata()
        cluster.stale_metadata = before
        snapshot = client.metadata()
        assert snapshot.topics["t"].partitions[0].leader == 2
        assert snapshot.version == cluster.version


@pytest.mark.parametrize("first", [0, 1, 2])
def test_a_leader_that_is_cut_off_and_names_itself_does_not_hold_clients(
    cluster: StandInCluster, first: int
) -> None:
    """It answers, and never hears of its successor; every other broker knows it."""
    cluster.cut_off[1] = cluster.metadata()
    with Client(cluster.bootstrap, policy=PATIENT) as client:
        client.core._any_broker._turn = first
        client.core.cache.update(Metadata.from_json(cluster.metadata()))
        cluster.move(0, leader=2)
        assert client.produce("t", 0, RECORDS).leader_epoch == 1


def test_a_dead_broker_is_skipped(cluster: StandInCluster) -> None:
    with Client(cluster.bootstrap) as client:
        client.metadata()
        cluster.kill(1)
        cluster.move(0, leader=2)
        assert client.produce("t", 0, RECORDS).leader_epoch == 1
        assert len(client.list_topics()) == 1


def test_a_definite_refusal_is_retried_until_it_ends(cluster: StandInCluster) -> None:
    cluster.partitions[0].faults.extend([NotEnoughReplicas("2 of 3")] * 3)
    with Client(cluster.bootstrap) as client:
        assert client.produce("t", 0, RECORDS).base_offset == 0
    assert cluster.partitions[0].appends == 4


def test_a_refusal_that_does_not_end_is_raised_as_refused(cluster: StandInCluster) -> None:
    cluster.partitions[0].faults.extend([NotEnoughReplicas("2 of 3")] * 1000)
    with (
        Client(cluster.bootstrap, policy=HASTY) as client,
        pytest.raises(NotEnoughReplicas),
    ):
        client.produce("t", 0, RECORDS)
    assert cluster.values(0) == []


def test_an_unknown_outcome_is_never_repeated_for_a_plain_produce(cluster: StandInCluster) -> None:
    cluster.partitions[0].faults.append("append, then hang up")
    with Client(cluster.bootstrap) as client, pytest.raises(ConnectionLost):
        client.produce("t", 0, RECORDS)
    assert len(cluster.values(0)) == 2
    assert cluster.partitions[0].appends == 1


def test_an_unknown_outcome_is_repeated_if_the_caller_accepts_duplicates(
    cluster: StandInCluster,
) -> None:
    cluster.partitions[0].faults.append("append, then hang up")
    with Client(cluster.bootstrap) as client:
        assert client.produce("t", 0, RECORDS, retry_unknown=True).base_offset == 2


def test_creating_a_topic_is_repeated_with_its_key_after_a_lost_answer(
    cluster: StandInCluster,
) -> None:
    with Client(cluster.bootstrap) as client:
        for number in (1, 2):
            assert client.create_topic(NewTopic("new", 1, 1)) == {"name": "new"}
            assert cluster.requests["create"] == 2 * number
    assert None not in cluster.keys
    assert len({*cluster.keys}) == 2


def test_a_change_without_a_key_is_not_repeated_after_a_lost_answer(
    cluster: StandInCluster,
) -> None:
    with Client(cluster.bootstrap) as client, pytest.raises(OutcomeUnknown):
        client.administer("POST", "/v1/topics", {"name": "new"})
    assert cluster.keys == [None]


def test_a_dry_run_needs_no_key_to_be_repeated(cluster: StandInCluster) -> None:
    with Client(cluster.bootstrap, policy=HASTY) as client, pytest.raises(OutcomeUnknown):
        client.create_topic(NewTopic("new", 1, 1), dry_run=True)
    assert {*cluster.keys} == {None}
    assert len(cluster.keys) > 1


def test_errors_name_the_missing_topic_partition_or_offset(cluster: StandInCluster) -> None:
    with Client(cluster.bootstrap, policy=HASTY) as client:
        with pytest.raises(UnknownTopic):
            client.describe("nowhere")
        with pytest.raises(UnknownTopic):
            client.produce("nowhere", 0, RECORDS)
        with pytest.raises(UnknownPartition, match="has 3 partitions"):
            client.fetch("t", 9, 0)
        with pytest.raises(OffsetOutOfRange):
            client.fetch("t", 0, 99)


def test_an_address_where_nobody_listens_is_a_definite_failure() -> None:
    address = "127.0.0.1:1"
    with Client(address, policy=HASTY) as client:
        with pytest.raises(AllKnownBrokersNotAvailable, match=re.escape(address)) as told:
            client.create_topic(NewTopic("t", 1, 1))
        assert isinstance(told.value.__cause__, Unreachable)


def test_unknown_members_of_a_later_release_are_ignored() -> None:
    more = {"error_code": 42150, "outcome": "refused", "leader": {"rack": "r"} | HINT}
    assert error_from_body(421, more).leader == LeaderHint(**HINT)
    assert error_from_body(421, {"error_code": 42150, "leader": {"id": 1}}).leader is None
    rows = [{"id": 1, "url": "u", "rack": None, "incarnation": 1, "state": "new"}]
    document = {"cluster_id": "c", "version": 1, "brokers": rows, "topics": {}}
    assert Metadata.from_json(document).brokers == {1: BrokerInfo(1, "u", None, 1)}


def test_an_unreachable_cluster_is_a_definite_failure(cluster: StandInCluster) -> None:
    for broker in (1, 2, 3):
        cluster.kill(broker)
    with Client(cluster.bootstrap, policy=HASTY) as client:
        with pytest.raises(AllKnownBrokersNotAvailable):
            client.create_topic(NewTopic("new", 1, 1))
        with pytest.raises(AllKnownBrokersNotAvailable):
            client.produce("t", 0, RECORDS)


def test_dead_brokers_are_skipped_before_the_first_pause(cluster: StandInCluster) -> None:
    never_again = RetryPolicy(timeout_s=0.0)
    for broker in (1, 2):
        cluster.kill(broker)
    with Client(cluster.bootstrap, policy=never_again) as client:
        assert len(client.list_topics()) == 1
