"""A call that is under way when its client is closed sends no more, and leaves no connection."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable

import pytest

from leadline_client import threaded_transport
from leadline_client.client import AsyncClient
from leadline_client.errors import (
    ConnectionLost,
    InvalidRequest,
    LeadlineError,
    NotEnoughReplicas,
    OutcomeUnknown,
)
from leadline_client.http_connection import BrokenResponse, RawRequest
from leadline_client.http_connections import Address, HttpConnections
from leadline_client.retry import RetryPolicy
from leadline_client.stdlib_transport import StdlibTransport
from leadline_client.threaded_transport import ThreadedTransport
from leadline_client.transport import Request, Response
from tests.support.services.zookeeper import until

LEADER = "http://leader"
PATIENT = RetryPolicy(timeout_s=600, first_pause_s=0.05)


def metadata(leader: int) -> Response:
    """Return metadata of a topic with one partition, which broker 1 leads or nobody does."""
    document = {
        "cluster_id": "toy",
        "version": 1,
        "controller": None,
        "brokers": [{"id": 1, "url": LEADER, "rack": None, "incarnation": 1}],
        "topics": {"t": {"topic_id": "id-1", "partitions": [[0, leader, 0, [1], [1]]]}},
    }
    return Response(200, {}, json.dumps(document).encode())


class Network:
    """Answers lookups, and fails every other request as `fail` says."""

    def __init__(self, leader: int, fail: Callable[[], LeadlineError]) -> None:
        self.requests: list[str] = []
        self.closed_at: int | None = None
        self._leader = leader
        self._fail = fail

    async def send(self, request: Request) -> Response:
        self.requests.append(request.url)
        if request.url.endswith("/v1/metadata"):
            return metadata(self._leader)
        raise self._fail()

    async def aclose(self) -> None:
        self.closed_at = len(self.requests)


async def closed_in_a_pause(network: Network, *, idempotent: bool) -> None:
    """Close a client while a call of it waits for its next attempt, and await the call."""
    client = AsyncClient("http://seed", policy=PATIENT, transport=network)
    call = asyncio.ensure_future(client.produce_batches("t", 0, b"batch", idempotent=idempotent))
    await asyncio.sleep(0)  # It runs up to its pause: nothing in this network suspends it.
    assert network.requests
    assert not call.done()
    await client.aclose()
    async with asyncio.timeout(20):
        await call


@pytest.mark.parametrize("leader", [1, -1], ids=["a leader", "no leader"])
async def test_a_call_that_waits_sends_nothing_after_the_close(leader: int) -> None:
    network = Network(leader, lambda: NotEnoughReplicas("too few"))
    with pytest.raises(InvalidRequest, match="the client is closed"):
        await closed_in_a_pause(network, idempotent=False)
    assert len(network.requests) == network.closed_at


async def test_an_unknown_outcome_stays_unknown_after_the_close() -> None:
    network = Network(1, lambda: ConnectionLost("no answer"))
    with pytest.raises(OutcomeUnknown) as lost:
        await closed_in_a_pause(network, idempotent=True)
    assert isinstance(lost.value.__cause__, InvalidRequest)
    assert len(network.requests) == network.closed_at


async def test_a_read_on_a_kept_connection_is_not_sent_again_after_the_close() -> None:
    accepted, requests = 0, list[bytes]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal accepted
        accepted += 1
        while len(requests) < 2 and (request := await reader.readuntil(b"\r\n\r\n")):
            requests.append(request)
            if len(requests) == 1:
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    connections = HttpConnections(60.0)
    address = Address("127.0.0.1", server.sockets[0].getsockname()[1])
    request = RawRequest.of("GET", "/", "127.0.0.1", {}, b"")

    async def ask() -> Response:
        return await connections.exchange(address, request, connect_timeout_s=10, timeout_s=10)

    await ask()
    polling = asyncio.create_task(ask())
    await until(lambda: len(requests) == 2, "the second one is under way")
    connections.close()
    with pytest.raises(BrokenResponse, match="closed"):
        await polling
    assert (accepted, len(connections)) == (1, 0)
    server.close()
    await server.wait_closed()


class Held(StdlibTransport):
    """Lets a request go on only when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.go_on, self.events = threading.Event(), threading.Event(), list[str]()

    def send(self, request: Request) -> Response:
        self.begun.set()
        assert self.go_on.wait(20)
        self.events.append(f"{request.method} ends")
        return Response(200, {}, b"")

    def close(self) -> None:
        self.events.append("closed")
        super().close()


@pytest.mark.parametrize("owned", [True, False])
async def test_a_thread_that_ends_after_the_close_leaves_no_idle_connection(owned: bool) -> None:
    blocking = Held()
    transport = ThreadedTransport(blocking, owned=owned)
    asked = asyncio.ensure_future(transport.send(Request("GET", "http://t")))
    await until(blocking.begun.is_set, "a request is under way")
    await transport.aclose()
    blocking.go_on.set()
    await asked
    assert blocking.events == (["closed", "GET ends", "closed"] if owned else ["GET ends"])


async def test_a_request_that_still_waits_for_a_thread_is_refused_by_the_close(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was not sent. Cancelled, it would cancel the application's task."""
    monkeypatch.setattr(threaded_transport, "_MOST_THREADS", 1)
    blocking = Held()
    transport = ThreadedTransport(blocking, owned=False)
    asked = [asyncio.ensure_future(transport.send(Request("GET", "http://t"))) for _ in range(2)]
    await until(blocking.begun.is_set, "the first one is under way")
    await transport.aclose()
    blocking.go_on.set()
    assert (await asked[0]).status == 200
    with pytest.raises(InvalidRequest, match="closed"):
        await asked[1]
    with pytest.raises(InvalidRequest, match="closed"):
        await transport.send(Request("GET", "http://t"))
    assert blocking.events == ["GET ends"]
