"""The protocol of one connection: uvicorn's on httptools, with bounds.

uvicorn limits neither the head of a request nor the time that any part of it takes, and answers
what it cannot parse with text. This protocol adds the limits of `ConnectionBounds` and Leadline's
errors. A request within the limits costs it a few comparisons.
"""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar, Final

import httptools
from starlette.responses import Response
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    RequestResponseCycle,
)

from leadline_client.errors import (
    HeadTooLarge,
    InvalidRequest,
    LeadlineError,
    RequestTooSlow,
    TooManyBodies,
    TooManyConnections,
    UrlTooLong,
)
from leadline_common.http.connection_bounds import FREE_BODY_BYTES, ConnectionBounds
from leadline_common.http.errors import error_response
from leadline_common.http.joined_writes import JoinedResponses
from leadline_common.http.public_tls import CLIENT_CERTIFICATE_KEY, client_name
from leadline_common.http.tls_transport import TlsFlowControl, TlsTransport, is_unconfirmed
from leadline_common.http.websocket_connections import BoundedWebSocket, WriteProgress

MAX_URL_BYTES: Final = 8 * 1024
MAX_HEADERS: Final = 100
MAX_PIPELINED: Final = 16
_CHUNK_OVERHEAD: Final = 64 * 1024
_OVERHEAD_PER_BYTE: Final = 16
"""Chunks of one byte have a frame of five; more than this is abuse of chunk extensions."""
_LINGER_S: Final = 1.0
"""How long a refused caller may take to read why; closing at once would discard the answer."""
_SINGLE: Final = frozenset({b"host", b"content-length", b"transfer-encoding", b"content-type"})
_WATCHED: Final = _SINGLE | {b"expect"}


def protocol_of(bounds: ConnectionBounds) -> type[BoundedProtocol]:
    """Return the protocol class of a listener, for uvicorn's `http` option."""
    return type("ListenerProtocol", (BoundedProtocol,), {"bounds": bounds})


