"""The spans of `tracing.spans` by the OpenTelemetry SDK."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from random import random
from types import TracebackType
from typing import Final, Self

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider

from leadline_client.errors import LeadlineError
from leadline_common.cause import current_cause
from leadline_common.tracing.spans import NO_SPAN, NOTHING, Attributes, Kind, Span
from leadline_common.tracing.traceparent import TraceParent, trace_parent_of

CAUSE: Final = "leadline.cause"
_SCOPE: Final = "leadline"
_KINDS: Final = {
    "internal": trace.SpanKind.INTERNAL,
    "server": trace.SpanKind.SERVER,
    "client": trace.SpanKind.CLIENT,
}


class OtelSpan:
    """A span of the SDK; also one that is not recorded, which its requests then say."""

    __slots__ = ("_span", "_token")

    def __init__(self, span: trace.Span) -> None:
        self._span = span

    @property
    def is_recording(self) -> bool:
        """Whether it is recorded."""
        return self._span.is_recording()

    def set(self, attributes: Attributes) -> None:
        """Add attributes, or replace them."""
        self._span.set_attributes(attributes)

    def rename(self, name: str) -> None:
        """Give it another name."""
        self._span.update_name(name)

    def event(self, name: str, attributes: Attributes = NOTHING) -> None:
        """Add something that happened now."""
        self._span.add_event(name, attributes)

    def fail(self, error: str, message: str = "") -> None:
        """Set the error and the status."""
        self._span.set_attribute("error.type", error)
        self._span.set_status(trace.StatusCode.ERROR, message or None)

    def end(self) -> None:
        """End it now."""
        self._span.end()

    def __enter__(self) -> Self:
        self._token = contexts.attach(trace.set_span_in_context(self._span))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        contexts.detach(self._token)
        if isinstance(error, LeadlineError):
            self.set({"leadline.error_code": error.code, "leadline.outcome": error.outcome})
            self.fail(type(error).__name__, error.message)
        elif isinstance(error, asyncio.CancelledError):
            self.fail("cancelled")
        elif error is not None:
            self.fail(type(error).__name__, str(error))
        self.end()


class OtelTracer:
    """Implements `spans.Tracer`.

    `ratio` is the share of requests and events that are recorded, from 0 to 1. `draw` returns
    numbers in [0, 1). The provider's sampler records the children of recorded spans, and `ratio`
    of the traces that begin here.
    """

    def __init__(
        self, provider: TracerProvider, ratio: float, draw: Callable[[], float] = random
    ) -> None:
        self._tracer = provider.get_tracer(_SCOPE)
        self._ratio = ratio
        self._draw = draw

    def span(self, name: str, attributes: Attributes, kind: Kind) -> Span:
        """Return a child of the current span."""
        if not trace.get_current_span().is_recording():
            return NO_SPAN
        return self._started(name, attributes, None, kind)

    def root_span(self, name: str, attributes: Attributes) -> Span:
        """Return the first span of a new trace."""
        return self._started(name, attributes, Context())

    def span_under(
        self, parent: TraceParent, name: str, attributes: Attributes, began_ns: int | None
    ) -> Span:
        """Return a child of another task's span."""
        return self._started(name, attributes, _context_of(parent), began_ns=began_ns)

    def server_span(self, headers: Iterable[tuple[bytes, bytes]], *, trusted: bool) -> Span:
        """Return the span of a request."""
        parent = trace_parent_of(headers)
        if parent is None:
            return NO_SPAN if trusted else self._started("HTTP", NOTHING, Context(), "server")
        if not trusted:
            # A caller may choose a trace id that the sampler would record: chance decides instead.
            parent = parent._replace(sampled=parent.sampled and self._draw() < self._ratio)
        return self._started("HTTP", NOTHING, _context_of(parent), "server")

    def current(self) -> TraceParent | None:
        """Return the current span."""
        span = trace.get_current_span()
        found = span.get_span_context()
        # A task may outlive the request that began it: what it does later is no part of that.
        has_ended = found.trace_flags.sampled and not span.is_recording()
        if has_ended or not found.is_valid:
            return None
        return TraceParent(found.trace_id, found.span_id, found.trace_flags.sampled)

    def current_span(self) -> Span:
        """Return the current span, to add to it."""
        return OtelSpan(trace.get_current_span())

    def clear(self) -> None:
        """Leave the current context without a span."""
        contexts.attach(Context())

    def _started(
        self,
        name: str,
        attributes: Attributes,
        context: Context | None,
        kind: Kind = "internal",
        began_ns: int | None = None,
    ) -> OtelSpan:
        cause = current_cause()
        return OtelSpan(
            self._tracer.start_span(
                name,
                context,
                _KINDS[kind],
                {**attributes, CAUSE: cause} if cause else attributes,
                start_time=began_ns,
            )
        )


def _context_of(parent: TraceParent) -> Context:
    flags = trace.TraceFlags.SAMPLED if parent.sampled else trace.TraceFlags.DEFAULT
    found = trace.SpanContext(
        parent.trace_id, parent.span_id, is_remote=True, trace_flags=trace.TraceFlags(flags)
    )
    return trace.set_span_in_context(trace.NonRecordingSpan(found), Context())
