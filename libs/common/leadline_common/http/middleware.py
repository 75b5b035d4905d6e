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
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from leadline_client.errors import ClusterChanged
from leadline_client.transport import CLUSTER_ID_HEADER
from leadline_common import cause
from leadline_common.http.errors import error_response, unexpected_error
from leadline_common.metrics import Metrics

BODY_KEY = "leadline.body"
_CAUSE_HEADER = cause.HEADER.lower().encode()
_CLUSTER_HEADER = CLUSTER_ID_HEADER.encode()

logger = structlog.get_logger(__name__)


class BoundedBody:
    """The `receive` of one request, which limits its body to `limit` bytes.

    A route may set another `limit` before it reads. A declared length above the limit is
    refused before any of the body is read, a chunked body as soon as it exceeds the limit.
    """

    __slots__ = ("_receive", "_seen", "_stated", "limit")

    def __init__(self, scope: Scope, receive: Receive, limit: int) -> None:
        stated = Headers(scope=scope).get("content-length", "")
        self._stated = int(stated) if stated.isdecimal() else 0
        self._receive = receive
        self._seen = 0
        self.limit = limit

    async def receive(self) -> Message:
        """Return the next message of the request; raises HTTPException 413 above the limit."""
        if self._stated > self.limit:
            raise self._too_large()
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
    """Set the body limit of one request, before its body is read."""
    scope[BODY_KEY].limit = max_bytes


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

    `cluster_id` returns the id of the service's cluster, "" while it is not known.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        metrics: Metrics,
        max_body_bytes: int,
        route_of: Callable[[Scope], str],
        cluster_id: Callable[[], str],
    ) -> None:
        self._app = app
        self._cluster_id = cluster_id
        self._max_body_bytes = max_body_bytes
        self._route_of = route_of
        self._requests: Counter = metrics.counter(
            "http_requests", "Requests answered.", ("method", "route", "status")
        )
        self._under_way: Gauge = metrics.gauge(
            "http_in_progress_requests", "Requests being served now, including long polls."
        )
        self._seconds: Histogram = metrics.histogram(
            "http_request_seconds",
            "Time from a request's headers to the end of its response, including long polls.",
            ("method", "route"),
        )
        self._measured: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        method = scope["method"]
        if method == "HEAD":
            scope = {**scope, "method": "GET"}
        with cause.cause_scope(cause.accept_cause(_stated(scope, _CAUSE_HEADER))) as cause_id:
            cluster_id = self._cluster_id()
            answer = ResponseSender(send, cause_id, cluster_id, head=method == "HEAD")
            self._under_way.inc()
            try:
                await self._serve(scope, receive, answer, cluster_id)
            finally:
                self._under_way.dec()
                self._measure(method, scope, answer.status, time.perf_counter() - started)

    def _measure(self, method: str, scope: Scope, status: int, seconds: float) -> None:
        labels = (method, self._route_of(scope), status)
        found = self._measured.get(labels)
        if found is None:
            # Looking a labelled metric up costs more than adding to it.
            found = self._requests.labels(*labels), self._seconds.labels(*labels[:2])
            self._measured[labels] = found
        count, distribution = found
        count.inc()
        distribution.observe(seconds)

    async def _serve(
        self, scope: Scope, receive: Receive, answer: ResponseSender, cluster_id: str
    ) -> None:
        meant_for = _stated(scope, _CLUSTER_HEADER)
        if cluster_id and meant_for not in (None, cluster_id):
            refusal = error_response(ClusterChanged.between(str(meant_for), cluster_id))
            await refusal(scope, receive, answer.send)
            return
        body = BoundedBody(scope, receive, self._max_body_bytes)
        scope[BODY_KEY] = body
        try:
            await self._app(scope, body.receive, answer.send)
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


def _stated(scope: Scope, header: bytes) -> str | None:
    for name, value in scope["headers"]:
        if name == header:
            return str(value, "latin-1")
    return None
