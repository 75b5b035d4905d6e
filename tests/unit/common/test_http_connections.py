"""The bounds of connections, over real sockets against the server that the services run.

Each of them holds over plain TCP and over TLS.
"""

from __future__ import annotations

import asyncio
import json
import random
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import httpx
import pytest
import uvicorn

from leadline_common.http.connection_bounds import ConnectionBounds
from leadline_common.http.connections import BoundedProtocol, protocol_of
from leadline_common.http.handshakes import HandshakeListener
from leadline_common.http.listeners import bind
from leadline_common.http.public_tls import PublicTrust
from leadline_common.http.websocket_connections import BoundedWebSocket
from leadline_common.metrics import Metrics
from leadline_common.settings.fields import ServiceSettings
from tests.support.freed import all_freed
from tests.support.services.identities import public_tls, public_trust
from tests.support.services.zookeeper import until
from tests.unit.common.http_app import Seen, build

DEADLINE_S = 20
SERVICES_LOOP = True
HOST = b"Host: 127.0.0.1\r\n"
GOOD = b"GET /v1/things/7 HTTP/1.1\r\n" + HOST + b"\r\n"
POST = b"POST /v1/bodies HTTP/1.1\r\n" + HOST + b"Content-Type: text/plain\r\n"


@pytest.fixture(params=["tcp", "tls"], autouse=True)
def wire(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Whether the connections of a test are of TLS."""
    monkeypatch.setattr(f"{__name__}.CLIENT", public_trust() if request.param == "tls" else None)
    return str(request.param)


CLIENT: PublicTrust | None = None
OPENED: list[asyncio.StreamWriter] = []


async def connect(
    port: int, limit: int = 65_536
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    tls = CLIENT.client if CLIENT else None
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=limit, ssl=tls)
    OPENED.append(writer)
    return reader, writer


@asynccontextmanager
async def serving(app: Any = None, **settings: Any) -> AsyncIterator[tuple[int, ConnectionBounds]]:
    """Serve with the protocols of `serve`; gives the port and the bounds."""
    listener = bind("127.0.0.1", 0)
    bounds = ConnectionBounds(ServiceSettings(**settings), Metrics(process=False))
    config = uvicorn.Config(
        app or build(max_body_bytes=200 << 20),
        http=protocol_of(bounds),
        ws=BoundedWebSocket,
        lifespan="on",
        log_config=None,
        timeout_keep_alive=bounds.settings.connections_max_idle_ms // 1000,
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    # The coroutine within serve() that leaves signal handlers as pytest has them.
    task = asyncio.create_task(server._serve([] if CLIENT else [listener.socket]))

    def create_protocol() -> Any:
        return config.http_protocol_class(config, server.server_state, {})  # type: ignore[call-arg]  # it is uvicorn's

    handshakes = HandshakeListener(listener.socket, public_tls(), create_protocol, bounds)
    if CLIENT:
        config.load()
        handshakes.start()
    try:
        yield listener.port, bounds
    finally:
        while OPENED:  # A closed one of TLS may wait for this server.
            OPENED.pop().transport.abort()
        if CLIENT:
            handshakes.close()
        server.should_exit = True
        await task


async def exchange(port: int, *parts: bytes) -> bytes:
    """Send parts, and return all that is answered until the server closes the connection."""
    reader, writer = await connect(port)
    answer = b""
    try:
        async with asyncio.timeout(DEADLINE_S):
            for part in parts:
                writer.write(part)
                await writer.drain()
            while chunk := await reader.read(65536):
                answer += chunk
    except ConnectionError:
        pass
    finally:
        writer.close()
    return answer


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer else 0


def code(answer: bytes) -> int:
    return int(json.loads(answer.partition(b"\r\n\r\n")[2])["error_code"])


async def still_serves(port: int) -> None:
    url = f"{'https' if CLIENT else 'http'}://127.0.0.1:{port}"
    verify = CLIENT.client if CLIENT else True
    async with httpx.AsyncClient(base_url=url, verify=verify) as client:
        assert (await client.get("/v1/things/7")).status_code == 200


HEAD = b"GET / HTTP/1.1\r\n" + HOST
MALFORMED = {
    "two lengths": (POST + b"Content-Length: 1\r\nContent-Length: 1\r\n\r\nx", 400),
    "length and chunked": (
        POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        400,
    ),
    "chunked and length": (
        POST + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
        400,
    ),
    "other encoding": (POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 400),
    "folded header": (HEAD + b"X-A: 1\r\n  folded\r\n\r\n", 400),
    "space before the colon": (HEAD + b"X-A : 1\r\n\r\n", 400),
    "bare line feeds": (b"GET / HTTP/1.1\nHost: 127.0.0.1\n\n", 400),
    "no host": (b"GET / HTTP/1.1\r\n\r\n", 400),
    "two hosts": (HEAD + HOST + b"\r\n", 400),
    "many headers": (HEAD + b"X: 1\r\n" * 100 + b"\r\n", 431),
    "large header": (HEAD + b"X: " + b"a" * 40_000 + b"\r\n\r\n", 431),
    "long URL": (b"GET /" + b"a" * 9_000 + b" HTTP/1.1\r\n" + HOST + b"\r\n", 414),
    "garbage": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
}


@pytest.mark.parametrize("name", MALFORMED)
async def test_a_malformed_or_oversized_head_is_refused(name: str) -> None:
    request, expected = MALFORMED[name]
    async with serving() as (port, _):
        answer = await exchange(port, request)
        assert status(answer) == expected
        assert code(answer) // 100 == expected
        await still_serves(port)


@pytest.mark.parametrize("beginning", [HEAD + b"X: ", b"GET /", b"\r\n"])
async def test_a_head_without_end_is_refused_before_it_is_large(beginning: bytes) -> None:
    sent = 0
    async with serving() as (port, _):
        reader, writer = await connect(port)
        filler = (b"\r\n" if beginning == b"\r\n" else b"a") * 65_536
        writer.write(beginning)
        async with asyncio.timeout(DEADLINE_S):
            while not reader.at_eof() and sent < 32 << 20:
                try:
                    writer.write(filler)
                    await writer.drain()
                    sent += len(filler)
                    await asyncio.sleep(0)
                except ConnectionError:
                    break
                if reader._buffer:  # type: ignore[attr-defined]  # the answer is there
                    break
        writer.close()
        # Socket buffers take some megabytes that nobody reads.
        assert sent < 16 << 20
        await still_serves(port)


async def test_a_large_body_may_precede_the_next_head() -> None:
    body = b"x" * 100_000
    first = POST + b"Content-Length: %d\r\n\r\n" % len(body) + body
    last = GOOD.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    async with serving() as (port, _):
        answer = await exchange(port, first + last[:20], last[20:])
    assert answer.count(b"HTTP/1.1 200") == 2


async def test_silent_connections_and_slow_heads_end() -> None:
    async with serving(request_head_timeout_ms=100) as (port, _):
        silent, slow = await asyncio.gather(exchange(port), exchange(port, GOOD[:20]))
    assert {status(silent), status(slow)} == {408}


async def test_a_body_that_arrives_too_slowly_ends_but_a_long_poll_does_not() -> None:
    seen = Seen()
    async with serving(build(seen), transfer_grace_ms=100) as (port, _):
        waiting = asyncio.create_task(
            exchange(port, b"GET /v1/wait HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n")
        )
        answer = await exchange(port, POST + b"Content-Length: 100\r\n\r\nx")
        seen.wake.set()
        assert status(await waiting) == 200
    assert code(answer) == 40850
    assert seen.bodies == []


async def test_a_reader_that_reads_nothing_is_disconnected() -> None:
    async def large(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"x" * (32 << 20)})

    async with serving(large, transfer_grace_ms=100) as (port, bounds):
        reader, writer = await connect(port, limit=1024)
        writer.write(GOOD)
        async with asyncio.timeout(DEADLINE_S):
            await reader.read(1)
            await until(lambda: not bounds._open, "the connections are closed")
        writer.close()


UPGRADE = (
    HEAD + b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


@pytest.mark.parametrize("limit", ["rate", "budget"])
async def test_a_channel_that_reads_nothing_is_disconnected(limit: str) -> None:
    """It is examined like a response: silence is allowed, frames that nobody reads are not."""

    async def talk(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.accept"})
            while True:
                await send({"type": "websocket.send", "bytes": bytes(32 << 20)})
                await receive()

    settings: dict[str, Any] = {"transfer_grace_ms": 100}
    if limit == "budget":
        settings = {"queued_max_response_bytes": 1 << 20}
    async with serving(talk, **settings) as (port, bounds):
        reader, writer = await connect(port, limit=1024)
        writer.write(UPGRADE)
        async with asyncio.timeout(DEADLINE_S):
            assert await reader.readline() == b"HTTP/1.1 101 Switching Protocols\r\n"
            await until(lambda: not bounds._open, "the channel is closed")
            assert not bounds._examined
        writer.close()


@pytest.mark.parametrize(
    ("fields", "body"),
    [(b"X-Long: " + b"x" * 9_000 + b"\r\n", b""), (b"Content-Length: 1\r\n", b"x")],
)
async def test_an_upgrade_that_is_no_handshake_is_refused(fields: bytes, body: bytes) -> None:
    async with serving() as (port, bounds):
        upgrade = UPGRADE.removesuffix(b"\r\n") + fields + b"\r\n" + body
        assert code(await exchange(port, upgrade)) == 40050
        async with asyncio.timeout(DEADLINE_S):
            await until(lambda: not bounds._open, "the connection is closed")


async def test_an_upgraded_connection_is_freed_without_the_garbage_collector() -> None:
    async def talk(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.accept"})
            await receive()

    async with serving(talk) as (port, bounds), all_freed(BoundedProtocol, BoundedWebSocket):
        for _ in range(3):
            reader, writer = await connect(port)
            writer.write(UPGRADE)
            async with asyncio.timeout(DEADLINE_S):
                assert await reader.readline() == b"HTTP/1.1 101 Switching Protocols\r\n"
                writer.close()
                await until(lambda: not bounds._open, "the channel is closed")


async def test_a_connection_that_is_reset_is_freed_at_once() -> None:
    """It is not counted any more, so it must not wait for the end of its idle time."""
    async with serving() as (port, bounds), all_freed(BoundedProtocol):
        for _ in range(3):
            reader, writer = await connect(port)
            connection = writer.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.write(GOOD)
            async with asyncio.timeout(DEADLINE_S):
                await reader.readline()
                writer.transport.abort()
                await until(lambda: not bounds._open, "the connection is closed")


async def test_the_largest_waiting_responses_are_aborted_beyond_their_budget() -> None:
    async def large(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"x" * (32 << 20)})

    async with serving(large, queued_max_response_bytes=40 << 20) as (port, bounds):
        streams = [await connect(port, limit=1024) for _ in range(3)]
        for _, writer in streams:
            writer.write(GOOD)
        async with asyncio.timeout(DEADLINE_S):
            for reader, _ in streams:
                await reader.read(1)
            await until(lambda: bounds._open == 1, "the budget holds one response")
        for _, writer in streams:
            writer.close()


async def test_connections_are_counted_and_beyond_the_limit_refused() -> None:
    async with serving(max_connections_per_ip=2) as (port, bounds):
        open_ones = [await connect(port) for _ in range(2)]
        answer = await exchange(port)
        assert code(answer) == 50366
        assert b"retry-after" in answer.lower()
        for _, writer in open_ones:
            writer.close()
        async with asyncio.timeout(DEADLINE_S):
            await until(lambda: not bounds._open, "the connections are closed")
        await still_serves(port)


async def test_bodies_share_a_budget_which_is_given_back() -> None:
    async with serving(queued_max_request_bytes=1 << 20) as (port, bounds):
        holding = [await connect(port) for _ in range(4)]
        for _, writer in holding:
            writer.write(POST + b"Content-Length: 1000000\r\n\r\n" + b"x" * 250_000)
            await writer.drain()
        async with asyncio.timeout(DEADLINE_S):
            await until(lambda: bounds._held_bytes > 700_000, "the bodies arrived")
        size = 500_000
        answer = await exchange(port, POST + b"Content-Length: %d\r\n\r\n" % size + b"x" * size)
        assert code(answer) == 50363
        small = await exchange(port, POST + b"Connection: close\r\nContent-Length: 1\r\n\r\nx")
        assert status(small) == 200
        for _, writer in holding:
            writer.close()
        async with asyncio.timeout(DEADLINE_S):
            await until(lambda: not bounds._held_bytes, "the budget is given back")


async def test_slow_bodies_leave_half_of_the_budget_to_others() -> None:
    """Each of them arrives faster than the least rate, and would be there for hours."""
    limits = {"queued_max_request_bytes": 4 << 20, "transfer_grace_ms": 100}
    async with serving(transfer_min_bytes_per_s=1, **limits) as (port, bounds):
        holding = [await connect(port) for _ in range(4)]
        for number, (_, writer) in enumerate(holding, 1):
            writer.write(POST + b"Content-Length: 100000000\r\n\r\n" + b"x" * 1_000_000)
            arrived = partial(lambda number: bounds._held_bytes >= number * 1_000_000, number)
            await until(arrived, "the body has arrived")

        async def trickle() -> None:
            while True:
                for _, writer in holding:
                    writer.write(b"xxxx")
                await asyncio.sleep(0.05)

        trickling = asyncio.create_task(trickle())
        async with asyncio.timeout(DEADLINE_S):
            first = await holding[0][0].read()
        assert code(first) == 50363
        await until(lambda: bounds._held_bytes <= 2 << 20, "half of the budget is free")
        size = 1_000_000
        head = POST + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % size
        assert status(await exchange(port, head + b"x" * size)) == 200
        assert not holding[3][0].at_eof(), "the youngest may go on"
        trickling.cancel()
        for _, writer in holding:
            writer.close()


async def test_chunk_extensions_and_trailers_are_bounded_and_trailers_are_no_headers() -> None:
    chunked = POST + b"Transfer-Encoding: chunked\r\n"
    async with serving() as (port, _):
        extended = (b"1;" + b"e" * 50_000 + b"\r\nx\r\n") * 4
        assert status(await exchange(port, chunked + b"\r\n", *[extended] * 4)) == 400
        trailer = b"0\r\nX: " + b"t" * 500_000
        assert status(await exchange(port, chunked + b"\r\n", trailer, trailer)) == 400
        closing = chunked + b"Connection: close\r\n\r\n1\r\nx\r\n0\r\nHost: evil\r\n\r\n"
        assert status(await exchange(port, closing)) == 200


async def test_pipelined_requests_are_bounded() -> None:
    seen = Seen()
    wait = b"GET /v1/wait HTTP/1.1\r\n" + HOST + b"\r\n"
    async with serving(build(seen)) as (port, bounds):
        assert await exchange(port, wait + GOOD * 5_000) == b""
        seen.wake.set()
        async with asyncio.timeout(DEADLINE_S):
            await until(lambda: not bounds._open, "the connections are closed")


async def test_a_request_learns_that_its_connection_is_gone_before_those_behind_it() -> None:
    """It would go on beyond the limits of connections, and fail when it answers."""
    messages: list[str] = []

    async def wait(scope: Any, receive: Any, send: Any) -> None:
        del send
        if scope["type"] == "http":
            await receive()  # the end of its body
            messages.append((await receive())["type"])

    async with serving(wait) as (port, bounds):
        assert await exchange(port, GOOD * 50) == b""
        async with asyncio.timeout(DEADLINE_S):
            await until(lambda: not bounds._open and bool(messages), "the request has ended")
    assert messages == ["http.disconnect"]


def mutated(random_: random.Random) -> bytes:
    """Return a request with a few bytes changed, removed, repeated or inserted."""
    whole = POST + b"Content-Length: 3\r\nX-Leadline-Cause: c\r\n\r\nabc"
    chunked = POST + b"Transfer-Encoding: chunked\r\n\r\n3;a=b\r\nabc\r\n0\r\nT: 1\r\n\r\n"
    data = bytearray(random_.choice([whole, chunked, GOOD]))
    for _ in range(random_.randint(1, 6)):
        at = random_.randrange(len(data))
        kind = random_.randrange(4)
        if kind == 0:
            data[at] = random_.randrange(256)
        elif kind == 1:
            del data[at : at + random_.randint(1, 8)]
            data = data or bytearray(b"x")
        elif kind == 2:
            data[at:at] = data[at : at + random_.randint(1, 40)]
        else:
            data[at:at] = random_.choice([b"\r\n", b"\n", b"\0", b" ", b":", b"%ff", b"\xed\xa0"])
    return bytes(data)


async def test_mutated_requests_never_fail_the_server() -> None:
    seed = 20_240_607
    random_ = random.Random(seed)
    async with serving(request_head_timeout_ms=100, transfer_grace_ms=100) as (port, _):
        requests = [mutated(random_) for _ in range(400)]
        closing = [one.replace(b"\r\n", b"\r\nConnection: close\r\n", 1) for one in requests]
        answers = await asyncio.gather(*(exchange(port, one) for one in closing))
        for request, answer in zip(closing, answers, strict=True):
            assert status(answer) < 500, (seed, request, answer)
        await still_serves(port)
