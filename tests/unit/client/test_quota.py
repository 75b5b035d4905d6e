"""A client that is over its quota waits as long as the server asks, and tries nobody else."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from leadline_client.core import ClientCore
from leadline_client.errors import LeadlineError, QuotaExceeded
from leadline_client.flows import Flow, drive
from leadline_client.payloads import OutgoingRecord
from leadline_client.retry import RetryPolicy
from leadline_client.transport import Request, Response

ONE, TWO = "http://one", "http://two"
REFUSED = {"error_code": 42950, "message": "too many bytes", "outcome": "refused"}
"""The body of a service; a proxy has none."""
NO_LEADER = {"error_code": 50351, "message": "no leader", "outcome": "refused"}

METADATA = {
    "cluster_id": "c",
    "version": 1,
    "controller": None,
    "brokers": [
        {"id": number, "url": url, "rack": None, "incarnation": 1}
        for number, url in ((1, ONE), (2, TWO))
    ],
    "topics": {"t": {"topic_id": "id", "partitions": [[0, 1, 1, [1, 2], [1, 2]]]}},
}


def over_quota(wait: str | None, body: object = REFUSED) -> Response:
    headers = {} if wait is None else {"retry-after": wait}
    return Response(429, headers, json.dumps(body).encode() if body else b"")


class World:
    """Two brokers, of which the first one leads, and a clock that moves only when a client waits.

    `throttled`: what the next requests at a path that ends so are refused with.
    """

    def __init__(self) -> None:
        self.now_s = 0.0
        self.urls: list[str] = []
        self.throttled: dict[str, list[Response]] = {}
        self.core = ClientCore(
            [ONE, TWO], RetryPolicy(timeout_s=30), clock=lambda: self.now_s, random=lambda: 0.0
        )

    @property
    def asked(self) -> list[str]:
        """The last words of the addresses."""
        return [url.rpartition("/")[2] for url in self.urls]

    def cache_metadata(self) -> None:
        """Let the client know the leader already."""
        produce(self)
        self.urls.clear()

    def run(self, flow: Flow[object]) -> object:
        return drive(flow, self, self._sleep, lambda: None)

    def _sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def send(self, request: Request) -> Response:
        path = request.url[len(ONE) :]
        self.urls.append(request.url)
        for end, responses in self.throttled.items():
            if path.endswith(end) and responses:
                return responses.pop(0)
        return Response(200, {}, json.dumps(self._answer(path)).encode())

    def close(self) -> None:
        return

    def _answer(self, path: str) -> object:
        if path.endswith("/metadata"):
            return METADATA
        return {"base_offset": 0, "leader_epoch": 1, "count": 1}


@pytest.fixture
def world() -> World:
    return World()


def produce(world: World) -> object:
    return world.run(world.core.produce("t", 0, [OutgoingRecord(b"v")]))


@pytest.mark.parametrize("body", [REFUSED, None], ids=["of a service", "of a proxy"])
def test_a_producer_waits_as_long_as_the_leader_asks_and_asks_it_again(
    world: World, body: object
) -> None:
    world.throttled["/records"] = [over_quota("7", body)]
    produce(world)
    assert 7 <= world.now_s < 8
    assert world.asked == ["metadata", "records", "records"]


def test_a_lookup_that_is_over_the_quota_waits_too(world: World) -> None:
    world.throttled["/metadata"] = [over_quota("7"), over_quota("7")]
    produce(world)
    assert 7 <= world.now_s < 8
    assert world.asked == ["metadata", "metadata", "metadata", "records"]


def test_a_quota_of_one_broker_leaves_lookups_to_the_others(world: World) -> None:
    world.throttled["/metadata"] = [over_quota("7")]
    produce(world)
    assert world.now_s == 0
    assert world.asked == ["metadata", "metadata", "records"]


def test_a_lookup_that_is_over_the_quota_after_a_failure_does_not_end_the_call(
    world: World,
) -> None:
    world.throttled["/records"] = [Response(503, {}, json.dumps(NO_LEADER).encode())]
    world.throttled["/metadata"] = [
        Response(200, {}, json.dumps(METADATA).encode()),
        over_quota("7"),
        over_quota("7"),
    ]
    produce(world)
    assert world.asked[-1] == "records"


def test_a_wait_beyond_the_deadline_ends_the_call_at_once(world: World) -> None:
    world.throttled["/records"] = [over_quota("31")]
    with pytest.raises(QuotaExceeded) as refusal:
        produce(world)
    assert (world.now_s, refusal.value.retry_after_s) == (0, 31)
    assert (refusal.value.retriable, refusal.value.outcome) == (True, "refused")


@pytest.mark.parametrize("wait", [None, "", "-5", "1.5", "soon", "Wed, 21 Oct 2026 07:28:00 GMT"])
def test_a_wait_that_states_no_seconds_is_as_long_as_after_other_refusals(
    world: World, wait: str | None
) -> None:
    world.throttled["/records"] = [over_quota(wait)]
    produce(world)
    assert 0 < world.now_s < 1


@pytest.mark.parametrize("asked", ["7", -7, None, [7], float("nan")])
def test_a_body_that_states_no_seconds_counts_as_none(world: World, asked: object) -> None:
    world.throttled["/records"] = [over_quota(None, REFUSED | {"retry_after_s": asked})]
    produce(world)
    assert 0 < world.now_s < 1


def test_a_number_in_the_body_that_no_float_holds_is_more_than_the_call_has(world: World) -> None:
    world.throttled["/records"] = [over_quota(None, REFUSED | {"retry_after_s": 10**400})]
    with pytest.raises(QuotaExceeded):
        produce(world)
    assert world.now_s == 0


def test_a_number_without_end_is_more_than_the_call_has(world: World) -> None:
    world.throttled["/records"] = [over_quota("9" * 5000)]
    with pytest.raises(QuotaExceeded):
        produce(world)
    assert world.now_s == 0


@pytest.mark.parametrize(
    ("path", "request_of"),
    [
        ("/metadata", lambda core: core.list_topics()),
        ("/records", lambda core: core.fetch("t", 0, 0, replica="any")),
    ],
    ids=["any broker", "any replica"],
)
def test_the_work_is_not_given_to_another_broker(
    world: World, path: str, request_of: Callable[[ClientCore], Flow[object]]
) -> None:
    """It would evade the quota, and the others may be over it as well."""
    world.cache_metadata()
    world.throttled[path] = [over_quota("7"), Response(400, {}, b"")]
    with pytest.raises(LeadlineError):
        world.run(request_of(world.core))
    refused = [url for url in world.urls if url.endswith(path)]
    assert (len(refused), len(set(refused))) == (2, 1)
    assert world.now_s >= 7
