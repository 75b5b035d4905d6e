"""Spans of a client: only if its program uses OpenTelemetry, and then of every request."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import StatusCode

from leadline_client.errors import Unreachable
from leadline_client.tracing import operation_span, traced, traced_async
from leadline_client.transport import Request, Response
from tests.support.tracing.recorded import Recorded, attributes, provider_and_recorded, trace_id

URL = "http://broker:9092/v1/topics"
USES_NOTHING = """
import sys
from leadline_client.client import Client
from leadline_client.errors import LeadlineError
from leadline_client.retry import RetryPolicy
try:
    Client("127.0.0.1:1", policy=RetryPolicy(timeout_s=0.1, first_contact_s=0.1)).brokers()
except LeadlineError:
    print(sorted(name for name in sys.modules if name.startswith("opentelemetry")))
"""


class Answering:
    """A transport that keeps its requests."""

    def __init__(self, status: int = 200, failure: Exception | None = None) -> None:
        self.requests: list[Request] = []
        self._status = status
        self._failure = failure

    def send(self, request: Request) -> Response:
        self.requests.append(request)
        if self._failure is not None:
            raise self._failure
        return Response(self._status, {"x-leadline-cause": "c1"}, b"")

    def close(self) -> None: ...


class AnsweringAsync:
    def __init__(self, failure: BaseException | None = None) -> None:
        self.requests: list[Request] = []
        self._failure = failure

    async def send(self, request: Request) -> Response:
        self.requests.append(request)
        if self._failure is not None:
            raise self._failure
        return Response(200, {}, b"")

    async def aclose(self) -> None: ...


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorded]:
    """What a program records that has set a tracer provider."""
    provider, found = provider_and_recorded()

    def get_tracer_provider() -> TracerProvider:
        return provider

    monkeypatch.setattr(trace, "get_tracer_provider", get_tracer_provider)
    yield found
    provider.shutdown()


def test_a_program_without_opentelemetry_gets_its_own_transport_back() -> None:
    plain, plain_async = Answering(), AnsweringAsync()
    assert traced(plain) is plain
    assert traced_async(plain_async) is plain_async


def test_a_client_alone_imports_nothing_of_opentelemetry() -> None:
    done = subprocess.run(
        [sys.executable, "-c", USES_NOTHING], capture_output=True, text=True, check=False
    )
    assert done.stdout == "[]\n", done.stderr


def test_a_request_is_a_child_of_its_operation_and_carries_the_trace(recorded: Recorded) -> None:
    plain = Answering()
    with operation_span("create_topic"):
        traced(plain).send(Request("POST", URL, headers={"content-type": "application/json"}))
    request, operation = recorded.spans
    assert (request.name, operation.name) == ("POST", "leadline create_topic")
    assert request.parent == operation.context
    (sent,) = plain.requests
    assert request.context is not None
    assert sent.headers["traceparent"].split("-")[1:3] == [
        f"{trace_id(request):032x}",
        f"{request.context.span_id:016x}",
    ]
    assert sent.headers["content-type"] == "application/json"
    found = attributes(request)
    assert (found["leadline.cause"], found["http.response.status_code"]) == ("c1", 200)
    assert (found["server.address"], found["server.port"]) == ("broker", 9092)


async def test_an_asynchronous_request_carries_the_trace(recorded: Recorded) -> None:
    plain = AnsweringAsync()
    await traced_async(plain).send(Request("GET", URL))
    assert recorded.names == ["GET"]
    assert "traceparent" in plain.requests[0].headers


def test_a_refusal_is_an_error_of_the_request(recorded: Recorded) -> None:
    traced(Answering(421)).send(Request("POST", URL))
    span = recorded.one("POST")
    assert span.status.status_code is StatusCode.ERROR
    assert attributes(span)["error.type"] == "421"


def test_a_failure_is_raised_unchanged_and_recorded(recorded: Recorded) -> None:
    failure = Unreachable("no connection, nothing was sent")
    with pytest.raises(Unreachable) as raised:
        traced(Answering(failure=failure)).send(Request("GET", URL))
    assert raised.value is failure
    found = attributes(recorded.one("GET"))
    assert (found["error.type"], found["leadline.outcome"]) == ("Unreachable", "refused")


async def test_a_cancelled_operation_is_an_error(recorded: Recorded) -> None:
    with pytest.raises(asyncio.CancelledError), operation_span("fetch"):
        await traced_async(AnsweringAsync(asyncio.CancelledError())).send(Request("GET", URL))
    assert recorded.names == ["GET", "leadline fetch"]
    for span in recorded.spans:
        assert span.status.status_code is StatusCode.ERROR
        assert attributes(span)["error.type"] == "cancelled"


async def test_what_a_task_does_after_the_operation_that_began_it_is_no_part_of_its_trace(
    recorded: Recorded,
) -> None:
    """Otherwise all batches of a busy producer belong to the request with the first record."""
    ended = asyncio.Event()

    async def later() -> None:
        with operation_span("first"):
            await ended.wait()
        with operation_span("second"):
            await traced_async(AnsweringAsync()).send(Request("POST", URL))
        await traced_async(AnsweringAsync()).send(Request("GET", URL))

    with operation_span("request"):
        task = asyncio.create_task(later())
        await asyncio.sleep(0)
    ended.set()
    await task
    traces = {span.name: trace_id(span) for span in recorded.spans}
    assert traces["leadline request"] == traces["leadline first"]
    assert traces["leadline second"] == traces["POST"]
    assert len(set(traces.values())) == 3
    assert recorded.one("GET").parent is None


async def test_a_trace_that_came_from_elsewhere_goes_on(recorded: Recorded) -> None:
    """A program may pass on a trace without a span of its own."""
    flags = trace.TraceFlags(trace.TraceFlags.SAMPLED)
    remote = trace.SpanContext(7, 8, is_remote=True, trace_flags=flags)
    with trace.use_span(trace.NonRecordingSpan(remote)), operation_span("fetch"):
        pass
    assert trace_id(recorded.one("leadline fetch")) == 7


def test_the_address_that_is_recorded_has_no_query(recorded: Recorded) -> None:
    traced(Answering()).send(Request("GET", URL, params={"topics": "secret"}))
    assert attributes(recorded.one("GET"))["url.full"] == URL
