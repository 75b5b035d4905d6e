"""Metadata never goes backwards, partition by partition (rule R15)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline_client.cache import MetadataCache
from leadline_client.errors import ClusterChanged, LeaderHint
from leadline_client.wire import BrokerInfo, Metadata, PartitionInfo, TopicInfo

BROKERS = {n: BrokerInfo(n, f"http://b{n}", None, 1) for n in (1, 2, 3)}


def document(
    version: int, leader: int, epoch: int, *, topic_id: str = "a", isr: tuple[int, ...] = (1,)
) -> Metadata:
    row = PartitionInfo(0, leader, epoch, isr, (1, 2, 3))
    return Metadata("c", version, None, BROKERS, {"t": TopicInfo("t", topic_id, (row,))})


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 10), st.booleans()), min_size=1))
def test_the_highest_known_leader_epoch_never_falls(
    heard: list[tuple[int, int, bool]],
) -> None:
    cache, highest = MetadataCache(), -1
    for version, epoch, as_hint in heard:
        leader = 1 + epoch % 3  # As in a cluster: an epoch has one leader.
        if as_hint:
            cache.apply_hint("t", 0, LeaderHint(leader, f"http://b{leader}", epoch))
        else:
            cache.update(document(version, leader, epoch))
        highest = max(highest, epoch)
        assert cache.leader_epoch("t", 0) == highest
        assert cache.leader_url("t", 0) == f"http://b{1 + highest % 3}"


def test_within_an_epoch_the_newer_document_knows_the_isr() -> None:
    cache = MetadataCache()
    cache.update(document(5, 1, 2, isr=(1, 2)))
    cache.update(document(4, 1, 2, isr=(1, 2, 3)))
    row = cache.partition("t", 0)
    assert row is not None
    assert row.isr == (1, 2)


def test_a_hint_to_a_newer_leader_is_followed_and_an_equal_one_is_not() -> None:
    cache = MetadataCache()
    cache.update(document(1, 1, 4))
    assert not cache.apply_hint("t", 0, LeaderHint(1, "http://b1", 4))
    assert not cache.apply_hint("t", 0, LeaderHint(3, "http://b3", 3))
    assert cache.leader_url("t", 0) == "http://b1"
    assert cache.apply_hint("t", 0, LeaderHint(2, "http://b2", 5))
    assert cache.leader_url("t", 0) == "http://b2"


def test_a_snapshot_of_a_document_that_lags_has_the_newer_brokers() -> None:
    cache = MetadataCache()
    cache.update(document(5, 1, 2))
    stale = replace(document(4, 1, 2), brokers={})
    cache.update(stale)
    assert cache.snapshot(stale).brokers == BROKERS


def test_a_hint_without_a_leader_changes_nothing() -> None:
    cache = MetadataCache()
    cache.update(document(1, 1, 4))
    assert not cache.apply_hint("t", 0, LeaderHint(-1, "", 9))
    assert cache.leader_epoch("t", 0) == 4


def test_a_topic_created_again_starts_with_new_epochs() -> None:
    cache = MetadataCache()
    cache.update(document(5, 1, 9))
    cache.update(document(4, 2, 0, topic_id="older"))
    assert cache.leader_epoch("t", 0) == 9
    cache.update(document(6, 2, 0, topic_id="newer"))
    assert (cache.leader_epoch("t", 0), cache.leader_url("t", 0)) == (0, "http://b2")


def test_a_deleted_topic_is_forgotten_only_by_a_newer_document_that_was_asked_for_it() -> None:
    cache = MetadataCache()
    cache.update(document(5, 1, 1))
    cache.update(Metadata("c", 4, None, BROKERS, {}))
    cache.update(Metadata("c", 6, None, BROKERS, {}), asked=["other"])
    assert cache.topic("t") is not None
    cache.update(Metadata("c", 6, None, BROKERS, {}), asked=["t"])
    assert cache.topic("t") is None


def test_a_removed_partition_is_forgotten_only_by_a_newer_document() -> None:
    cache = MetadataCache()
    one = document(5, 1, 2)
    rows = (*one.topics["t"].partitions, PartitionInfo(1, 2, 3, (2,), (2,)))
    cache.update(replace(one, topics={"t": TopicInfo("t", "a", rows)}))
    cache.apply_hint("t", 1, LeaderHint(3, "http://b3", 4))
    cache.update(document(4, 1, 2))
    assert cache.leader_url("t", 1) == "http://b3"
    cache.update(document(6, 1, 2))
    assert cache.partition("t", 1) is None
    assert cache.leader_url("t", 1) is None


def test_a_document_of_another_cluster_changes_nothing() -> None:
    """Its epochs say nothing about those of this one, however high they are."""
    cache = MetadataCache()
    cache.update(document(5, leader=1, epoch=2))

    with pytest.raises(ClusterChanged):
        cache.update(replace(document(9, leader=2, epoch=7), cluster_id="another"))

    assert (cache.cluster_id, cache.leader_epoch("t", 0)) == ("c", 2)


@pytest.mark.parametrize("known_before", [True, False])
def test_a_hint_about_an_earlier_topic_of_the_name_does_not_stay(*, known_before: bool) -> None:
    """Its epoch may never be reached, and each request that states it would be refused."""
    cache, hint = MetadataCache(), LeaderHint(3, "http://b3", 7, "older")
    if known_before:
        cache.update(document(5, 1, 0, topic_id="newer"))
    assert cache.apply_hint("t", 0, hint) is not known_before
    cache.update(document(5, 1, 0, topic_id="newer"))
    assert (cache.leader_epoch("t", 0), cache.leader_url("t", 0)) == (0, "http://b1")


@pytest.mark.parametrize("topic_id", ["a", ""])
def test_a_hint_about_the_same_topic_or_of_an_earlier_release_stays(topic_id: str) -> None:
    cache = MetadataCache()
    cache.update(document(5, 1, 0))
    assert cache.apply_hint("t", 0, LeaderHint(3, "http://b3", 7, topic_id))
    cache.update(document(6, 1, 0))
    assert (cache.leader_epoch("t", 0), cache.leader_url("t", 0)) == (7, "http://b3")
