"""The spans of requests that one service sends to another."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from leadline_common.tracing import spans

STATUS: Final = "http.response.status_code"


def call_span(name: str, method: str, url: str, receiver: str) -> spans.Span:
    """Return the span of a request to `receiver`; `url` has no query.

    It has the names of OpenTelemetry's conventions for HTTP clients.
    """
    if not spans.is_on():
        return spans.NO_SPAN
    parts = urlsplit(url)
    return spans.span(
        name,
        {
            "http.request.method": method,
            "server.address": parts.hostname or "",
            "server.port": parts.port or 0,
            "url.full": url,
            "leadline.receiver": receiver,
        },
        "client",
    )
