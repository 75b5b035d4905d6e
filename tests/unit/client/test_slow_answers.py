"""An answer that comes byte by byte, and never ends, does not hold a call beyond its own limit."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import cast

import pytest

from leadline_client.client import Client
from leadline_client.errors import ConnectionLost, LeadlineError, OutcomeUnknown
from leadline_client.payloads import OutgoingRecord
from leadline_client.retry import RetryPolicy
from leadline_client.stdlib_transport import StdlibTransport
from leadline_client.transport import Request
from tests.unit.client.test_transports import BlockingHttp, BlockingTransport

HEAD = b"HTTP/1.1 200 OK\r\n"
ENDLESS = {
    "a head": HEAD + b"x: ",
    "interim responses": b"HTTP/1.1 100 Continue\r\nx: ",
    "a body of a stated length": HEAD + b"content-length: 1000000\r\n\r\n",
    "a body of chunks": HEAD + b"transfer-encoding: chunked\r\n\r\nfffff\r\n",
    "a body until the end": HEAD + b"\r\n",
}


class Dripping(socketserver.ThreadingTCPServer):
    """Answers with `begin` and then a byte now and then, until it is closed."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.begin = HEAD
        self.metadata: bytes | None = None
        self.requests: list[bytes] = []
        self.is_over = threading.Event()
        threading.Thread(target=self.serve_forever).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def close(self) -> None:
        self.is_over.set()
        self.shutdown()
        self.server_close()


class Handler(socketserver.StreamRequestHandler):
    """One connection of `Dripping`."""

    def handle(self) -> None:
        server = cast("Dripping", self.server)
        while line := self.rfile.readline():
            length = 0
            while (header := self.rfile.readline()).strip():
                if header.lower().startswith(b"content-length"):
                    length = int(header.split(b":")[1])
            self.rfile.read(length)
            server.requests.append(line)
            if server.metadata is None or b"/metadata" not in line:
                self.drip(server)
                return
            self.wfile.write(HEAD + b"content-length: %d\r\n\r\n" % len(server.metadata))
            self.wfile.write(server.metadata)

    def drip(self, server: Dripping) -> None:
        try:
            self.wfile.write(server.begin)
            while not server.is_over.wait(0.01):
                self.wfile.write(b"x")
        except OSError:
            return


@pytest.fixture
def server() -> Iterator[Dripping]:
    with closing(Dripping()) as running:
        yield running


@pytest.mark.timeout(15)
@pytest.mark.parametrize("begin", ENDLESS.values(), ids=ENDLESS)
@pytest.mark.parametrize("transport", [StdlibTransport, BlockingHttp])
def test_the_whole_answer_has_a_limit(
    server: Dripping, transport: type[BlockingTransport], begin: bytes
) -> None:
    server.begin = begin
    with (
        closing(transport()) as made,
        pytest.raises(ConnectionLost, match="whole answer did not come"),
    ):
        made.send(Request("GET", server.url, timeout_s=30, total_s=0.3))
    assert len(server.requests) == 1


@pytest.mark.timeout(15)
@pytest.mark.parametrize("transport", [StdlibTransport, BlockingHttp])
def test_an_answer_that_comes_in_time_has_no_other_limit(
    server: Dripping, transport: type[BlockingTransport]
) -> None:
    server.begin = HEAD + b"content-length: 30\r\n\r\n"
    with closing(transport()) as made:
        answer = made.send(Request("GET", server.url, timeout_s=20, total_s=30))
    assert answer.body == b"x" * 30


def metadata(url: str) -> bytes:
    """Return metadata of a topic with one partition, which the broker at `url` leads."""
    document = {
        "cluster_id": "toy",
        "version": 1,
        "controller": None,
        "brokers": [{"id": 1, "url": url, "rack": None, "incarnation": 1}],
        "topics": {"t": {"topic_id": "id-1", "partitions": [[0, 1, 0, [1], [1]]]}},
    }
    return json.dumps(document).encode()


@pytest.mark.timeout(15)
def test_the_outcome_of_records_is_unknown_at_the_limit_of_the_call(server: Dripping) -> None:
    server.metadata = metadata(server.url)
    server.begin = HEAD + b"content-length: 1000000\r\n\r\n"
    policy = RetryPolicy(timeout_s=0.4, request_timeout_s=30)
    with Client(server.url, policy=policy) as client, pytest.raises(OutcomeUnknown):
        client.produce("t", 0, [OutgoingRecord(b"v")])
    produced = [one for one in server.requests if one.startswith(b"POST")]
    assert len(produced) == 1


@pytest.mark.timeout(15)
def test_a_lookup_has_the_limit_of_its_call(server: Dripping) -> None:
    policy = RetryPolicy(timeout_s=0.4, metadata_timeout_s=30)
    with Client([server.url] * 3, policy=policy) as client, pytest.raises(LeadlineError):
        client.produce("t", 0, [OutgoingRecord(b"v")])
    assert all(b"/metadata" in one for one in server.requests)
