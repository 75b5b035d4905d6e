"""One connection of HTTP/1.1, from the side that sends requests.

It does what requests between programs need, and no more: one request at a time, whose head and
body are at hand, and a response that is returned as a whole. A library that also knows cookies,
redirects and streams takes four times as long for a small request. `httptools` parses the heads
and chunks. A body whose length is stated is received into its place, without a copy on the way.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Any, Final, NamedTuple

import httptools

from leadline_client.sockets import has_input
from leadline_client.transport import LARGEST_BODY, READS, TOO_SLOW, Response

LARGEST_HEAD: Final = 32 * 1024
"""In bytes; a response with a longer head is an error."""
_MOST_INTERIM: Final = 16
"""How many interim responses may come before the one to a request."""
_TOGETHER: Final = 64 * 1024
"""A smaller body is sent in one piece with its head."""
_END: Final = b"\r\n\r\n"
_WITHOUT_BODY: Final = frozenset({204, 304})
_FIRST_FINAL: Final = 200
_FIRST_ERROR: Final = 400


class BrokenResponse(ConnectionError):
    """What arrived is no response, or ended too early."""


_NO_RESPONSE: Final = (httptools.HttpParserError, httptools.HttpParserUpgrade, BrokenResponse)


class _Reading(Enum):
    """What a connection reads at the moment."""

    NOTHING = auto()
    HEAD = auto()
    COUNTED = auto()
    CHUNKS = auto()
    UNTIL_END = auto()


class RawRequest(NamedTuple):
    """A request as it is sent."""

    method: str
    head: bytes
    body: bytes

    @classmethod
    def of(
        cls, method: str, target: str, host: str, headers: Mapping[str, str], body: bytes
    ) -> RawRequest:
        """Return a request to a `host` (its header) for a `target` (path and query, encoded).

        Raises:
            ValueError: a line break in a part would begin another header.

        """
        lines = [f"{method} {target} HTTP/1.1", f"host: {host}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if body or method not in READS:
            lines.append(f"content-length: {len(body)}")
        head = "\r\n".join((*lines, "", ""))
        if head.count("\n") != len(lines) + 1 or head.count("\r") != len(lines) + 1:
            raise ValueError("a header, the address or the path has a line break")
        return cls(method, head.encode(), body)


def _ignore(_connection: object) -> None:
    """Do nothing."""


class HttpConnection(asyncio.BufferedProtocol):
    """A connection to one server. Owned by its event loop, which calls `on_lost` at its end.

    Invariant: at most one request is under way. A connection on which one failed, or was given up,
    is closed: what arrives later must not be taken for the response to the next one.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: Any = None  # There is one while the connection is open.
        self._input = bytearray(LARGEST_HEAD)
        self._filled = 0
        self._reading = _Reading.NOTHING
        self._answer: asyncio.Future[Response] | None = None
        self._heard_s = 0.0
        self._give_up_s = math.inf
        self._is_head = False
        self._is_large = False
        self._is_kept = True
        self._interim = 0
        self.on_lost: Callable[[HttpConnection], None] = _ignore
        self._begin_response()

    # The caller's side.

    async def exchange(
        self, request: RawRequest, timeout_s: float, give_up_s: float = math.inf
    ) -> Response:
        """Send a request and return its response; `timeout_s` limits the wait for each part of it.

        `give_up_s`: the time of the event loop at which the response must be whole.

        Raises:
            TimeoutError: nothing came for too long, or the response is not whole in time.
            OSError: the connection broke, or what came is no response.

        """
        if not self.is_reusable:
            raise BrokenResponse("the connection was closed before the request")
        answer: asyncio.Future[Response] = self._loop.create_future()
        self._answer = answer
        self._is_head = request.method == "HEAD"
        self._is_large = len(request.body) > _TOGETHER
        self._reading = _Reading.HEAD
        self._interim = 0
        self._heard_s = self._loop.time()
        self._give_up_s = give_up_s
        first_s = min(self._heard_s + timeout_s, give_up_s)
        self._timer = self._loop.call_at(first_s, self._examine, timeout_s)
        try:
            if self._is_large:
                self._transport.write(request.head)
                self._transport.write(request.body)
            else:
                self._transport.write(request.head + request.body)
            return await answer
        except BaseException:
            self.close()
            raise
        finally:
            self._timer.cancel()

    @property
    def is_reusable(self) -> bool:
        """Whether another request may be sent."""
        return self._is_kept and not self._transport.is_closing()

    @property
    def has_input(self) -> bool:
        """Whether something waits to be read, which the event loop has not handled yet."""
        return has_input(self._transport.get_extra_info("socket").fileno())

    def close(self) -> None:
        """Close the connection at once; a request under way fails."""
        self._fail(BrokenResponse("the connection was closed before the response"))

    # The event loop's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - the event loop passes it
        """Return where the next bytes go."""
        if self._reading is _Reading.COUNTED:
            return memoryview(self._body)[self._filled :]
        return memoryview(self._input)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """Take the bytes that have arrived."""
        self._heard_s = self._loop.time()
        self._filled += nbytes
        try:
            self._take(nbytes)
        except _NO_RESPONSE as problem:
            self._fail(BrokenResponse(f"this is no valid response: {problem}"))

    def eof_received(self) -> bool:
        """Close: a server that ends its direction will not serve another request."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """End the response, which is complete only if nothing else says where it ends."""
        self._is_kept = False
        if self._reading is _Reading.UNTIL_END and exc is None:
            self._complete(b"".join(self._pieces))
        else:
            self._fail(exc or BrokenResponse("the connection was closed before the response"))
        self.on_lost(self)
        # Both refer to this object. The reference cycle would keep the buffers of TLS, 256 KB,
        # until the garbage collector runs.
        del self._parser
        self._transport = None

    # Reading.

    def _take(self, size: int) -> None:
        if self._reading is _Reading.HEAD:
            self._take_head(size)
        elif self._reading is _Reading.COUNTED:
            self._take_counted()
        elif self._reading is _Reading.NOTHING:
            self.close()
        else:
            self._parser.feed_data(memoryview(self._input)[: self._filled])
            self._filled = 0

    def _take_head(self, size: int) -> None:
        first = max(0, self._filled - size - len(_END) + 1)
        end = self._input.find(_END, first, self._filled)
        if end < 0:
            if self._filled == len(self._input):
                raise BrokenResponse("its head is too large")
            return
        end += len(_END)
        self._parser.feed_data(memoryview(self._input)[:end])
        if self._parser.get_status_code() < _FIRST_FINAL:
            self._skip(end)
            return
        self._begin_body(end)

    def _skip(self, end: int) -> None:
        """Go on after an interim response."""
        self._interim += 1
        if self._interim > _MOST_INTERIM:
            raise BrokenResponse("too many interim responses came before it")
        rest = self._input[end : self._filled]
        self._input[: len(rest)] = rest
        self._filled = len(rest)
        self._begin_response()
        if rest:
            self._take_head(len(rest))

    def _begin_response(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._headers: dict[str, str] = {}
        self._pieces: list[bytes] = []
        self._piece_bytes = 0
        self._body = bytearray()

    def _begin_body(self, start: int) -> None:
        """Read on after the head: `start` is where the body begins in what has arrived."""
        stated = self._headers.get("content-length")
        if self._is_head or self._parser.get_status_code() in _WITHOUT_BODY:
            self._complete_within(start, 0)
        elif "transfer-encoding" in self._headers:
            self._read_by_parser(start, _Reading.CHUNKS)
        elif stated is None:
            self._is_kept = False
            self._read_by_parser(start, _Reading.UNTIL_END)
        elif self._filled - start >= int(stated):
            self._complete_within(start, int(stated))
        else:
            self._read_counted(start, int(stated))

    def _read_by_parser(self, start: int, reading: _Reading) -> None:
        self._reading = reading
        if self._filled > start:
            self._parser.feed_data(memoryview(self._input)[start : self._filled])
        self._filled = 0

    def _read_counted(self, start: int, length: int) -> None:
        if length > LARGEST_BODY:
            raise BrokenResponse("its body is too large")
        self._body = bytearray(length)
        self._filled -= start
        self._body[: self._filled] = memoryview(self._input)[start : start + self._filled]
        self._reading = _Reading.COUNTED

    def _take_counted(self) -> None:
        if self._filled == len(self._body):
            self._complete(bytes(self._body))

    def _complete_within(self, start: int, length: int) -> None:
        """Complete a response whose body has arrived together with its head."""
        if self._filled > start + length:
            self._is_kept = False  # Nobody has asked for what follows.
        self._complete(bytes(memoryview(self._input)[start : start + length]))

    def _complete(self, body: bytes) -> None:
        response = Response(self._parser.get_status_code(), self._headers, body)
        if self._may_be_sending(response.status):
            self._is_kept = False  # The server answered before it had the whole request.
        self._begin_response()  # An idle connection keeps no body.
        answer = self._end_reading()
        if answer is not None:
            answer.set_result(response)

    def _may_be_sending(self, status: int) -> bool:
        """Tell whether some of the request may not be sent yet.

        A TLS transport hands all of it to the TCP transport at once, whose buffer it does not show.
        """
        is_hidden = self._transport.get_extra_info("sslcontext") is not None
        refused = is_hidden and self._is_large and status >= _FIRST_ERROR
        return refused or bool(self._transport.get_write_buffer_size())

    def _fail(self, problem: Exception) -> None:
        self._is_kept = False
        answer = self._end_reading()
        if answer is not None:
            answer.set_exception(problem)
        if self._transport is not None:
            self._transport.abort()

    def _end_reading(self) -> asyncio.Future[Response] | None:
        """Read nothing more; return what waits for the response, if anything still does."""
        answer, self._answer = self._answer, None
        self._reading = _Reading.NOTHING
        self._filled = 0
        return None if answer is None or answer.done() else answer

    def _examine(self, timeout_s: float) -> None:
        """Give up if nothing or not all has come in time, or look again when that may be."""
        now_s = self._loop.time()
        next_s = min(self._heard_s + timeout_s, self._give_up_s)
        if next_s > now_s:
            self._timer = self._loop.call_at(next_s, self._examine, timeout_s)
        elif now_s >= self._give_up_s:
            self._fail(TimeoutError(TOO_SLOW))
        else:
            self._fail(TimeoutError(f"nothing came for {timeout_s:g} s"))

    # The parser's callbacks.

    def on_message_begin(self) -> None:
        """Refuse what follows a body of chunks: nobody has asked for it."""
        if self._reading is _Reading.NOTHING:
            raise BrokenResponse("a response has ended")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header, and no trailer: it must not replace one, and nobody limits them."""
        if self._reading is not _Reading.HEAD:
            return
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """Keep whether the connection stays; the parser forgets it with the end of a response."""
        self._is_kept = self._parser.should_keep_alive()

    def on_body(self, body: bytes) -> None:
        """Keep a piece of a body whose length is not stated."""
        self._pieces.append(body)
        self._piece_bytes += len(body)
        if self._piece_bytes > LARGEST_BODY:
            raise BrokenResponse("its body is too large")

    def on_message_complete(self) -> None:
        """End a body of chunks; other bodies are counted here, or end with the connection."""
        if self._reading is _Reading.CHUNKS:
            self._complete(b"".join(self._pieces))
