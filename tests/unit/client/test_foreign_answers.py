"""Answers that do not come from Leadline, but from a proxy or whoever else has the address."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from leadline_client.client import Client
from leadline_client.errors import ConnectionLost
from leadline_client.payloads import OutgoingRecord, document_of
from leadline_client.retry import RetryPolicy
from leadline_client.transport import Response
from tests.unit.client.standin import StandInCluster

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


@pytest.mark.parametrize("body", [b"<html>", b"[]", b"null", b'"x"', b"\xff", b"{"])
def test_what_became_of_a_request_whose_answer_was_replaced_is_unknown(body: bytes) -> None:
    with pytest.raises(ConnectionLost) as raised:
        document_of(Response(200, {}, body))
    assert raised.value.outcome == "unknown"


def test_an_answer_without_a_body_has_no_members() -> None:
    assert document_of(Response(204, {}, b"")) == {}
