"""Answers that do not come from Leadline, but from a proxy or whoever else has the address."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from leadline_client import groups
from leadline_client.client import AsyncClient, Client
from leadline_client.core import ClientCore
from leadline_client.errors import (
    ConnectionLost,
    InvalidRequest,
    LogTruncated,
    Refused,
    error_from_body,
)
from leadline_client.flows import Flow
from leadline_client.payloads import OutgoingRecord, document_of, error_of
from leadline_client.producer import AsyncProducer
from leadline_client.producer_settings import ProducerSettings
from leadline_client.retry import RetryPolicy
from leadline_client.transport import CLUSTER_ID_HEADER, AsyncTransport, Request, Response
from leadline_client.wire import Metadata, TopicPartition
from tests.unit.client.standin import StandInCluster

BRIEF = ProducerSettings(delivery_timeout_s=0.5)
HASTY = RetryPolicy(timeout_s=0.5, first_pause_s=0.005)


class Page(BaseHTTPRequestHandler):
    """Answers everything with a page, as a sign-in page of a network does."""

    def do_GET(self) -> None:
        body = b"<html>Welcome</html>"
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Log nothing."""


@pytest.fixture
def foreign() -> Iterator[str]:
    """The address of somebody else."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_what_does_not_come_from_a_broker_is_no_answer(foreign: str) -> None:
    with Client(foreign, policy=HASTY) as client, pytest.raises(ConnectionLost, match="no JSON"):
        client.metadata()


def test_a_leader_is_looked_up_at_those_that_answer(foreign: str, cluster: StandInCluster) -> None:
    for _ in range(3):  # It is chance who is asked first.
        with Client([foreign, *cluster.bootstrap], policy=HASTY) as client:
            client.produce("t", 0, [OutgoingRecord(b"one")])
    assert len(cluster.values(0)) == 3


@pytest.mark.parametrize("body", [b"<html>", b"[]", b"null", b'"x"', b"\xff", b"{", b"[" * 100_000])
def test_what_became_of_a_request_whose_answer_was_replaced_is_unknown(body: bytes) -> None:
    with pytest.raises(ConnectionLost) as raised:
        document_of(Response(200, {}, body))
    assert raised.value.outcome == "unknown"


def test_an_answer_without_a_body_has_no_members() -> None:
    assert document_of(Response(204, {}, b"")) == {}


class Replacing:
    """Passes requests on, and replaces the answers to those for some path."""

    def __init__(self, path: str, replaced: Response) -> None:
        self._path = path
        self._replaced = replaced
        self._through: AsyncTransport = AsyncClient("127.0.0.1:1").transport

    async def send(self, request: Request) -> Response:
        answer = await self._through.send(request)
        return self._replaced if self._path in request.url else answer

    async def aclose(self) -> None:
        await self._through.aclose()


REPLACEMENTS = [
    Response(302, {"location": "/sign-in"}, b""),
    Response(307, {}, b'{"base_offset": 0, "leader_epoch": 0, "count": 1}'),
    Response(200, {}, b""),
    Response(204, {}, b""),
    Response(200, {}, b'{"status": "ok"}'),
]


@pytest.mark.parametrize("replaced", REPLACEMENTS, ids=lambda one: f"{one.status} {one.body!r}")
async def test_no_record_counts_as_acknowledged_by_the_answer_of_somebody_else(
    cluster: StandInCluster, replaced: Response
) -> None:
    transport = Replacing("/records", replaced)
    async with AsyncClient(cluster.bootstrap, policy=HASTY, transport=transport) as client:
        with pytest.raises(ConnectionLost):
            await client.produce("t", 0, [OutgoingRecord(b"one")])
        async with AsyncProducer(client, BRIEF) as producer:
            sent = await producer.send("t", b"two", partition=0)
            with pytest.raises(ConnectionLost):
                await sent


async def test_a_controller_in_place_of_a_broker_is_named_at_once(
    cluster: StandInCluster,
) -> None:
    """It has metadata, but does not know the coordinator of groups."""
    transport = Replacing("/v1/consult", Response(404, {CLUSTER_ID_HEADER: "toy"}, b"{}"))
    async with AsyncClient(cluster.bootstrap, transport=transport) as client:
        with pytest.raises(InvalidRequest, match="no broker at"):
            await client.run(groups.committed(client.core, "g"))


OFFSETS = {TopicPartition("t", 0): 1}
QUESTIONS: dict[str, Callable[[ClientCore], Flow[object]]] = {
    "metadata": lambda core: core.metadata(),
    "metadata of a topic": lambda core: core.describe("t"),
    "producer id": lambda core: core.new_producer_id(),
    "offsets": lambda core: core.offsets("t", 0),
    "epoch": lambda core: core.epoch_end("t", 0, 0),
    "records": lambda core: core.fetch("t", 0, 0),
    "batches": lambda core: core.fetch_batches("t", 0, 0),
    "committed": lambda core: groups.committed(core, "g"),
    "commit": lambda core: groups.commit_offsets(core, "g", OFFSETS),
}


COORDINATOR = {"coordinator": {"url": "http://127.0.0.1:1", "epoch": 1}}
METADATA = {
    "cluster_id": "toy",
    "version": 1,
    "brokers": [{"id": 1, "url": "http://127.0.0.1:1", "rack": None, "incarnation": 1}],
    "topics": {"t": {"topic_id": "id-1", "partitions": [[0, 1, 0, [1], [1]]]}},
}


class Whoever:
    """Answers everything with one body."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    async def send(self, _request: Request) -> Response:
        return Response(200, {}, self._body)

    async def aclose(self) -> None:
        """Do nothing."""


