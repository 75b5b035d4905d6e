"""Requests to any node, and to the leader of a partition that moves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing

import pytest

from leadline_client.errors import ClusterChanged, ConnectionLost, LeadlineError, OffsetOutOfRange
from leadline_client.stdlib_transport import StdlibTransport
from leadline_client.transport import TOO_SLOW, Request, Response
from leadline_client.wire import TopicPartition
from leadline_spark.cluster import cluster_client, leader_client, waiting
from leadline_spark.cluster.cluster_client import ClusterClient, Connection, document, leader_url
from leadline_spark.cluster.leader_client import LeaderClient
from leadline_spark.cluster.waiting import until_answered
from leadline_spark.errors import LeadlineSparkError
from tests.unit.client.test_slow_answers import ENDLESS, Dripping
from tests.unit.spark import standin
from tests.unit.spark.standin import Asked, Said, StandIn, refusal, stand_in

PARTITION = TopicPartition("t", 0)
NOBODY = "http://127.0.0.1:9"


@pytest.fixture
def broker() -> Iterator[StandIn]:
    with stand_in() as one:
        yield one


def test_an_answer_that_never_ends_does_not_hold_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_client, "_WHOLE_ANSWER", 1)
    with closing(Dripping()) as server:
        server.begin = ENDLESS["a body of a stated length"]
        cluster = ClusterClient(Connection((server.url,), timeout_s=0.5))
        with pytest.raises(ConnectionLost, match=TOO_SLOW):
            cluster.call("GET", server.url, "/")


@pytest.fixture
def other() -> Iterator[StandIn]:
    with stand_in() as one:
        yield one


def metadata(leader: str | None, topic_id: str = "id", epoch: int = 0) -> Said:
    rows = [[0, 1 if leader else -1, epoch, [1], [1]]]
    return standin.metadata({1: leader} if leader else {}, {"t": (topic_id, rows)})


def led_by(broker: StandIn, leader: str | None, deadline_s: float = 60.0) -> LeaderClient:
    """A client that knows the cluster by `broker`, and tries `leader` first."""
    return LeaderClient(
        ClusterClient(Connection((broker.url,))), PARTITION, leader, deadline_s=deadline_s
    )


def test_a_request_carries_its_parameters_and_the_token(broker: StandIn) -> None:
    broker.answer = lambda asked: Said({"path": asked.path})
    cluster = ClusterClient(Connection((broker.url,), token="t0"))  # noqa: S106 - a test's own

    answers = [
        document(cluster.call("POST", broker.url, f"/{n}", {"q": "a b"}, {"a": 1}))
        for n in range(5)
    ]

    assert answers == [{"path": f"/{n}"} for n in range(5)]
    assert broker.connections == 1
    assert broker.asked[0].params == {"q": "a b"}
    assert {one.headers["authorization"] for one in broker.asked} == {"Bearer t0"}
    assert {one.headers["content-type"] for one in broker.asked} == {"application/json"}


def test_defect_09_another_cluster_at_the_addresses_is_an_error(broker: StandIn) -> None:
    broker.answer = lambda _: metadata(broker.url)
    cluster = ClusterClient(Connection((broker.url,)))
    known = cluster.metadata().cluster_id

    replaced = Said({**metadata(broker.url).body, "cluster_id": "other"})
    broker.answer = lambda _: replaced
    with pytest.raises(LeadlineSparkError, match=f"LEADLINE_CLUSTER_CHANGED.*{known}.*other"):
        cluster.metadata()

    refused = Said(ClusterChanged.between(known, "other").body(), ClusterChanged.code // 100)
    broker.answer = lambda _: refused
    with pytest.raises(LeadlineSparkError, match=f"LEADLINE_CLUSTER_CHANGED.*{known}.*other"):
        cluster.call("GET", broker.url, "/v1/load")
    assert broker.asked[-1].headers["x-leadline-cluster-id"] == known


def test_bytes_go_as_octets(broker: StandIn) -> None:
    broker.answer = lambda asked: Said(asked.body[::-1])
    cluster = ClusterClient(Connection((broker.url,)))

    assert cluster.call("POST", broker.url, "/", body=b"abc").body == b"cba"
    assert broker.asked[0].headers["content-type"] == "application/octet-stream"


@pytest.mark.parametrize(("status", "outcome"), [(500, "unknown"), (404, "refused")])
def test_an_error_of_another_format_is_unknown_from_500_on(
    broker: StandIn, status: int, outcome: str
) -> None:
    broker.answer = lambda _: Said(b"<html>", status)

    with pytest.raises(LeadlineError) as caught:
        ClusterClient(Connection((broker.url,))).call("GET", broker.url, "/")

    assert caught.value.outcome == outcome


def test_any_bootstrap_address_is_enough(broker: StandIn) -> None:
    broker.answer = lambda _: metadata(broker.url)
    cluster = ClusterClient(Connection((NOBODY, broker.url)))

    assert leader_url(cluster.metadata(["t"]), PARTITION) == broker.url
    with pytest.raises(LeadlineSparkError, match="LEADLINE_CLUSTER_UNREACHABLE"):
        ClusterClient(Connection((NOBODY,))).metadata(["t"])


def test_metadata_of_more_topics_than_a_url_holds_is_chosen_from_that_of_all(
    broker: StandIn,
) -> None:
    names = [f"{'n' * 60}.{number}" for number in range(200)]
    rows = {name: ("id", [[0, 1, 0, [1], [1]]]) for name in [*names[:150], "other"]}
    broker.answer = lambda _: standin.metadata({1: broker.url}, rows)
    cluster = ClusterClient(Connection((broker.url,)))
    assert cluster.metadata(names).topics.keys() == set(names[:150])
    assert [asked.params for asked in broker.asked] == [{}]


def test_an_address_that_answers_in_another_format_is_passed_over(
    broker: StandIn, other: StandIn
) -> None:
    """As a proxy does whose server is away."""
    broker.answer = lambda _: Said(b"<html>", 502)
    other.answer = lambda _: metadata(other.url)

    cluster = ClusterClient(Connection((broker.url, other.url)))

    assert leader_url(cluster.metadata(["t"]), PARTITION) == other.url


def test_a_broker_has_longer_to_look_up_many_times(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[float] = []

    def send(_: StdlibTransport, request: Request) -> Response:
        given.append(request.timeout_s)
        if request.url.endswith("/v1/metadata"):
            return Response(200, {}, json.dumps(standin.metadata({1: NOBODY}, {}).body).encode())
        return Response(200, {}, b'{"partitions":[]}')

    monkeypatch.setattr(StdlibTransport, "send", send)
    cluster = ClusterClient(Connection((NOBODY,)))
    cluster.metadata(["t"])
    for number in (1, 1_000):
        cluster.offsets({"partitions": [{"topic": "t", "partition": 0, "timestamp": 5}] * number})

    _, few, many = given
    assert few < 11.0
    assert many > 30.0


def test_who_answered_last_is_asked_first_though_the_metadata_is_read_again(
    broker: StandIn, other: StandIn
) -> None:
    """Or a frozen broker would be waited for again after every look at the metadata."""

    def answer(asked: Asked) -> Said:
        document = standin.metadata({1: broker.url, 2: other.url}, {})
        return Said({"partitions": []}) if asked.path == "/v1/offsets" else document

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

    assert document(led_by(broker, broker.url).request("GET", "x")) == {"led": True}
    assert (len(broker.asked), len(other.asked)) == (1, 1)
    assert other.asked[0].path == "/v1/topics/t/partitions/0/x"

    broker.answer = lambda _: metadata(other.url)
    assert document(led_by(broker, NOBODY).request("GET", "x")) == {"led": True}


def test_two_that_name_each_other_are_not_followed_for_ever(
    broker: StandIn, other: StandIn
) -> None:
    def points_to(there: StandIn, asked: Asked) -> Said:
        if asked.path == "/v1/metadata":
            return metadata(None)
        hint = {"url": there.url, "epoch": 2, "id": 2}
        return refusal(421, 42150, retriable=True, leader=hint)

    broker.answer = lambda asked: points_to(other, asked)
    other.answer = lambda asked: points_to(broker, asked)
    client = led_by(broker, broker.url, deadline_s=0.5)

    with pytest.raises(LeadlineSparkError, match=r"LEADLINE_LEADER_UNREACHABLE.*has no leader"):
        client.request("GET", "x")
    assert len(broker.asked) + len(other.asked) < 20


def test_what_no_leader_would_do_is_refused_at_once(broker: StandIn) -> None:
    broker.answer = lambda _: refusal(416, 41650)
    client = led_by(broker, broker.url)

    with pytest.raises(OffsetOutOfRange) as refused:
        client.request("GET", "x")
    assert len(broker.asked) == 1
    assert "41650: refused by 41650" in str(client.refused(refused.value))


def test_a_topic_recreated_is_not_taken_for_the_old_one(broker: StandIn) -> None:
    broker.answer = lambda _: metadata(broker.url, topic_id="new")
    cluster = ClusterClient(Connection((broker.url,)))

    with pytest.raises(LeadlineSparkError, match="LEADLINE_TOPIC_RECREATED"):
        LeaderClient(cluster, PARTITION, topic_id="old").request("GET", "x")


class Clock:
    """Stands in for the module `time`: it moves only when somebody sleeps."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    for module in (cluster_client, leader_client, waiting):
        monkeypatch.setattr(module, "time", made)
    return made


