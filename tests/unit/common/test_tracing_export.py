"""Sending spans: never in anybody's way, whatever the collector does; off unless asked for."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from structlog.testing import capture_logs

from leadline_common.settings import BrokerSettings, SettingsError
from leadline_common.tracing import exporting, sdk, spans
from leadline_common.tracing.exporting import traced, traces_url
from tests.support.tracing.collector import collecting

DEAD = "http://127.0.0.1:9"
WITHOUT_SDK = """
import sys
from importlib.machinery import PathFinder

class Hidden(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name.startswith(("opentelemetry.sdk", "opentelemetry.exporter", "google.protobuf")):
            return None
        return PathFinder.find_spec(name, path, target)

sys.meta_path = [f for f in sys.meta_path if f is not PathFinder] + [Hidden]
import asyncio
import httpx
from leadline_cli.service import main
from leadline_broker.main import openapi_app

async def healthy():
    transport = httpx.ASGITransport(openapi_app())
    async with httpx.AsyncClient(transport=transport, base_url="http://broker") as client:
        return (await client.get("/healthz")).status_code

print(asyncio.run(healthy()))
main(sys.argv[1:])
"""


@pytest.fixture(autouse=True)
def logger_restored() -> Iterator[None]:
    logger = logging.getLogger("opentelemetry")
    level = logger.level
    yield
    logger.setLevel(level)


@pytest.fixture(autouse=True)
def threads_end() -> Iterator[None]:
    """Wait for the threads that send: their backoff draws random numbers, as other tests do."""
    yield
    for thread in threading.enumerate():
        if thread.name.startswith(("OtelBatch", "tracing-shutdown")):
            thread.join(120)
            assert not thread.is_alive()


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A short time for a collector that takes nothing."""
    monkeypatch.setattr(sdk, "EXPORT_S", 0.2)


def settings(endpoint: str, ratio: float = 1.0) -> BrokerSettings:
    return BrokerSettings(
        broker_id=3, log_dir="", tracing_otlp_endpoint=endpoint, tracing_sample_ratio=ratio
    )


def test_without_an_endpoint_nothing_is_traced() -> None:
    with traced(settings(""), "broker", 3):
        assert not spans.is_on()


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        ("http://c:4318", "http://c:4318/v1/traces"),
        ("http://c:4318/", "http://c:4318/v1/traces"),
        ("https://c/otlp/traces", "https://c/otlp/traces"),
    ],
)
def test_the_endpoint_is_a_collector_or_its_path(endpoint: str, url: str) -> None:
    assert traces_url(endpoint) == url


@pytest.mark.parametrize(
    "endpoint",
    [
        "c:4318",
        "grpc://c:4317",
        "http://",
        "http://u:secret@c",
        "http://c:99999",
        "http://c?a=b",
        "http://[",
    ],
)
def test_any_other_endpoint_is_refused_at_the_start(endpoint: str) -> None:
    with (
        pytest.raises(SettingsError, match=r"tracing\.otlp\.endpoint"),
        traced(settings(endpoint), "broker", 3),
    ):
        pass


@pytest.mark.parametrize("ratio", [-0.1, 1.1, float("nan"), float("inf")])
def test_a_ratio_is_between_zero_and_one(ratio: float) -> None:
    with pytest.raises(ValueError, match="tracing_sample_ratio"):
        settings("", ratio)


def test_an_endpoint_without_the_extra_is_refused_and_names_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exporting, "sdk_installed", lambda: False)
    with (
        pytest.raises(SettingsError, match=r"leadline-common\[tracing\]"),
        traced(settings(DEAD), "broker", 3),
    ):
        pass


def test_a_service_without_the_extra_serves_but_refuses_an_endpoint() -> None:
    flags = ("broker.id=1", "log.dir=/nonexistent", f"tracing.otlp.endpoint={DEAD}")
    words = [word for flag in flags for word in ("--set", flag)]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_SDK, "broker", *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "200\n"), done.stderr
    assert done.stderr.endswith("pip install 'leadline-common[tracing]'\n")


async def test_spans_arrive_with_the_name_of_their_service_and_the_rest_at_the_end() -> None:
    async with collecting() as collector:

        def work() -> None:
            with traced(settings(collector.url), "broker", 3), spans.root_span("only"):
                pass

        await asyncio.to_thread(work)
        (span,) = collector.spans
    assert (span.name, span.service) == ("only", "broker-3")
    assert not spans.is_on()