@pytest.mark.parametrize("question", list(QUESTIONS))
@pytest.mark.parametrize("body", [b"{}", b'{"offsets": 1, "cluster_id": "toy", "records": 1}'])
async def test_an_answer_that_lacks_what_leadline_sends_is_an_error_of_the_client(
    question: str, body: bytes
) -> None:
    client = AsyncClient("http://127.0.0.1:1", policy=HASTY, transport=Whoever(body))
    client.core.cache.update(Metadata.from_json(METADATA))
    client.core.coordinator.apply_lookup(COORDINATOR)
    with pytest.raises(ConnectionLost, match="does not come from Leadline"):
        await client.run(QUESTIONS[question](client.core))


async def test_a_broker_is_passed_over_whose_metadata_lacks_what_leadline_sends(
    cluster: StandInCluster,
) -> None:
    transport = Replacing(f"{cluster.urls[1]}/v1/metadata", Response(200, {}, b"{}"))
    for _ in range(3):  # It is chance who is asked first.
        async with AsyncClient(cluster.bootstrap, policy=HASTY, transport=transport) as client:
            await client.produce("t", 1, [OutgoingRecord(b"one")])
    assert len(cluster.values(1)) == 3


@pytest.mark.parametrize(
    "body",
    [
        {"error_code": [1]},
        {"error_code": {}, "message": []},
        {"error_code": 1, "self": 1},
        {"error_code": 40450, "self": 1, "server_code": 1},
        {"error_code": 1, "server_code": 1},
    ],
)
def test_a_refusal_may_have_members_of_any_names_and_types(body: dict[str, object]) -> None:
    assert error_from_body(404, body).outcome == "refused"


@pytest.mark.parametrize(
    "lacks", ["topic", "partition", "position", "divergence_offset", "leader_epoch"]
)
@pytest.mark.parametrize("instead", [None, []])
def test_a_truncation_without_what_readers_need_is_a_refusal_with_its_code(
    lacks: str, instead: object
) -> None:
    """Readers and consumers would end with a KeyError."""
    body = LogTruncated.below("t", 0, (20, 3), (10, 3), 5, "id").body()
    assert type(error_from_body(416, body)) is LogTruncated
    found = error_from_body(416, body | {lacks: instead})
    assert type(found) is Refused
    assert found.details["server_code"] == LogTruncated.code


@pytest.mark.parametrize(
    "hint", [1, {"id": "a", "url": 5, "epoch": "z"}, {"id": 1, "url": "u", "epoch": None}, {}]
)
def test_a_hint_that_names_no_leader_is_none(hint: object) -> None:
    assert error_from_body(421, {"error_code": 42150, "leader": hint}).leader is None


def test_a_page_that_is_nested_deeply_is_an_answer_of_somebody_else() -> None:
    assert error_of(Response(502, {}, b"[" * 100_000)).outcome == "unknown"
