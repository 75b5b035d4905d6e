"""The middleware around all routes of a service.

One plain ASGI layer gives each request a cause id, refuses it if it is meant for another
cluster, limits its body, counts and times it, answers HEAD like GET without the body, and
turns an unexpected exception into an error response without internal details. It costs a few
microseconds per request.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import structlog
from prometheus_client import Counter, Gauge, Histogram
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from leadline_client.errors import ClusterChanged, InvalidRequest, LeadlineError
from leadline_client.transport import CLUSTER_ID_HEADER
from leadline_common import cause
from leadline_common.http.errors import error_response, unexpected_error
from leadline_common.http.internal import PEER_KEY
from leadline_common.http.json_bodies import is_json, problem_of_json, problem_of_target
from leadline_common.http.origins import AllowedNames, handshake_refusal, refusal
from leadline_common.metrics import WAIT_BUCKETS, Metrics
from leadline_common.tracing import spans
from leadline_common.waiting import Waits, waits_measured

BODY_KEY = "leadline.body"
WITHOUT_BODY = ("GET", "HEAD")
"""Methods whose body has no meaning, so that it is neither checked nor forwarded."""
_LENGTH_DIGITS = 20
"""More than any length has; a longer number is refused by the HTTP parser."""
_CAUSE_HEADER = cause.HEADER.lower().encode()
_CLUSTER_HEADER = CLUSTER_ID_HEADER.encode()
_UNTRACED = frozenset({"/healthz", "/readyz", "/metrics"})
"""What monitoring asks for every few seconds."""

logger = structlog.get_logger(__name__)


class BoundedBody:
    """The `receive` of one request, which limits its body to `limit` bytes.

    A route may set another `limit` before it reads. A declared length above the limit is
    refused before any of the body is read, a chunked body as soon as it exceeds the limit. A body
    that may be JSON is passed on as a whole, and only if any JSON parser accepts it, unless the
    route decodes strictly itself (`limit_body`). That of a GET has no meaning: it is not checked,
    because a streamed response would break off where the check fails.
    """

    __slots__ = ("_receive", "_seen", "_stated", "checks_json", "limit")

    def __init__(self, scope: Scope, receive: Receive, limit: int) -> None:
        headers = Headers(scope=scope)
        stated = headers.get("content-length", "")
        self._stated = int(stated) if stated.isdecimal() and len(stated) < _LENGTH_DIGITS else 0
        self._receive = receive
        self._seen = 0
        self.limit = limit
        self.checks_json = scope["method"] not in WITHOUT_BODY and is_json(
            headers.get("content-type", "").encode("latin-1")
        )

    async def receive(self) -> Message:
        """Return the next message of the request.

        Raises HTTPException: 413 above the limit, 400 for JSON that cannot be represented.
        """
        if self._stated > self.limit:
            raise self._too_large()
        message = await self._next()
        if not self.checks_json or message["type"] != "http.request":
            return message
        body = message.get("body", b"")
        if message.get("more_body"):
            body, message = await self._rest(body)
            if message["type"] != "http.request":
                return message
        if body and (problem := problem_of_json(body)) is not None:
            raise HTTPException(400, f"body: {problem}")
        return {"type": "http.request", "body": body, "more_body": False}

    async def _rest(self, first: bytes) -> tuple[bytes, Message]:
        """Return the whole body and its last message."""
        chunks = [first]
        while True:
            message = await self._next()
            chunks.append(message.get("body", b""))
            if not message.get("more_body"):
                return b"".join(chunks), message

    async def _next(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            self._seen += len(message.get("body", b""))
            if self._seen > self.limit:
                raise self._too_large()
        return message

    def _too_large(self) -> HTTPException:
        # Not a LeadlineError: the framework passes only its own exceptions out of body parsing.
        return HTTPException(413, f"the body is larger than {self.limit} bytes")


def limit_body(scope: Scope, max_bytes: int) -> None:
    """Set the body limit of one request, before its body is read.

    Only for routes that decode strictly (`json_bodies.decode_body`), or accept any octets.
    """
    body: BoundedBody = scope[BODY_KEY]
    body.limit = max_bytes
    body.checks_json = False


class ResponseSender:
    """The `send` of one request: adds headers, keeps the status, drops the body of HEAD.

    The headers are the cause id and, if it is known, the cluster's id.
    """

    __slots__ = ("_head", "_headers", "_send", "status")

    def __init__(self, send: Send, cause_id: str, cluster_id: str, *, head: bool) -> None:
        self._send = send
        self._headers = [(_CAUSE_HEADER, cause_id.encode())]
        if cluster_id:
            self._headers.append((_CLUSTER_HEADER, cluster_id.encode()))
        self._head = head
        self.status = 0

    async def send(self, message: Message) -> None:
        """Send one message of the response."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message = {**message, "headers": [*message.get("headers", ()), *self._headers]}
        elif self._head:
            message = {**message, "body": b""}
        await self._send(message)


