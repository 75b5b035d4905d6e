"""Spans that are kept in memory, for tests within one process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

from leadline_common.tracing.otel import OtelTracer
from leadline_common.tracing.spans import use_tracer


class Recorded:
    """The spans that have ended so far."""

    def __init__(self, exporter: InMemorySpanExporter) -> None:
        self._exporter = exporter

    @property
    def spans(self) -> Sequence[ReadableSpan]:
        """All of them, in the order of their ends."""
        return self._exporter.get_finished_spans()

    @property
    def names(self) -> list[str]:
        """Their names."""
        return [span.name for span in self.spans]

    def one(self, name: str) -> ReadableSpan:
        """Return the only span with a name."""
        (found,) = (span for span in self.spans if span.name == name)
        return found


def provider_and_recorded(ratio: float = 1.0) -> tuple[TracerProvider, Recorded]:
    """Return a provider that samples as that of a service, and what it records."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(sampler=ParentBased(TraceIdRatioBased(ratio)), shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider, Recorded(exporter)


@contextmanager
def recording(ratio: float = 1.0, draw: Callable[[], float] = lambda: 0.5) -> Iterator[Recorded]:
    """Let this process trace within the block; `draw` decides for callers with a trace."""
    provider, recorded = provider_and_recorded(ratio)
    use_tracer(OtelTracer(provider, ratio, draw))
    try:
        yield recorded
    finally:
        use_tracer(None)
        provider.shutdown()


def attributes(span: ReadableSpan) -> dict[str, object]:
    """Return the attributes of a span."""
    return dict(span.attributes or {})


def trace_id(span: ReadableSpan) -> int:
    """Return the id of a span's trace."""
    assert span.context is not None
    return int(span.context.trace_id)
