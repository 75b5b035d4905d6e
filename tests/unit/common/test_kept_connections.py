"""Connections that a forwarder keeps: when one is used again, and who gets which answer."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response

from leadline_client.errors import ConnectionLost, LeadlineError, NoController
from leadline_common.http.forward import Forwarder
from leadline_common.identity import ServiceAddress, ServiceIdentity

DEADLINE_S = 10.0


def answer(text: str, *headers: str) -> bytes:
    """Return the bytes of a response."""
    stated = "".join(f"{header}\r\n" for header in headers)
    return f"HTTP/1.1 200 OK\r\nContent-Length: {len(text)}\r\n{stated}\r\n{text}".encode()


@dataclass
class Active:
    """A service at the level of sockets: the test decides what happens on each connection."""

    listening: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0)))
    accepted: list[socket.socket] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.listening.setblocking(False)
        url = f"http://127.0.0.1:{self.listening.getsockname()[1]}"
        self.address = ServiceAddress(ServiceIdentity("controller", 1), url)

    async def accept(self) -> socket.socket:
        """Return the next new connection."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(DEADLINE_S):
            connection, _ = await loop.sock_accept(self.listening)
        self.accepted.append(connection)
        return connection

    def close(self) -> None:
        """Close everything."""
        for one in (self.listening, *self.accepted):
            one.close()


async def received(connection: socket.socket) -> bytes:
    """Return what arrives next, nothing at the end."""
    async with asyncio.timeout(DEADLINE_S):
        return await asyncio.get_running_loop().sock_recv(connection, 65_536)


async def served(connection: socket.socket, data: bytes) -> bytes:
    """Read a request and answer it; return its first line."""
    head = await received(connection)
    await asyncio.get_running_loop().sock_sendall(connection, data)
    return head.partition(b"\r\n")[0]


@dataclass
class Sender:
    """Forwards requests in tasks of their own."""

    forwarder: Forwarder = field(default_factory=Forwarder)

    def send(
        self, to: Active, method: str = "POST", *, timeout_s: float = DEADLINE_S
    ) -> asyncio.Task[Response]:
        """Begin to forward a request."""
        scope: dict[str, Any] = {
            "type": "http",
            "method": method,
            "path": "/v1/topics",
            "raw_path": b"/v1/topics",
            "query_string": b"",
            "headers": [(b"host", b"127.0.0.1")],
        }

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        request = Request(scope, receive)
        return asyncio.create_task(self.forwarder.forward(request, to.address, timeout_s=timeout_s))

    async def first(self, to: Active) -> socket.socket:
        """Have one request answered; return its connection, which is kept."""
        sent = self.send(to)
        connection = await to.accept()
        await served(connection, answer("first"))
        assert bytes((await sent).body) == b"first"
        return connection


@asynccontextmanager
async def sending(count: int = 1) -> AsyncIterator[tuple[Sender, list[Active]]]:
    """Return a sender, and services to which it can send."""
    sender, services = Sender(), [Active() for _ in range(count)]
    try:
        yield sender, services
    finally:
        await sender.forwarder.close()
        for one in services:
            one.close()


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
async def test_the_next_request_uses_the_same_connection(method: str) -> None:
    async with sending() as (sender, [active]):
        kept = await sender.first(active)
        sent = sender.send(active, method)
        assert await served(kept, answer("second")) == f"{method} /v1/topics HTTP/1.1".encode()
        assert bytes((await sent).body) == b"second"


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
async def test_a_connection_that_the_other_end_has_closed_is_not_used(method: str) -> None:
    """The event loop has not seen its end yet: a write on it would have an unknown outcome."""
    async with sending() as (sender, [active]):
        kept = await sender.first(active)
        kept.close()
        sent = sender.send(active, method)
        await served(await active.accept(), answer("second"))
        assert bytes((await sent).body) == b"second"


