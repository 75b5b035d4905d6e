"""A connection of HTTP/1.1 returns each response whole, however its bytes arrive."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadline_client import http_connection
from leadline_client.http_connection import (
    LARGEST_HEAD,
    BrokenResponse,
    HttpConnection,
    RawRequest,
)
from leadline_client.transport import LARGEST_BODY, Response

REQUEST = RawRequest.of("GET", "/", "localhost", {}, b"")
BODY = bytes(range(256)) * 300
COUNTED = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nX-Name: Value\r\n\r\n%b" % (len(BODY), BODY)
SMALL = b"HTTP/1.1 404 Not Found\r\ncontent-length: 2\r\n\r\nno"
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"5\r\nhello\r\n1;x=y\r\n \r\n5\r\nworld\r\n0\r\nTrailer: x\r\n\r\n"
)
EMPTY = b"HTTP/1.1 204 No Content\r\n\r\n"
INTERIM = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
LAST = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 4\r\n\r\nlast"
OLD = b"HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nold"

KEPT = {
    COUNTED: (200, BODY),
    SMALL: (404, b"no"),
    CHUNKED: (200, b"hello world"),
    EMPTY: (204, b""),
    INTERIM + SMALL: (404, b"no"),
    INTERIM + COUNTED: (200, BODY),
}
"""Responses after which the connection may be used again."""


class Wire(asyncio.Transport):
    """The other end of one connection, which sends what a test says, in pieces of its choice."""

    def __init__(self, connection: HttpConnection) -> None:
        super().__init__()
        self.sent = b""
        self.unsent = 0
        self.closed = False
        self._connection = connection
        connection.connection_made(self)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += bytes(data)

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def is_closing(self) -> bool:
        return self.closed

    def abort(self) -> None:
        if not self.closed:
            self.closed = True
            self._connection.connection_lost(None)

    def deliver(self, data: bytes) -> None:
        """Let data arrive, as much at once as the connection takes."""
        while data and not self.closed:
            buffer = self._connection.get_buffer(-1)
            taken = min(len(buffer), len(data))
            assert taken
            buffer[:taken] = data[:taken]
            self._connection.buffer_updated(taken)
            data = data[taken:]

    def end(self, problem: Exception | None = None) -> None:
        """Let the connection end."""
        self.closed = True
        self._connection.connection_lost(problem)


async def exchanged(
    wire: Wire, connection: HttpConnection, pieces: Sequence[bytes], request: RawRequest = REQUEST
) -> Response:
    """Send a request; return the response that arrives in these pieces."""
    asking = asyncio.ensure_future(connection.exchange(request, 10))
    await asyncio.sleep(0)
    for piece in pieces:
        wire.deliver(piece)
    return await asking


def cut(data: bytes, places: Sequence[int]) -> list[bytes]:
    """Return the pieces of data between these places."""
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(edges)]


@given(
    st.lists(st.tuples(st.sampled_from(sorted(KEPT)), st.lists(st.integers(0, 80_000))), max_size=6)
)
def test_responses_arrive_whole_one_after_another_however_they_are_cut(
    responses: list[tuple[bytes, list[int]]],
) -> None:
    async def run() -> None:
        connection = HttpConnection()
        wire = Wire(connection)
        for data, places in responses:
            found = await exchanged(wire, connection, cut(data, places))
            assert (found.status, found.body) == KEPT[data]
            assert connection.is_reusable
        assert wire.sent == REQUEST.head * len(responses)

    asyncio.run(run())


@given(st.lists(st.integers(0, 100)))
def test_names_of_headers_are_in_lower_case(places: list[int]) -> None:
    async def run() -> None:
        connection = HttpConnection()
        found = await exchanged(Wire(connection), connection, cut(COUNTED, places))
        assert found.headers == {"content-length": str(len(BODY)), "x-name": "Value"}

    asyncio.run(run())


@pytest.mark.parametrize("data", [LAST, OLD, SMALL + b"more", CHUNKED + b"H", CHUNKED + SMALL[:30]])
async def test_a_connection_that_will_not_stay_is_not_used_again(data: bytes) -> None:
    connection = HttpConnection()
    wire = Wire(connection)

    found = await exchanged(wire, connection, [data])

    assert found.body in (b"last", b"old", b"no", b"hello world")
    assert not connection.is_reusable


async def test_bytes_that_nobody_asked_for_close_the_connection() -> None:
    connection = HttpConnection()
    wire = Wire(connection)
    await exchanged(wire, connection, [SMALL])

    wire.deliver(b"HTTP/1.1 200 OK\r\n")

    assert wire.closed
    assert not connection.is_reusable


async def test_a_response_before_the_end_of_the_request_is_the_last_one() -> None:
    connection = HttpConnection()
    wire = Wire(connection)
    wire.unsent = 1

    assert (await exchanged(wire, connection, [SMALL])).status == 404

    assert not connection.is_reusable


@pytest.mark.parametrize("before", [b"", INTERIM])
async def test_a_response_to_head_has_no_body(before: bytes) -> None:
    connection = HttpConnection()
    wire = Wire(connection)
    head = before + COUNTED.removesuffix(BODY)
    request = RawRequest.of("HEAD", "/", "localhost", {}, b"")

    found = await exchanged(wire, connection, [head], request)

    assert (found.status, found.body) == (200, b"")
    assert connection.is_reusable
    assert (await exchanged(wire, connection, [SMALL])).body == b"no"


@pytest.mark.parametrize("size", [0, 1, len(BODY)])
async def test_a_response_without_a_length_ends_with_the_connection(size: int) -> None:
    connection = HttpConnection()
    wire = Wire(connection)
    asking = asyncio.ensure_future(connection.exchange(REQUEST, 10))
    await asyncio.sleep(0)

    wire.deliver(b"HTTP/1.1 200 OK\r\n\r\n" + BODY[:size])
    assert not asking.done()
    wire.end()

    assert (await asking).body == BODY[:size]


@pytest.mark.parametrize("data", [b"", b"HTTP/1.1 2", COUNTED[:-1], CHUNKED[:-1], INTERIM])
@pytest.mark.parametrize("problem", [None, ConnectionResetError("reset")])
async def test_a_response_that_breaks_off_is_an_error(
    data: bytes, problem: Exception | None
) -> None:
    connection = HttpConnection()
    wire = Wire(connection)
    asking = asyncio.ensure_future(connection.exchange(REQUEST, 10))
    await asyncio.sleep(0)

    wire.deliver(data)
    wire.end(problem)

    with pytest.raises(type(problem) if problem else BrokenResponse):
        await asking
    assert not connection.is_reusable


async def test_a_response_without_a_length_that_is_reset_is_an_error() -> None:
    connection = HttpConnection()
    wire = Wire(connection)
    asking = asyncio.ensure_future(connection.exchange(REQUEST, 10))
    await asyncio.sleep(0)

    wire.deliver(b"HTTP/1.1 200 OK\r\n\r\nhalf")
    wire.end(ConnectionResetError("reset"))

    with pytest.raises(ConnectionResetError):
        await asking


async def test_a_response_without_a_length_is_not_complete_when_the_client_is_closed() -> None:
    connection = HttpConnection()
    wire = Wire(connection)
    asking = asyncio.ensure_future(connection.exchange(REQUEST, 10))
    await asyncio.sleep(0)

    wire.deliver(b"HTTP/1.1 200 OK\r\n\r\nhalf")
    connection.close()

    with pytest.raises(BrokenResponse, match="closed"):
        await asking


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (LARGEST_BODY + 1),
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * LARGEST_HEAD,
        b"HTTP/1.1 100 Continue\r\n\r\n" * 1_200,
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nx",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nnone\r\n",
    ],
)
async def test_what_is_no_response_is_an_error(data: bytes) -> None:
    connection = HttpConnection()
    wire = Wire(connection)

    with pytest.raises(BrokenResponse, match="no valid response"):
        await exchanged(wire, connection, [data])

    assert wire.closed


async def test_no_trailer_replaces_a_header() -> None:
    connection = HttpConnection()
    wire = Wire(connection)
    head = b"HTTP/1.1 200 OK\r\nX-Name: Value\r\nTransfer-Encoding: chunked\r\n\r\n"

    response = await exchanged(wire, connection, [head, b"0\r\nX-Name: other\r\nX: y\r\n\r\n"])

    assert response.headers == {"x-name": "Value", "transfer-encoding": "chunked"}


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_of_unknown_length_has_a_limit(
    monkeypatch: pytest.MonkeyPatch, *, chunked: bool
) -> None:
    monkeypatch.setattr(http_connection, "LARGEST_BODY", 1_000)
    connection = HttpConnection()
    wire = Wire(connection)
    coding = b"Transfer-Encoding: chunked\r\n" if chunked else b""
    part = b"1f4\r\n" + bytes(500) + b"\r\n" if chunked else bytes(500)

    with pytest.raises(BrokenResponse, match="no valid response"):
        await exchanged(
            wire, connection, [b"HTTP/1.1 200 OK\r\n" + coding + b"\r\n", part, part, part]
        )

    assert wire.closed


async def test_nothing_is_sent_over_a_connection_that_is_closed() -> None:
    connection = HttpConnection()
    wire = Wire(connection)
    wire.end()

    with pytest.raises(BrokenResponse, match="before the request"):
        await connection.exchange(REQUEST, 60)

    assert not wire.sent


async def test_a_request_that_is_given_up_closes_the_connection() -> None:
    connection = HttpConnection()
    wire = Wire(connection)
    asking = asyncio.ensure_future(connection.exchange(REQUEST, 10))
    await asyncio.sleep(0)
    wire.deliver(COUNTED[:100])

    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking

    assert wire.closed


class ManualClock(asyncio.SelectorEventLoop):
    """An event loop whose time passes when a test says so."""

    now_s = 0.0

    def time(self) -> float:
        return self.now_s

    async def pass_time(self, seconds: float) -> None:
        self.now_s += seconds
        for _ in range(3):
            await asyncio.sleep(0)


def test_a_response_may_take_longer_than_the_wait_for_a_part_of_it() -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, ManualClock)
        connection = HttpConnection()
        wire = Wire(connection)
        asking = asyncio.ensure_future(connection.exchange(REQUEST, 1.0))
        for number in range(10):
            await loop.pass_time(0.9)
            wire.deliver(COUNTED[number * 100 : (number + 1) * 100])
        await loop.pass_time(0.9)
        assert not asking.done()

        await loop.pass_time(0.2)

        with pytest.raises(TimeoutError, match="nothing came for 1 s"):
            await asking

    with asyncio.Runner(loop_factory=ManualClock) as runner:
        runner.run(run())


async def test_a_body_follows_its_head() -> None:
    for size in (0, 10, 200_000):
        connection = HttpConnection()
        wire = Wire(connection)
        body = bytes(size)
        request = RawRequest.of("POST", "/x?y=z", "localhost:1", {"content-type": "a/b"}, body)
        asking = asyncio.ensure_future(connection.exchange(request, 10))
        await asyncio.sleep(0)
        wire.deliver(SMALL)
        await asking
        assert wire.sent == (
            b"POST /x?y=z HTTP/1.1\r\nhost: localhost:1\r\ncontent-type: a/b\r\n"
            b"content-length: %d\r\n\r\n%b" % (size, body)
        )


@pytest.mark.parametrize("line", ["x\r\ny: z", "x\ny", "x\ry"])
@pytest.mark.parametrize("part", ["method", "target", "host", "name", "value"])
def test_a_line_break_does_not_make_another_header(part: str, line: str) -> None:
    parts = {"method": "GET", "target": "/", "host": "h", "name": "n", "value": "v", part: line}
    with pytest.raises(ValueError, match="line break"):
        RawRequest.of(
            parts["method"], parts["target"], parts["host"], {parts["name"]: parts["value"]}, b""
        )
