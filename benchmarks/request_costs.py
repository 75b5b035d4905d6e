"""What a service adds to each request: a token, a quota, and tracing.

Run ``python benchmarks/request_costs.py``. One request after the other goes through all layers of
an application to an endpoint that answers at once, without a network. In each round every variant
serves as many requests; the median of the rounds counts. The ratios are to a cluster without
authentication. Recorded spans are encoded as for a collector, and dropped.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence
from typing import Any, Final

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from starlette.types import Receive, Scope, Send

from leadline_common.access.operations import CONNECT, Need
from leadline_common.access.rights import Grant, Role
from leadline_common.access.tokens import RANDOM_BYTES, KeptToken, hash_of, new_token
from leadline_common.access.users import User, Users
from leadline_common.http.access import Authentication
from leadline_common.http.app import ServiceApp, create_app
from leadline_common.http.bulk import send_body
from leadline_common.http.operation import Operation
from leadline_common.metrics import Metrics
from leadline_common.quotas.limits import Limits
from leadline_common.tracing.otel import OtelTracer
from leadline_common.tracing.spans import use_tracer

REQUESTS: Final = 5_000
ROUNDS: Final = 15
USERS: Final = 1_000
RATIOS: Final = (0.0, 0.01, 1.0)
BEYOND_REACH: Final = 10**12
"""A quota that no benchmark uses up."""


class Endpoint:
    """The endpoint of the benchmark; a plain function would get a parsed request."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer at once."""
        del scope, receive
        await send_body(send, b"{}", b"application/json")


def anybody(operation: str) -> Need:
    """Let everybody who may connect use every operation."""
    del operation
    return CONNECT


def build(*, authentication: bool, quota: int | None) -> tuple[ServiceApp, Scope]:
    """Return an application and the request that it is to serve."""
    app = create_app(
        title="t", version="1", description="", metrics=Metrics(process=False), need_of=anybody
    )
    found = Operation("GET", "/v1/things/{thing}", "things", "Get", "", tags=["things"])
    app.add_asgi_route(found, Endpoint())
    token = new_token(bytes(RANDOM_BYTES))
    one = User((Grant.of_all(Role.VIEWER),), (KeptToken(token.id, hash_of(token), 0),))
    users = Users.of(
        {f"u{number}": User() for number in range(USERS - 1)}
        | {"u": one.limited(Limits(requests_per_s=quota))}
    )
    headers = [(b"host", b"127.0.0.1:9092"), (b"accept", b"*/*")]
    if authentication:
        headers.append((b"authorization", f"Bearer {token}".encode()))
        app.authentication = Authentication(required=True, users=lambda: users)
        app.quotas.users = lambda: users
    scope: dict[str, Any] = {
        "type": "http",
        "method": "GET",
        "path": "/v1/things/1",
        "raw_path": b"/v1/things/1",
        "query_string": b"",
        "headers": headers,
        "client": ("127.0.0.1", 1),
        "http_version": "1.1",
        "scheme": "http",
        "root_path": "",
    }
    return app, scope


async def serve(app: ServiceApp, scope: Scope) -> float:
    """Serve the requests of one round; return microseconds for each."""
    statuses = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    began = time.perf_counter()
    for _ in range(REQUESTS):
        await app(dict(scope), receive, send)
    elapsed = time.perf_counter() - began
    assert set(statuses) == {200}, set(statuses)
    return elapsed / REQUESTS * 1e6


class Dropping(SpanExporter):
    """Encodes spans as for a collector."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Encode and drop."""
        encode_spans(spans).SerializeToString()
        return SpanExportResult.SUCCESS


def tracer(ratio: float) -> OtelTracer:
    """Return a tracer that records this share of the requests."""
    provider = TracerProvider(sampler=ParentBased(TraceIdRatioBased(ratio)))
    provider.add_span_processor(BatchSpanProcessor(Dropping()))
    return OtelTracer(provider, ratio)


async def main() -> None:
    """Print the medians and their ratios."""
    plain = build(authentication=False, quota=None)
    variants = {
        "no authentication": plain,
        "a token": build(authentication=True, quota=None),
        "a token and a quota of requests": build(authentication=True, quota=BEYOND_REACH),
        **{f"traced, {ratio:.0%} recorded": plain for ratio in RATIOS},
    }
    tracers = {f"traced, {ratio:.0%} recorded": tracer(ratio) for ratio in RATIOS}
    rounds: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(ROUNDS):
        for name, (app, scope) in variants.items():
            use_tracer(tracers.get(name))
            rounds[name].append(await serve(app, scope))
            use_tracer(None)
    base = statistics.median(rounds["no authentication"])
    for name, found in rounds.items():
        median = statistics.median(found)
        print(f"{name}: {median:.1f} us a request, {median / base:.2f} of no authentication")


if __name__ == "__main__":
    asyncio.run(main())
