"""Validation of new topics, as a table of refusals."""

from __future__ import annotations

from typing import Any

import pytest

from leadline_client.errors import (
    InvalidRequest,
    LeadlineError,
    PolicyViolation,
    TopicDeletionPending,
    UnknownTopic,
)
from leadline_client.wire import NewTopic
from leadline_controller.domain.cluster import BrokerUp, ClusterImage, DeletionPending
from leadline_controller.domain.topics import (
    check_may_create,
    check_topic_name,
    check_topic_size,
    find_topic,
    plan_assignment,
)
from tests.unit.controller.images import TOPIC, broker, cluster


@pytest.mark.parametrize("name", ["a", "A-1_b.c", "x" * 249, "...", "--"])
def test_names_that_are_allowed(name: str) -> None:
    check_topic_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "-", "x" * 250, "a b", "a/b", "ü", "a\n"])
def test_names_that_are_not(name: str) -> None:
    with pytest.raises(PolicyViolation):
        check_topic_name(name)


def test_a_taken_name_is_refused_and_a_name_being_deleted_retriable() -> None:
    image = cluster((1,), {0: (1,)})
    with pytest.raises(PolicyViolation, match="already exists"):
        check_may_create(image, TOPIC)
    image.apply([DeletionPending(TOPIC)])
    with pytest.raises(TopicDeletionPending):
        check_may_create(image, TOPIC)
    with pytest.raises(UnknownTopic):
        find_topic(image, TOPIC)
    check_may_create(image, "other")


def plan(image: ClusterImage, known: tuple[int, ...] = (1, 2, 3), **given: Any) -> Any:
    return plan_assignment(
        NewTopic("new", **given),
        image,
        known,
        default_partitions=2,
        default_replication_factor=3,
        start_index=0,
        shift=0,
    )


def test_defaults_are_capped_by_the_live_brokers() -> None:
    assert plan(cluster((1, 2), {})) == {0: (1, 2), 1: (2, 1)}
    assert plan(cluster((1, 2, 3), {}), partitions=1) == {0: (1, 2, 3)}


def test_racks_count_only_where_every_broker_has_one() -> None:
    image = ClusterImage()
    image.apply(BrokerUp(broker(b, rack=rack)) for b, rack in [(1, "a"), (2, "a"), (3, "b")])
    racked = plan(image, partitions=6, replication_factor=2)
    assert all(3 in replicas for replicas in racked.values())
    image.apply([BrokerUp(broker(4))])
    mixed = plan(image, partitions=4, replication_factor=2)
    assert [replicas[0] for replicas in mixed.values()] == [1, 2, 3, 4]


def test_an_assignment_may_name_brokers_that_are_down() -> None:
    given = {1: (2, 9), 0: (9, 1)}
    assert plan(cluster((1,), {}), (1, 2, 9), replica_assignment=given) == given


@pytest.mark.parametrize(
    ("given", "problem", "words"),
    [
        pytest.param({"partitions": 0}, PolicyViolation, "partitions", id="no-partitions"),
        pytest.param(
            {"replication_factor": 4}, PolicyViolation, "available brokers", id="too-many-replicas"
        ),
        pytest.param({"replica_assignment": {}}, PolicyViolation, "gaps", id="empty"),
        pytest.param({"replica_assignment": {1: (1,)}}, PolicyViolation, "gaps", id="from-1"),
        pytest.param({"replica_assignment": {0: ()}}, PolicyViolation, "no replicas", id="none"),
        pytest.param({"replica_assignment": {0: (1, 1)}}, PolicyViolation, "twice", id="twice"),
        pytest.param(
            {"replica_assignment": {0: (1,), 1: (1, 2)}}, PolicyViolation, "replicas", id="uneven"
        ),
        pytest.param(
            {"replica_assignment": {0: (1, 7)}}, PolicyViolation, "never registered", id="stranger"
        ),
        pytest.param(
            {"replica_assignment": {0: (1,)}, "partitions": 2},
            InvalidRequest,
            "partitions is 2",
            id="contradicting-count",
        ),
        pytest.param(
            {"replica_assignment": {0: (1,)}, "replication_factor": 2},
            InvalidRequest,
            "replication_factor is 2",
            id="contradicting-factor",
        ),
    ],
)
def test_refusals(given: dict[str, Any], problem: type[LeadlineError], words: str) -> None:
    with pytest.raises(problem, match=words):
        plan(cluster((1, 2, 3), {}), **given)


def test_without_brokers_nothing_can_be_placed() -> None:
    with pytest.raises(PolicyViolation, match="no broker is live"):
        plan(cluster((), {}))


def test_a_topic_that_cannot_fit_into_its_node_is_refused_before_it_is_placed() -> None:
    check_topic_size(150_000, 3)
    with pytest.raises(PolicyViolation, match="450000"):
        check_topic_size(150_001, 3)
