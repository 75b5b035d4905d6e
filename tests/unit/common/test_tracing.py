"""Spans within one process: what is recorded, whose child it is, and who decides."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import structlog
from opentelemetry.trace import StatusCode
from starlette.types import Message

from leadline_client.errors import NotEnoughReplicas
from leadline_common.cause import cause_scope, current_cause
from leadline_common.http.internal import PEER_KEY
from leadline_common.logs import configure_logging
from leadline_common.tracing import spans
from leadline_common.tracing.traceparent import HEADER, TraceParent, written
from leadline_common.zk.client import ZkClient
from leadline_common.zk.errors import BadVersion, MultiFailed, NoNode
from leadline_common.zk.ops import CheckOp, CreateOp, MultiResults, SetOp
from leadline_common.zk.tracing import trace_request
from tests.support.tracing.recorded import Recorded, attributes, recording, trace_id
from tests.unit.common.http_app import CALLER, build

PARENT = TraceParent(0xABC, 0xDEF, sampled=True)
ALWAYS_SAMPLED = TraceParent(1 << 64, 0xDEF, sampled=True)
"""Its trace id has the lowest number that a sampler by ratio looks at."""


@pytest.fixture
def recorded() -> Iterator[Recorded]:
    with recording() as found:
        yield found


async def get(
    path: str, *, peer: bool = False, cause: str = "", traceparent: str = ""
) -> httpx.Response:
    inner: Any = build()

    async def served(scope: Any, receive: Any, send: Any) -> None:
        await inner({**scope, PEER_KEY: CALLER} if peer else scope, receive, send)

    transport = httpx.ASGITransport(served)
    async with httpx.AsyncClient(transport=transport, base_url="http://t") as client:
        stated = {"x-leadline-cause": cause, "traceparent": traceparent}
        return await client.get(path, headers={n: v for n, v in stated.items() if v})


# -- requests ----------------------------------------------------------------


async def test_a_request_is_a_span_with_route_status_and_cause(recorded: Recorded) -> None:
    await get("/v1/things/3", cause="job-1")
    (span,) = recorded.spans
    assert span.name == "GET /v1/things/{number}"
    found = attributes(span)
    assert found["leadline.cause"] == "job-1"
    assert found["http.response.status_code"] == 200
    assert (found["http.route"], found["url.path"]) == ("/v1/things/{number}", "/v1/things/3")


async def test_an_error_response_says_its_code_and_outcome(recorded: Recorded) -> None:
    await get("/v1/errors/timeout")
    (span,) = recorded.spans
    found = attributes(span)
    assert (found["leadline.error_code"], found["leadline.outcome"]) == (50450, "unknown")
    assert span.status.status_code is StatusCode.ERROR


async def test_a_refusal_of_the_caller_s_request_is_no_error_of_the_service(
    recorded: Recorded,
) -> None:
    await get("/v1/errors/unknown")
    (span,) = recorded.spans
    assert attributes(span)["leadline.outcome"] == "refused"
    assert span.status.status_code is StatusCode.UNSET


async def test_a_request_whose_client_is_gone_is_an_error_without_a_status(
    recorded: Recorded,
) -> None:
    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(_: Message) -> None:
        pytest.fail("nobody is there")

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/bodies",
        "raw_path": b"/v1/bodies",
        "query_string": b"",
        "headers": [(b"host", b"t"), (b"content-type", b"text/plain")],
        "client": ("127.0.0.1", 1),
        "http_version": "1.1",
        "scheme": "http",
        "root_path": "",
    }
    await build()(scope, receive, send)
    (span,) = recorded.spans
    assert span.status.status_code is StatusCode.ERROR
    found = attributes(span)
    assert found["error.type"] == "disconnected"
    assert "http.response.status_code" not in found


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics"])
async def test_what_monitoring_asks_for_is_not_recorded(path: str, recorded: Recorded) -> None:
    await get(path)
    assert recorded.names == []


async def test_nothing_is_recorded_without_a_tracer() -> None:
    with recording() as found:
        spans.use_tracer(None)
        await get("/v1/things/3", traceparent=written(PARENT))
        assert spans.current() is None
        assert spans.propagation() == {}
        assert not spans.span("x").is_recording
    assert found.names == []


# -- who decides -------------------------------------------------------------


async def test_a_client_s_trace_continues(recorded: Recorded) -> None:
    await get("/v1/things/3", traceparent=written(PARENT))
    (span,) = recorded.spans
    assert trace_id(span) == PARENT.trace_id
    assert span.parent is not None
    assert span.parent.span_id == PARENT.span_id


@pytest.mark.parametrize(
    "header", ["garbage", "00-" + "0" * 32 + "-" + "1" * 16 + "-01", "x" * 9000]
)
async def test_an_invalid_trace_is_ignored_and_the_request_served(
    header: str, recorded: Recorded
) -> None:
    assert (await get("/v1/things/3", traceparent=header)).status_code == 200
    (span,) = recorded.spans
    assert span.parent is None


@pytest.mark.parametrize(("draw", "count"), [(0.09, 1), (0.11, 0)])
async def test_a_client_cannot_have_more_recorded_than_the_ratio(draw: float, count: int) -> None:
    with recording(0.1, lambda: draw) as found:
        await get("/v1/things/3", traceparent=written(ALWAYS_SAMPLED))
    assert len(found.names) == count


async def test_nothing_that_a_client_sends_is_recorded_at_ratio_zero() -> None:
    with recording(0.0, lambda: 0.0) as found:
        await get("/v1/things/3", traceparent=written(ALWAYS_SAMPLED))
        await get("/v1/things/3")
    assert found.names == []


async def test_a_client_may_ask_for_no_recording(recorded: Recorded) -> None:
    await get("/v1/things/3", traceparent=written(PARENT._replace(sampled=False)))
    assert recorded.names == []


async def test_another_service_decides_whether_its_request_is_recorded() -> None:
    with recording(0.0, lambda: 1.0) as found:
        await get("/v1/things/3", peer=True, traceparent=written(PARENT))
        await get("/v1/things/3", peer=True, traceparent=written(PARENT._replace(sampled=False)))
        await get("/v1/things/3", peer=True)
    (span,) = found.spans
    assert trace_id(span) == PARENT.trace_id
    assert attributes(span)["leadline.caller"] == str(CALLER)


async def test_services_begin_no_traces_with_requests_of_their_own(recorded: Recorded) -> None:
    await get("/v1/things/3", peer=True)
    assert recorded.names == []


async def test_the_framework_makes_no_spans_of_its_own(recorded: Recorded) -> None:
    telemetry = build()._native_telemetry.config
    assert not any(telemetry[name] for name in ("tracing", "metrics", "logs", "auto_configure"))


# -- within a process --------------------------------------------------------


def test_a_span_is_a_child_of_the_current_one_and_nothing_without_one(recorded: Recorded) -> None:
    with spans.span("alone"):
        pass
    with spans.root_span("outer"), spans.span("inner", {"n": 3}):
        pass
    inner, outer = recorded.spans
    assert recorded.names == ["inner", "outer"]
    assert inner.parent is not None
    assert inner.parent == outer.context
    assert attributes(inner)["n"] == 3


def test_a_trace_that_is_not_recorded_is_passed_on_as_such() -> None:
    with recording(0.0) as found, spans.root_span("outer"):
        assert spans.propagation()[HEADER].endswith("-00")
        with spans.span("inner"):
            pass
    assert found.names == []


def test_an_error_that_leaves_a_span_is_its_status(recorded: Recorded) -> None:
    with pytest.raises(NotEnoughReplicas), spans.root_span("produce"):
        raise NotEnoughReplicas("1 of 2")
    span = recorded.one("produce")
    assert span.status.status_code is StatusCode.ERROR
    assert attributes(span)["error.type"] == "NotEnoughReplicas"
    assert attributes(span)["leadline.outcome"] == "refused"


async def test_another_task_continues_a_span_by_its_name(recorded: Recorded) -> None:
    with spans.root_span("decide"):
        decided = spans.current()
    assert decided is not None
    with spans.span_under(decided, "dispatch"):
        pass
    with spans.span_under(None, "nothing"):
        pass
    assert recorded.names == ["decide", "dispatch"]
    assert trace_id(recorded.one("dispatch")) == decided.trace_id


async def test_a_task_that_outlives_its_request_has_neither_its_trace_nor_its_cause(
    recorded: Recorded,
) -> None:
    async def look() -> tuple[str, TraceParent | None]:
        return current_cause(), spans.current()

    with cause_scope("job-1"), spans.root_span("request"):
        seen = await asyncio.create_task(look(), context=spans.background_context())
        assert (await look())[0] == "job-1"
        assert spans.current() is not None
    assert seen == ("", None)


async def test_a_span_that_has_ended_is_no_parent_of_later_requests(recorded: Recorded) -> None:
    ended = asyncio.Event()

    async def later() -> TraceParent | None:
        await ended.wait()
        return spans.current()

    with spans.root_span("request"):
        task = asyncio.create_task(later())
        await asyncio.sleep(0)
    ended.set()
    assert await task is None


def test_log_lines_name_the_trace(recorded: Recorded) -> None:
    root, stream = logging.getLogger(), io.StringIO()
    handlers, level = root.handlers, root.level
    try:
        configure_logging("broker", 3, stream=stream)
        with spans.root_span("request"):
            found = spans.current()
            structlog.get_logger("leadline").info("inside")
        structlog.get_logger("leadline").info("outside")
    finally:
        root.handlers, root.level = handlers, level
        structlog.reset_defaults()
    inside, outside = map(json.loads, stream.getvalue().splitlines())
    assert found is not None
    assert int(inside["trace_id"], 16) == found.trace_id
    assert int(inside["span_id"], 16) == found.span_id
    assert "trace_id" not in outside


# -- ZooKeeper ---------------------------------------------------------------


def answered(result: object) -> asyncio.Future[Any]:
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)
    return future


async def zookeeper_span(recorded: Recorded, operation: str, result: object, *parts: object) -> Any:
    with spans.root_span("request"):
        trace_request(answered(result), operation, "/a", parts)
        await asyncio.sleep(0)
    return recorded.one(f"zookeeper {operation}")


async def test_a_multi_counts_its_operations_and_names_its_transaction(recorded: Recorded) -> None:
    ops = CreateOp("/a"), SetOp("/b", b"", 1), SetOp("/c", b"", 2), CheckOp("/d", 0)
    span = await zookeeper_span(recorded, "multi", MultiResults((), 77), *ops)
    found = attributes(span)
    assert found["db.operation.batch.size"] == 4
    assert [found[f"zookeeper.multi.{kind}"] for kind in ("create", "set", "check")] == [1, 2, 1]
    assert (found["zookeeper.path"], found["zookeeper.zxid"]) == ("/a", 77)
    assert span.status.status_code is StatusCode.UNSET


@pytest.mark.parametrize("error", [BadVersion("/a"), MultiFailed(1, BadVersion("/b"))])
async def test_a_version_conflict_is_an_error(error: Exception, recorded: Recorded) -> None:
    span = await zookeeper_span(recorded, "multi", error)
    assert span.status.status_code is StatusCode.ERROR
    assert attributes(span)["error.type"] == type(error).__name__


async def test_a_missing_node_is_an_answer(recorded: Recorded) -> None:
    span = await zookeeper_span(recorded, "get", NoNode("/a"))
    assert span.status.status_code is StatusCode.UNSET
    assert attributes(span)["error.type"] == "NoNode"


async def test_a_request_beside_any_span_is_not_recorded(recorded: Recorded) -> None:
    trace_request(answered(None), "sync", "/", ())
    await asyncio.sleep(0)
    assert recorded.names == []


def test_every_request_of_a_session_goes_where_it_is_recorded() -> None:
    # Only the heartbeat, which no request causes, goes past it.
    assert "trace_request" in ZkClient._submit.__code__.co_names