class RequestMiddleware:
    """The ASGI middleware around all routes of one service.

    `cluster_id` returns the id of the service's cluster, "" while it is not known. `names` are the
    names of this server and the origins of trusted pages; None checks neither.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        metrics: Metrics,
        max_body_bytes: int,
        route_of: Callable[[Scope], str],
        cluster_id: Callable[[], str],
        names: AllowedNames | None,
    ) -> None:
        self._app = app
        self._names = names
        self._cluster_id = cluster_id
        self._max_body_bytes = max_body_bytes
        self._route_of = route_of
        self._requests: Counter = metrics.counter(
            "http_requests", "Requests answered.", ("method", "route", "status")
        )
        self._refused: Counter = metrics.counter(
            "http_refused_requests",
            "Requests and handshakes refused for their Host, their origin or their type.",
            ("reason",),
        )
        self._under_way = 0
        under_way: Gauge = metrics.gauge(
            "http_in_progress_requests", "Requests being served now, including long polls."
        )
        under_way.set_function(lambda: self._under_way)
        self._seconds: Histogram = metrics.histogram(
            "http_request_seconds",
            "Time from a request's headers to the end of its response, without the time that it "
            "waited for something new because its caller asked for that.",
            ("method", "route"),
        )
        self._waits: Histogram = metrics.histogram(
            "http_wait_seconds",
            "Time that a request waited for something new because its caller asked for that (long "
            "polls, event streams); requests that did not wait are not counted.",
            ("method", "route"),
            buckets=WAIT_BUCKETS,
        )
        self._measured: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._other(scope, receive, send)
            return
        started = time.perf_counter()
        method = scope["method"]
        if method == "HEAD":
            scope = {**scope, "method": "GET"}
        accepted = cause.accept_cause(_stated(scope, _CAUSE_HEADER))
        with cause.cause_scope(accepted) as cause_id, waits_measured() as waits:
            cluster_id = self._cluster_id()
            answer = ResponseSender(send, cause_id, cluster_id, head=method == "HEAD")
            self._under_way += 1
            try:
                if spans.is_on() and scope["path"] not in _UNTRACED:
                    await self._serve_traced(scope, receive, answer, cluster_id, waits)
                else:
                    await self._serve(scope, receive, answer, cluster_id)
            finally:
                self._under_way -= 1
                elapsed = time.perf_counter() - started
                self._measure(method, scope, answer.status, elapsed, waits)

    async def _serve_traced(
        self,
        scope: Scope,
        receive: Receive,
        answer: ResponseSender,
        cluster_id: str,
        waits: Waits,
    ) -> None:
        """Serve one request as a span; other services decide whether theirs are recorded."""
        with spans.server_span(scope["headers"], trusted=PEER_KEY in scope) as span:
            try:
                await self._serve(scope, receive, answer, cluster_id)
            finally:
                if span.is_recording:
                    _describe(span, scope, self._route_of(scope), answer.status, waits)

    async def _other(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the lifespan or a WebSocket, whose handshake is refused with status 403."""
        if scope["type"] == "websocket" and self._names is not None:
            error = handshake_refusal(dict(scope["headers"]), self._names)
            if error is not None:
                self._refused.labels(type(error).__name__).inc()
                await send({"type": "websocket.close", "code": 1008, "reason": error.message})
                return
        await self._app(scope, receive, send)

    def _refusal(self, scope: Scope) -> LeadlineError | None:
        """Return the error for a request that no route may see.

        No page can send one to the internal listener: that takes a certificate.
        """
        if self._names is not None and PEER_KEY not in scope:
            error = refusal(scope["method"], dict(scope["headers"]), self._names)
            if error is not None:
                self._refused.labels(type(error).__name__).inc()
                return error
        problem = problem_of_target(scope)
        return None if problem is None else InvalidRequest(problem)

    def _measure(
        self, method: str, scope: Scope, status: int, seconds: float, waits: Waits
    ) -> None:
        labels = (method, self._route_of(scope), status)
        found = self._measured.get(labels)
        if found is None:
            # Looking a labelled metric up costs more than adding to it.
            found = self._requests.labels(*labels), self._seconds.labels(*labels[:2])
            self._measured[labels] = found
        count, distribution = found
        count.inc()
        # A wait that was cut off with its request may end after it.
        distribution.observe(max(0.0, seconds - waits.seconds))
        if waits.has_waited:
            self._waits.labels(*labels[:2]).observe(waits.seconds)

    async def _serve(
        self, scope: Scope, receive: Receive, answer: ResponseSender, cluster_id: str
    ) -> None:
        meant_for = _stated(scope, _CLUSTER_HEADER)
        if cluster_id and meant_for not in (None, cluster_id):
            refusal = error_response(ClusterChanged.between(str(meant_for), cluster_id))
            await refusal(scope, receive, answer.send)
            return
        if (error := self._refusal(scope)) is not None:
            await error_response(error)(scope, receive, answer.send)
            return
        body = BoundedBody(scope, receive, self._max_body_bytes)
        scope[BODY_KEY] = body
        try:
            await self._app(scope, body.receive, answer.send)
        except ClientDisconnect:
            # The caller, or a limit of the connection, ended the request within its body.
            spans.current_span().fail("disconnected")
        except Exception:
            logger.exception("request failed", method=scope["method"], path=scope["path"])
            if answer.status:
                raise  # The response has started: only a broken connection shows the failure.
            response = error_response(unexpected_error(scope, "internal error"))
            await response(scope, receive, answer.send)
        except asyncio.CancelledError:
            # The server is stopping and will not wait any longer for this request.
            if answer.status:
                raise
            response = error_response(unexpected_error(scope, "the server is stopping"))
            await response(scope, receive, answer.send)
        finally:
            # The body refers to the server's cycle, which refers to the scope: this reference
            # cycle would keep the buffers of its connection until the garbage collector runs.
            scope.pop(BODY_KEY, None)


def _describe(span: spans.Span, scope: Scope, route: str, status: int, waits: Waits) -> None:
    """Add what OpenTelemetry's conventions say of a server's span."""
    method = scope["method"]
    span.rename(f"{method} {route}")
    span.set(
        {
            "http.request.method": method,
            "http.route": route,
            "url.path": scope["path"],
            "url.scheme": scope["scheme"],
        }
    )
    if status:  # Whoever is gone has got none.
        span.set({"http.response.status_code": status})
    if PEER_KEY in scope:
        span.set({"leadline.caller": str(scope[PEER_KEY])})
    if waits.has_waited:
        span.set({"leadline.asked_wait_ms": round(waits.seconds * 1000)})
    if status >= 500:
        span.fail(str(status))


def _stated(scope: Scope, header: bytes) -> str | None:
    for name, value in scope["headers"]:
        if name == header:
            return str(value, "latin-1")
    return None