async def test_a_connection_whose_other_end_only_sends_no_more_is_not_used() -> None:
    async with sending() as (sender, [active]):
        kept = await sender.first(active)
        kept.shutdown(socket.SHUT_WR)
        sent = sender.send(active)
        await served(await active.accept(), answer("second"))
        assert bytes((await sent).body) == b"second"
        assert await received(kept) == b"", "nothing may be sent on it"


async def test_nobody_there_any_more_is_a_refusal() -> None:
    async with sending() as (sender, [active]):
        await sender.first(active)
        active.close()
        with pytest.raises(NoController, match="cannot be reached"):
            await sender.send(active)


@pytest.mark.parametrize(
    ("method", "error"),
    [("GET", NoController), ("POST", ConnectionLost), ("DELETE", ConnectionLost)],
)
async def test_a_kept_connection_that_breaks_after_sending_is_unknown_for_a_write(
    method: str, error: type[LeadlineError]
) -> None:
    async with sending() as (sender, [active]):
        kept = await sender.first(active)
        sent = sender.send(active, method)
        assert await received(kept)
        kept.close()
        with pytest.raises(error):
            await sent
        with pytest.raises(BlockingIOError):
            active.listening.accept()  # What may have taken effect must not be sent again.


@pytest.mark.parametrize("ends", ["timeout", "cancelled"])
async def test_a_late_answer_is_not_that_of_the_next_request(ends: str) -> None:
    async with sending() as (sender, [active]):
        kept = await sender.first(active)
        sent = sender.send(active, timeout_s=0.05 if ends == "timeout" else DEADLINE_S)
        assert await received(kept)
        if ends == "cancelled":
            sent.cancel()
        with pytest.raises((ConnectionLost, asyncio.CancelledError)):
            await sent
        following = sender.send(active)
        fresh = await active.accept()
        await asyncio.get_running_loop().sock_sendall(kept, answer("late"))
        await served(fresh, answer("second"))
        assert bytes((await following).body) == b"second"


@pytest.mark.parametrize("at_once", [True, False])
async def test_a_second_answer_is_not_that_of_the_next_request(at_once: bool) -> None:
    another = answer("another")
    async with sending() as (sender, [active]):
        sent = sender.send(active)
        connection = await active.accept()
        await served(connection, answer("first") + (another if at_once else b""))
        assert bytes((await sent).body) == b"first"
        if not at_once:
            connection.send(another)
        following = sender.send(active)
        await served(await active.accept(), answer("second"))
        assert bytes((await following).body) == b"second"


async def test_a_connection_is_not_used_after_the_answer_that_ends_it() -> None:
    async with sending() as (sender, [active]):
        sent = sender.send(active)
        await served(await active.accept(), answer("first", "Connection: close"))
        await sent
        following = sender.send(active)
        await served(await active.accept(), answer("second"))
        assert bytes((await following).body) == b"second"


async def test_another_active_process_gets_the_next_request_and_the_first_is_left() -> None:
    async with sending(2) as (sender, [old, new]):
        kept = await sender.first(old)
        sent = sender.send(new)
        await served(await new.accept(), answer("second"))
        assert bytes((await sent).body) == b"second"
        assert await received(kept) == b"", "a connection that nobody uses is closed"


async def test_an_answer_of_many_megabytes_comes_through_a_kept_connection() -> None:
    text = "x" * (20 << 20)
    async with sending() as (sender, [active]):
        kept = await sender.first(active)
        for _ in range(2):
            sent = sender.send(active, "GET")
            await served(kept, answer(text))
            assert len((await sent).body) == len(text)


@pytest.mark.parametrize("count", [3, 120])
async def test_requests_at_the_same_time_have_connections_of_their_own(count: int) -> None:
    """However many wait for their answers, as event streams do for hours."""
    async with sending() as (sender, [active]):
        sent = [sender.send(active) for _ in range(count)]
        connections = [await active.accept() for _ in range(count)]
        for connection in connections:
            await served(connection, answer("own"))
        assert [bytes(one.body) for one in await asyncio.gather(*sent)] == [b"own"] * count
