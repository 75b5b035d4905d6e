"""The spans of events: how long they waited in the queue, and how long their handling took."""

from __future__ import annotations

import time

from leadline_common.tracing import spans
from leadline_common.tracing.traceparent import TraceParent

_NS_IN_MS = 1_000_000


def event_span(name: str, posted_in: TraceParent | None, waited_ms: int) -> spans.Span:
    """Return the span of handling an event, and record that it waited for `waited_ms`.

    Both are children of the span in which it was posted. Without one, for instance after a watch,
    a trace begins with the handling.
    """
    if not spans.is_on():
        return spans.NO_SPAN
    if posted_in is None:
        return spans.root_span(f"handle {name}", {"leadline.queue_ms": waited_ms})
    began_ns = time.time_ns() - waited_ms * _NS_IN_MS
    spans.span_under(posted_in, f"queue {name}", began_ns=began_ns).end()
    return spans.span_under(posted_in, f"handle {name}", {"leadline.queue_ms": waited_ms})
