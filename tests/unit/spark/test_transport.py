"""HTTP by the standard library, and the way to a leader that moves."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Iterator
from typing import Any

import pytest

from leadline_client.wire import TopicPartition
from leadline_spark.cluster import transport
from leadline_spark.cluster.cluster_client import ClusterClient, Connection
from leadline_spark.cluster.routing import Route
from leadline_spark.cluster.transport import Answer, Refusal, Unreachable, request
from leadline_spark.errors import LeadlineSparkError
from tests.support.up import until
from tests.unit.spark.standin import Asked, Said, StandIn, refusal, stand_in

PARTITION = TopicPartition("t", 0)
NOBODY = "http://127.0.0.1:9"


@pytest.fixture
def broker() -> Iterator[StandIn]:
    with stand_in() as one:
        yield one


@pytest.fixture
def other() -> Iterator[StandIn]:
    with stand_in() as one:
        yield one


def metadata(leader: str | None, topic_id: str = "id", epoch: int = 0) -> Said:
    brokers = [] if leader is None else [{"id": 1, "url": leader}]
    rows = [[0, 1 if leader else -1, epoch, [1], [1]]]
    topics = {"t": {"topic_id": topic_id, "partitions": rows}}
    return Said({"version": 1, "controller": None, "brokers": brokers, "topics": topics})


def test_a_connection_is_used_again(broker: StandIn) -> None:
    broker.answer = lambda asked: Said({"path": asked.path})

    answers = [request("GET", broker.url, f"/{n}", params={"q": "a b"}).json() for n in range(5)]

    assert answers == [{"path": f"/{n}"} for n in range(5)]
    assert broker.connections == 1
    assert broker.asked[0].params == {"q": "a b"}


def test_a_kept_connection_that_was_closed_is_no_failure(broker: StandIn) -> None:
    broker.answer = lambda _: Said({}, closes=True)

    for _ in range(3):
        request("PUT", broker.url, "/", body={"a": 1}, token="t0")  # noqa: S106 - a test's own

    assert broker.connections == 3
    assert {one.headers["authorization"] for one in broker.asked} == {"Bearer t0"}
    assert {one.headers["content-type"] for one in broker.asked} == {"application/json"}


def test_a_post_is_not_sent_into_a_connection_that_was_closed(broker: StandIn) -> None:
    """Nobody could say afterwards whether it was carried out."""
    broker.answer = lambda _: Said({}, closes=True)
    request("POST", broker.url, "/", body={})
    [kept] = transport._pool.idle["http", broker.url.removeprefix("http://")]
    until(lambda: not transport._is_quiet(kept), "the end of the connection is seen")

    request("POST", broker.url, "/", body={})

    assert broker.connections == 2


def test_bytes_go_as_octets(broker: StandIn) -> None:
    broker.answer = lambda asked: Said(asked.body[::-1])

    assert request("POST", broker.url, "/", body=memoryview(b"abc")).body == b"cba"
    assert broker.asked[0].headers["content-type"] == "application/octet-stream"


def test_a_refusal_says_what_the_house_format_says(broker: StandIn) -> None:
    broker.answer = lambda _: refusal(421, 42150, retriable=True, leader={"url": "http://b"})

    with pytest.raises(Refusal, match="refused by 42150") as caught:
        request("GET", broker.url, "/")

    refused: Refusal = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 - made above
    assert (refused.status, refused.error_code, refused.retriable) == (421, 42150, True)
    assert refused.details == {"leader": {"url": "http://b"}}


@pytest.mark.parametrize(("status", "outcome"), [(500, "unknown"), (404, "refused")])
def test_an_error_of_another_format_is_unknown_from_500_on(
    broker: StandIn, status: int, outcome: str
) -> None:
    broker.answer = lambda _: Said(b"<html>", status)

    with pytest.raises(Refusal) as caught:
        request("GET", broker.url, "/")

    assert (caught.value.outcome, caught.value.error_code) == (outcome, status)


def test_what_was_never_sent_was_not_done() -> None:
    with pytest.raises(Unreachable) as caught:
        request("POST", NOBODY, "/", body={})

    assert caught.value.outcome == "refused"


def test_a_forked_process_leaves_its_parent_s_connections_alone(broker: StandIn) -> None:
    """As Spark forks its workers: two that read from one socket would share the answers out."""
    broker.answer = lambda _: Said({})
    request("GET", broker.url, "/")
    assert broker.connections == 1

    child = os.fork()
    if not child:
        try:
            request("GET", broker.url, "/")
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert broker.connections == 2
    request("GET", broker.url, "/")
    assert broker.connections == 2


def test_any_bootstrap_address_is_enough(broker: StandIn) -> None:
    broker.answer = lambda _: metadata(broker.url)
    cluster = ClusterClient(Connection((NOBODY, broker.url)))

    assert cluster.metadata(["t"]).leader(PARTITION).url == broker.url
    with pytest.raises(LeadlineSparkError, match="LEADLINE_CLUSTER_UNREACHABLE"):
        ClusterClient(Connection((NOBODY,))).metadata(["t"])


def test_a_broker_has_longer_to_look_up_many_times(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[float] = []

    def asked(*arguments: Any) -> Answer:
        given.append(arguments[6])
        told = {"version": 1, "brokers": [{"id": 1, "url": NOBODY}], "topics": {}}
        return Answer(200, {}, json.dumps({**told, "partitions": []}).encode())

    monkeypatch.setattr(transport, "request", asked)
    cluster = ClusterClient(Connection((NOBODY,)))
    cluster.metadata(["t"])
    for number in (1, 1_000):
        cluster.offsets({"partitions": [{"topic": "t", "partition": 0, "timestamp": 5}] * number})

    _, few, many = given
    assert few < 11.0
    assert many > 30.0


def test_who_answered_last_is_asked_first_though_the_metadata_is_read_anew(
    broker: StandIn, other: StandIn
) -> None:
    """Or a frozen broker would be waited for again after every look at the metadata."""

    def answer(asked: Asked) -> Said:
        brokers = [{"id": 1, "url": broker.url}, {"id": 2, "url": other.url}]
        document: dict[str, object] = {
            "version": 1,
            "controller": None,
            "brokers": brokers,
            "topics": {},
        }
        return Said({"partitions": []}) if asked.path == "/v1/offsets" else Said(document)

    other.answer = answer
    broker.answer = lambda asked: (
        refusal(503, 50351, retriable=True) if asked.path == "/v1/offsets" else answer(asked)
    )
    cluster = ClusterClient(Connection((broker.url,)))

    for _ in range(3):
        cluster.metadata(["t"])
        assert cluster.offsets({"topics": ["t"]}) == {}

    assert [asked.path for asked in broker.asked] == ["/v1/metadata", "/v1/offsets"]


def test_a_leader_is_found_by_hints_and_by_metadata(broker: StandIn, other: StandIn) -> None:
    hint = {"url": other.url, "epoch": 2, "id": 2}
    broker.answer = lambda _: refusal(421, 42150, retriable=True, leader=hint)
    other.answer = lambda _: Said({"led": True})
    route = Route(ClusterClient(Connection((broker.url,))), PARTITION, broker.url)

    assert route.ask(lambda url: request("GET", url, "/").json()) == {"led": True}
    assert (len(broker.asked), len(other.asked)) == (1, 1)

    broker.answer = lambda _: metadata(other.url)
    route = Route(ClusterClient(Connection((broker.url,))), PARTITION, NOBODY)
    assert route.ask(lambda url: request("GET", url, "/").json()) == {"led": True}


def test_two_that_name_each_other_are_not_followed_for_ever(
    broker: StandIn, other: StandIn
) -> None:
    def points_to(there: StandIn, asked: Asked) -> Said:
        if asked.path == "/v1/metadata":
            return metadata(None)
        return refusal(421, 42150, retriable=True, leader={"url": there.url})

    broker.answer = lambda asked: points_to(other, asked)
    other.answer = lambda asked: points_to(broker, asked)
    route = Route(ClusterClient(Connection((broker.url,))), PARTITION, broker.url, deadline_s=0.5)

    with pytest.raises(LeadlineSparkError, match=r"LEADLINE_LEADER_UNREACHABLE.*has no leader"):
        route.ask(lambda url: request("GET", url, "/x"))
    assert len(broker.asked) + len(other.asked) < 20


def test_what_no_leader_would_do_is_refused_at_once(broker: StandIn) -> None:
    broker.answer = lambda _: refusal(416, 41650)
    route = Route(ClusterClient(Connection((broker.url,))), PARTITION, broker.url)

    with pytest.raises(Refusal, match="41650"):
        route.ask(lambda url: request("GET", url, "/"))
    assert len(broker.asked) == 1


def test_a_topic_made_anew_is_not_taken_for_the_old_one(broker: StandIn) -> None:
    broker.answer = lambda _: metadata(broker.url, topic_id="new")
    route = Route(ClusterClient(Connection((broker.url,))), PARTITION, None, topic_id="old")

    with pytest.raises(LeadlineSparkError, match="LEADLINE_TOPIC_RECREATED"):
        route.ask(lambda url: request("GET", url, "/"))
