"""The head of a response is sent together with the begin of its body."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest
import uvicorn

from leadline_common.http.connections import BoundedProtocol
from leadline_common.http.joined_writes import JOINED_BYTES, JoinedResponses, JoinedWrites
from leadline_common.http.tls import InternalProtocol

GET = b"GET / HTTP/1.1\r\nhost: here\r\n\r\n"
HEAD = b"HEAD / HTTP/1.1\r\nhost: here\r\n\r\n"


class Sent(asyncio.Transport):
    """A transport that keeps what it is given, piece by piece."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[bytes] = []
        self.closed = False

    def write(self, data: Any) -> None:
        """Keep a piece."""
        assert not self.closed
        self.pieces.append(bytes(data))

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        """Keep several pieces."""
        for data in list_of_data:
            self.write(data)

    def close(self) -> None:
        """Note the end."""
        self.closed = True

    def is_closing(self) -> bool:
        """Tell of the end."""
        return self.closed

    def pause_reading(self) -> None:
        """Nothing more comes anyway."""

    def resume_reading(self) -> None:
        """Nothing more comes anyway."""


@pytest.fixture
def sent() -> Sent:
    return Sent()


@pytest.fixture
async def writes(sent: Sent) -> JoinedWrites:
    return JoinedWrites(sent, asyncio.get_running_loop())


async def test_a_small_body_goes_with_the_head(writes: JoinedWrites, sent: Sent) -> None:
    writes.write(b"head ")
    writes.write(b"body ")
    writes.write(b"more")
    await asyncio.sleep(0)
    assert sent.pieces == [b"head body ", b"more"]


async def test_a_large_body_is_not_copied(writes: JoinedWrites, sent: Sent) -> None:
    body = b"x" * (JOINED_BYTES + 1)
    writes.write(b"head")
    writes.write(body)
    assert sent.pieces == [b"head", body]


async def test_a_head_without_a_body_does_not_wait(writes: JoinedWrites, sent: Sent) -> None:
    writes.write(b"head")
    await asyncio.sleep(0)
    assert sent.pieces == [b"head"]
    writes.write(b"event")
    assert sent.pieces == [b"head", b"event"]


async def test_the_end_of_the_connection_comes_after_the_head(
    writes: JoinedWrites, sent: Sent
) -> None:
    writes.write(b"head")
    writes.close()
    await asyncio.sleep(0)
    assert sent.pieces == [b"head"]
    assert sent.closed
    assert writes.is_closing()


async def answered(sent: Sent, requests: bytes, *, responses: int) -> list[bytes]:
    """Return what a connection of uvicorn sends in answer to requests that come at once."""
    served = asyncio.Semaphore(0)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        del receive
        length = [(b"content-length", b"2")]
        await send({"type": "http.response.start", "status": 200, "headers": length})
        await send({"type": "http.response.body", "body": scope["method"][:2].encode()})
        served.release()

    config = uvicorn.Config(app, lifespan="off", log_config=None)
    config.load()
    protocol = JoinedResponses(config, uvicorn.Server(config).server_state, {})
    protocol.connection_made(sent)
    protocol.data_received(requests)
    async with asyncio.timeout(20):
        for _ in range(responses):
            await served.acquire()
    await asyncio.sleep(0)
    protocol.connection_lost(None)
    return sent.pieces


async def test_a_response_is_one_piece(sent: Sent) -> None:
    [response] = await answered(sent, GET, responses=1)
    assert response.startswith(b"HTTP/1.1 200")
    assert response.endswith(b"\r\n\r\nGE")


async def test_the_head_of_a_response_without_a_body_comes_before_the_next_response(
    sent: Sent,
) -> None:
    first, second = await answered(sent, HEAD + GET, responses=2)
    assert first.endswith(b"\r\n\r\n")
    assert second.endswith(b"\r\n\r\nGE")


@pytest.mark.parametrize("protocol", [BoundedProtocol, InternalProtocol])
def test_both_listeners_join(protocol: type) -> None:
    assert issubclass(protocol, JoinedResponses)