class BoundedProtocol(TlsFlowControl, JoinedResponses):
    """One connection within the bounds of its listener."""

    bounds: ClassVar[ConnectionBounds]

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._peer = ""
        self._admitted = False
        self._refused = False
        self._refusal: LeadlineError | None = None
        self._head_since: float | None = None
        self._head_bytes = 0
        self._fed_bytes = 0
        self._begun = False
        self._in_body = False
        self._chunked = False
        self._single: set[bytes] = set()
        self._body_bytes = 0
        self._overhead = 0
        self._held = 0
        self._body_since = 0.0
        self._read_mark = (0.0, 0)
        self._written = WriteProgress()
        self._client_name: str | None = None
        self.url = b""  # There is none before the first request.
        self._running: RequestResponseCycle | None = None

    # The connection.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        """Admit the connection, or refuse it with status 503."""
        if transport.get_extra_info("sslcontext") is not None:
            transport = TlsTransport(transport)
            self._client_name = client_name(transport)
        address = transport.get_extra_info("peername")
        self._peer = str(address[0]) if address else ""
        if not self.bounds.admit(self._peer):
            self._refused = True
            self.transport = transport
            self.bounds.refused(TooManyConnections.__name__, self._peer)
            transport.write(answer_of(TooManyConnections("too many connections: try again later")))
            transport.close()
            self.loop.call_later(_LINGER_S, transport.abort)
            return
        self._admitted = True
        super().connection_made(transport)
        self._head_since = self.loop.time()
        self.bounds.watch(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Give back what the connection held."""
        super().connection_lost(exc)
        running, self._running = self._running, None
        if running is not None:  # uvicorn tells the last request that has come, which may wait.
            running.disconnected = True
            running.message_event.set()
        self._unset_keepalive_if_required()  # uvicorn leaves it to keep what was reset.
        self.bounds.unwatch(self)
        self._free_body()
        self._release()

    def _release(self) -> None:
        if self._admitted:
            self._admitted = False
            self.bounds.release(self._peer)

    def shutdown(self) -> None:
        """End the connection, now or after its response; the other end of TLS may be silent."""
        super().shutdown()
        if isinstance(self.transport, TlsTransport) and self.transport.is_closing():
            self.loop.call_later(_LINGER_S, self.transport.abort)

    def handle_websocket_upgrade(self) -> None:
        """Hand the connection over; it keeps its place among those of its peer."""
        self._head_since = None
        self.bounds.unwatch(self)
        super().handle_websocket_upgrade()
        protocol = self.transport.get_protocol()
        if isinstance(protocol, BoundedWebSocket):
            protocol.take_over(self.bounds, self._peer, self._release)
            if not protocol.handshake_initiated:  # uvicorn would wait for ever.
                self._refuse(InvalidRequest("a WebSocket begins with a shorter head and no body"))
        # It refers to this object, which hears no more of the connection, not even its end.
        del self.parser

    def data_received(self, data: bytes) -> None:
        """Parse what arrived, and refuse what exceeds a limit or is not HTTP."""
        if self._refused:
            return
        self._unset_keepalive_if_required()
        if self._head_since is None and not self._in_body:
            self._head_since = self.loop.time()
            self._head_bytes = 0
        self._begun = False
        self._fed_bytes = len(data)
        self._overhead += self._fed_bytes if self._chunked else 0
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            if self._should_upgrade():
                self.handle_websocket_upgrade()
            return
        except httptools.HttpParserError:
            self._refuse(self._refusal or InvalidRequest("this is not a valid HTTP/1.1 request"))
            return
        self._check_progress()

    def _check_progress(self) -> None:
        """Bound what the parser keeps to itself: an unfinished head, and frames of chunks."""
        if self._head_since is not None:
            # Bytes of an earlier request may precede the message that began in this piece.
            self._head_bytes += 0 if self._begun else self._fed_bytes
            if self._head_bytes > self.bounds.settings.request_head_max_bytes:
                self._refuse(HeadTooLarge("the head of the request is too large"))
        elif self._overhead > _CHUNK_OVERHEAD + _OVERHEAD_PER_BYTE * self._body_bytes:
            self._refuse(InvalidRequest("the frames of the chunks are larger than their content"))

    # The parser's callbacks.

    def on_message_begin(self) -> None:
        """Begin a request."""
        super().on_message_begin()
        if self._client_name is not None:
            self.scope[CLIENT_CERTIFICATE_KEY] = self._client_name  # type: ignore[typeddict-unknown-key]  # an extension of ours
        self._begun = True
        self._single.clear()
        self._chunked = False
        self._head_bytes = self._overhead = self._body_bytes = 0
        if self._head_since is None:
            self._head_since = self.loop.time()

    def on_url(self, url: bytes) -> None:
        """Bound the URL."""
        super().on_url(url)
        if len(self.url) > MAX_URL_BYTES:
            self._fail(UrlTooLong(f"the URL is longer than {MAX_URL_BYTES} bytes"))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header; drop trailers, which no route reads."""
        if self._in_body:
            return
        name = name.lower()
        if name in _WATCHED:
            self._on_watched(name, value)
        self.headers.append((name, value))

    def _on_watched(self, name: bytes, value: bytes) -> None:
        if name == b"expect":
            self.expect_100_continue = value.lower() == b"100-continue"
            return
        if name in self._single:
            self._fail(InvalidRequest(f"two {name.decode()} headers"))
        self._single.add(name)
        if name == b"transfer-encoding":
            self._chunked = True
            if value.strip().lower() != b"chunked":
                self._fail(InvalidRequest("the only transfer encoding is chunked"))
        if len(self._single & {b"content-length", b"transfer-encoding"}) > 1:
            self._fail(InvalidRequest("a Content-Length and a Transfer-Encoding"))

    def on_headers_complete(self) -> None:
        """Start the request, unless its head exceeds a limit."""
        self._check_head()
        super().on_headers_complete()
        self._head_since = None
        self._in_body = True
        self._body_since = self.loop.time()
        self._read_mark = (self._body_since, 0)

    def _check_head(self) -> None:
        most = self.bounds.settings.request_head_max_bytes
        if len(self.headers) > MAX_HEADERS:
            self._fail(HeadTooLarge(f"more than {MAX_HEADERS} headers"))
        if self._head_bytes or self._fed_bytes > most:
            size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
            if size > most:
                self._fail(HeadTooLarge(f"the head of the request is larger than {most} bytes"))
        if b"host" not in self._single and self.parser.get_http_version() != "1.0":
            self._fail(InvalidRequest("the Host header is missing"))
        if len(self.pipeline) >= MAX_PIPELINED:
            self._fail(InvalidRequest(f"more than {MAX_PIPELINED} requests await their responses"))

    def on_body(self, body: bytes) -> None:
        """Pass on a part of the body within the budget of the process."""
        size = len(body)
        if self._chunked:
            self._overhead -= size
        self._body_bytes += size
        if self._body_bytes > FREE_BODY_BYTES and not self.cycle.response_complete:
            if not self.bounds.hold(size):
                self._fail(
                    TooManyBodies("the bodies of all requests exceed queued.max.request.bytes")
                )
            self._held += size
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End the body."""
        self._in_body = False
        super().on_message_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        """Give back what the body held."""
        self._free_body()
        self._read_mark = (self.loop.time(), self._body_bytes)
        self._running = None
        super().on_response_complete()

    def _free_body(self) -> None:
        if self._held:
            self.bounds.free(self._held)
            self._held = 0

    # Refusals.

    def _fail(self, error: LeadlineError) -> None:
        """Stop the parser; `data_received` then refuses the request with this error."""
        self._refusal = error
        raise ValueError(error.message)

    def _refuse(self, error: LeadlineError) -> None:
        """Answer with an error and close, or only close where an answer would be another's."""
        self._refused = True
        self.bounds.refused(type(error).__name__, self._peer)
        cycle = self.cycle
        idle = cycle is None or cycle.response_complete
        own = self._in_body and not idle and not cycle.response_started
        if self.pipeline or not (idle or own):
            self.transport.abort()
            return
        if own:
            cycle.disconnected = True
            cycle.message_event.set()
        self._free_body()
        self.flow.resume_reading()
        response = self.bounds.response_to(error, self.url.decode("latin-1"))
        self.transport.write(last_response(response))
        if self.transport.can_write_eof():
            self.transport.write_eof()
        else:
            self.transport.close()  # TLS cannot end one direction only.
        self.loop.call_later(_LINGER_S, self.transport.abort)

    # The periodic examination.

    def examine(self, now: float) -> None:
        """End the connection if a head, a body or a reader is too slow."""
        if self._refused:
            return
        limits = self.bounds.settings
        if is_unconfirmed(self.transport, now, limits.transfer_grace_ms / 1000):
            self.transport.abort()
            return
        if self._head_since is not None:
            if (now - self._head_since) * 1000 > limits.request_head_timeout_ms:
                self._refuse(RequestTooSlow("the head of the request did not arrive in time"))
        elif self._in_body:
            self._examine_body(now)
        if self._written.is_too_slow(now, self.unsent_bytes(), limits):
            self.abort_response("slow reader")

    def _examine_body(self, now: float) -> None:
        since, size = self._read_mark
        if self.flow.read_paused:
            self._read_mark = (now, self._body_bytes)  # The service is slow, not the caller.
            return
        limits = self.bounds.settings
        if (now - since) * 1000 < limits.transfer_grace_ms:
            return
        if self.cycle.response_complete:
            self.abort_response("body after the response")
        elif self._body_bytes - size < (now - since) * limits.transfer_min_bytes_per_s:
            self._refuse(RequestTooSlow("the body of the request arrived too slowly"))
        else:
            self._read_mark = (now, self._body_bytes)

    def slow_body(self, now: float) -> tuple[float, int] | None:
        """Return since when a body has been arriving and what it holds, unless it is new."""
        grace_s = self.bounds.settings.transfer_grace_ms / 1000
        if not self._held or not self._in_body or self._refused or self.flow.read_paused:
            return None
        return (self._body_since, self._held) if now - self._body_since > grace_s else None

    def refuse_body(self) -> None:
        """Refuse the request whose body is arriving."""
        self._refuse(
            TooManyBodies("slow bodies hold half of queued.max.request.bytes: send faster")
        )

    def unsent_bytes(self) -> int:
        """Return how much of a response waits for a slow reader."""
        flow: FlowControl | None = self.flow
        if flow is None or not flow.write_paused or self._refused:
            return 0
        return self.transport.get_write_buffer_size()

    def abort_response(self, reason: str) -> None:
        """End the connection at once."""
        self._refused = True
        self.bounds.refused(reason, self._peer)
        self.transport.abort()


def answer_of(error: LeadlineError) -> bytes:
    """Return a whole response, for a connection that is closed after it."""
    return last_response(error_response(error))


def last_response(response: Response) -> bytes:
    """Return a response as it is sent on a connection that is closed after it."""
    headers = b"".join(b"%b: %b\r\n" % header for header in response.raw_headers)
    head = STATUS_LINE[response.status_code] + headers + b"connection: close\r\n\r\n"
    return head + bytes(response.body)