@pytest.mark.usefixtures("soon")
async def test_a_collector_that_refuses_is_logged_once_and_once_when_it_is_back() -> None:
    async with collecting() as collector:
        collector.status = 500
        with capture_logs() as lines:
            await asyncio.to_thread(_export_thrice, collector.url)
            collector.status = 200
    events = [line["event"] for line in lines]
    assert events == ["collector does not take spans; they are dropped"]


class Scripted(SpanExporter):
    """An exporter with these results."""

    def __init__(self, *results: SpanExportResult | Exception) -> None:
        self._results = list(results)

    def export(self, _: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self._results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result


def _export_thrice(url: str) -> None:
    provider = sdk.provider_for(url, 1.0, "broker", 3)
    spans.use_tracer(sdk.tracer_of(provider, 1.0))
    try:
        for _ in range(3):
            with spans.root_span("lost"):
                pass
            provider.force_flush()
    finally:
        spans.use_tracer(None)
        sdk.shut_down(provider)


def test_what_was_lost_is_counted_until_the_collector_is_back() -> None:
    success, failure = SpanExportResult.SUCCESS, SpanExportResult.FAILURE
    exporter = sdk.ReportingExporter(
        Scripted(failure, OSError("broken"), success, success, failure), "http://c"
    )
    batch: list[ReadableSpan] = [ReadableSpan("a"), ReadableSpan("b")]
    with capture_logs() as lines:
        for _ in range(5):
            exporter.export(batch)
    assert [(line["log_level"], line.get("lost")) for line in lines] == [
        ("warning", None),
        ("info", 4),
        ("warning", None),
    ]


class Slow(SpanExporter):
    """An exporter that takes spans, but not before it is told to."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.go_on = threading.Event()
        self.taken = 0

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.begun.set()
        assert self.go_on.wait(60)
        self.taken += len(spans)
        return SpanExportResult.SUCCESS


def test_what_a_slow_collector_leaves_no_room_for_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It takes all that it is sent; what did not fit was dropped without a word."""
    monkeypatch.setattr(sdk, "QUEUE_SPANS", 2 * sdk.BATCH_SPANS)
    slow = Slow()
    monkeypatch.setattr(sdk, "OTLPSpanExporter", lambda **_: slow)
    provider = sdk.provider_for(DEAD, 1.0, "broker", 3)
    tracer = provider.get_tracer("t")
    with capture_logs() as lines:
        for _ in range(sdk.BATCH_SPANS):
            tracer.start_span("s").end()
        assert slow.begun.wait(60)
        for _ in range(3 * sdk.BATCH_SPANS):
            tracer.start_span("s").end()
        slow.go_on.set()
        provider.force_flush()
    sdk.shut_down(provider)
    begin, end = lines
    assert begin["event"] == "collector is too slow; spans are dropped"
    assert end["event"] == "collector takes spans again"
    assert slow.taken + end["lost"] == 4 * sdk.BATCH_SPANS


@pytest.mark.usefixtures("soon")
def test_a_full_queue_drops_and_a_dead_collector_delays_the_end_for_a_bounded_time() -> None:
    provider = sdk.provider_for(DEAD, 1.0, "broker", 3)
    spans.use_tracer(sdk.tracer_of(provider, 1.0))
    processor = provider._active_span_processor._span_processors[0]._batch_processor  # type: ignore[attr-defined]  # the queue has no public name
    try:
        for _ in range(3 * sdk.QUEUE_SPANS):
            with spans.root_span("lost"):
                pass
        assert len(processor._queue) <= sdk.QUEUE_SPANS
    finally:
        spans.use_tracer(None)
        began = time.monotonic()
        sdk.shut_down(provider)
    assert time.monotonic() - began < 4 * sdk.FLUSH_S


@pytest.mark.usefixtures("soon")
def test_long_values_are_cut() -> None:
    provider = sdk.provider_for(DEAD, 1.0, "broker", 3)
    span = provider.get_tracer("t").start_span("s", attributes={"path": "x" * 5_000})
    assert isinstance(span, ReadableSpan)
    assert len(str((span.attributes or {})["path"])) == 512
    sdk.shut_down(provider)
