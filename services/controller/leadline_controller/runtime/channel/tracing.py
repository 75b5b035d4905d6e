"""The spans of requests to brokers."""

from __future__ import annotations

from leadline_common.tracing import spans
from leadline_common.tracing.traceparent import TraceParent


def dispatch_span(parent: TraceParent | None, command: str, broker_id: int) -> spans.Span:
    """Return the span of one request, a child of the span in which its last change was decided."""
    return spans.span_under(parent, f"dispatch {command}", {"leadline.broker": broker_id})
