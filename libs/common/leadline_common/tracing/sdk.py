"""The OpenTelemetry SDK as services use it: their own provider, and an exporter that only drops.

Spans wait in a queue of `QUEUE_SPANS`, which a thread sends in batches. What does not fit into the
queue, and what the collector does not take within `EXPORT_S`, is dropped. Nothing ever waits for
the collector.

The provider is not the process's global one: libraries that would make spans of their own by that,
such as the web framework, take their parents from any caller.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Final

import structlog
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

from leadline_common.tracing.otel import OtelTracer
from leadline_common.versions import current_release

QUEUE_SPANS: Final = 4_096
BATCH_SPANS: Final = 512
EXPORT_EVERY_MS: Final = 1_000
EXPORT_S: Final = 5.0
FLUSH_S: Final = 2.0
_LONGEST_VALUE: Final = 512
_MOST_EVENTS: Final = 64

logger = structlog.get_logger(__name__)


class ReportingExporter(SpanExporter):
    """Passes spans on, and logs when spans begin to be lost and when that ends.

    It counts the spans that wait in the queue before it, and limits their number.
    """

    def __init__(self, exporter: SpanExporter, url: str) -> None:
        self._exporter = exporter
        self._url = url
        self._lock = threading.Lock()
        self._waiting = 0
        self._lost = 0

    def admit(self) -> bool:
        """Return whether a span that has ended may wait; count it as waiting, or else as lost."""
        with self._lock:
            if self._waiting < QUEUE_SPANS:
                self._waiting += 1
                return True
        self._lose(1, "collector is too slow; spans are dropped")
        return False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send spans, or drop them."""
        try:
            result = self._exporter.export(spans)
        except Exception:  # whatever it is, only these spans are lost
            result = SpanExportResult.FAILURE
        with self._lock:
            self._waiting = max(0, self._waiting - len(spans))
            # A collector that is a little too slow would otherwise be reported again and again.
            has_recovered = self._waiting <= QUEUE_SPANS // 2
        if result is not SpanExportResult.SUCCESS:
            self._lose(len(spans), "collector does not take spans; they are dropped")
        elif has_recovered:
            self._end_loss()
        return result

    def _lose(self, count: int, event: str) -> None:
        with self._lock:
            is_first = not self._lost
            self._lost += count
        if is_first:
            logger.warning(event, url=self._url)

    def _end_loss(self) -> None:
        with self._lock:
            lost, self._lost = self._lost, 0
        if lost:
            logger.info("collector takes spans again", url=self._url, lost=lost)

    def shutdown(self) -> None:
        """Close the connections."""
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Do nothing: it keeps no spans."""
        return self._exporter.force_flush(timeout_millis)


class LimitedProcessor(BatchSpanProcessor):
    """Queues spans for an exporter; its own queue would drop the oldest ones without a count."""

    def __init__(self, exporter: ReportingExporter) -> None:
        super().__init__(exporter, QUEUE_SPANS, EXPORT_EVERY_MS, BATCH_SPANS)
        self._reporting = exporter

    def on_end(self, span: ReadableSpan) -> None:
        """Queue a span that has ended, if there is room."""
        is_sampled = span.context is not None and span.context.trace_flags.sampled
        if is_sampled and self._reporting.admit():
            super().on_end(span)


def provider_for(url: str, ratio: float, kind: str, service_id: int) -> TracerProvider:
    """Return a provider that sends the spans of one service to a collector; starts a thread.

    `OTEL_RESOURCE_ATTRIBUTES`, and the variables of the exporter for TLS and headers, apply.
    """
    # It logs each failure and each dropped span, also what ReportingExporter says once.
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL + 1)
    resource = Resource.create(
        {
            "service.namespace": "leadline",
            "service.name": f"leadline-{kind}",
            "service.instance.id": f"{kind}-{service_id}",
            "service.version": str(current_release()),
        }
    )
    provider = TracerProvider(
        sampler=ParentBased(TraceIdRatioBased(ratio)),
        resource=resource,
        shutdown_on_exit=False,
        span_limits=SpanLimits(max_events=_MOST_EVENTS, max_attribute_length=_LONGEST_VALUE),
    )
    exporter = ReportingExporter(OTLPSpanExporter(endpoint=url, timeout=EXPORT_S), url)
    provider.add_span_processor(LimitedProcessor(exporter))
    return provider


def tracer_of(provider: TracerProvider, ratio: float) -> OtelTracer:
    """Return the tracer that makes spans by a provider."""
    return OtelTracer(provider, ratio)


def shut_down(provider: TracerProvider) -> None:
    """Send the spans that are left, for at most `FLUSH_S` seconds."""
    closing = threading.Thread(target=provider.shutdown, name="tracing-shutdown", daemon=True)
    closing.start()
    closing.join(FLUSH_S)