def over_quota(seconds: str) -> Said:
    said = refusal(429, 42950, retriable=True)
    return Said(said.body, said.status, {"Retry-After": seconds})


def test_a_request_over_the_quota_waits_as_long_as_the_broker_asks(
    broker: StandIn, clock: Clock
) -> None:
    answers = [over_quota("7"), metadata(None)]
    broker.answer = lambda _: answers.pop(0)
    ClusterClient(Connection((broker.url,))).metadata()
    assert 7 <= clock.now_s < 9


def test_a_leader_over_the_quota_is_asked_again_after_that(broker: StandIn, clock: Clock) -> None:
    answers = [over_quota("7"), Said({"end_offset": 3})]
    broker.answer = lambda asked: (
        metadata(broker.url) if asked.path == "/v1/metadata" else answers.pop(0)
    )
    assert led_by(broker, broker.url).end_of_epoch(1) == 3
    assert 7 <= clock.now_s < 9


def test_a_wait_for_the_quota_that_is_too_long_is_an_error_at_once(
    broker: StandIn, clock: Clock
) -> None:
    broker.answer = lambda asked: (
        metadata(broker.url) if asked.params.get("topics") == PARTITION.topic else over_quota("90")
    )
    with pytest.raises(LeadlineSparkError, match="42950"):
        ClusterClient(Connection((broker.url,))).metadata()
    with pytest.raises(LeadlineSparkError, match="42950"):
        led_by(broker, broker.url).end_of_epoch(1)
    assert clock.now_s == 0


@pytest.mark.parametrize("known", [True, False])
def test_brokers_that_are_all_down_are_waited_for_where_the_address_is_known(
    clock: Clock, known: bool
) -> None:
    failures = [LeadlineSparkError("LEADLINE_CLUSTER_UNREACHABLE", "down")] * 3

    def call() -> str:
        if failures:
            raise failures.pop()
        return "up"

    if known:
        assert until_answered(call, 60.0, known=True) == "up"
    else:
        with pytest.raises(LeadlineSparkError, match="CLUSTER_UNREACHABLE"):
            until_answered(call, 60.0, known=False)
        assert clock.now_s == 0.0


def test_brokers_that_stay_down_are_an_error_at_the_deadline(clock: Clock) -> None:
    def call() -> None:
        raise LeadlineSparkError("LEADLINE_CLUSTER_UNREACHABLE", "down")

    with pytest.raises(LeadlineSparkError, match="CLUSTER_UNREACHABLE"):
        until_answered(call, 60.0, known=True)
    assert 60.0 <= clock.now_s < 61.0
