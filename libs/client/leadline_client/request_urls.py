"""URLs of requests as HTTP sends them: with their parameters, and encoded."""

from __future__ import annotations

from typing import Final
from urllib.parse import SplitResult, quote, urlencode, urlsplit

from leadline_client.transport import Request

_SENT_AS_IS: Final = "%/:@!$&'()*+,;="
"""Characters of a path that have a meaning there, or are encoded already."""


def target_of(request: Request, parts: SplitResult) -> str:
    """Return path and query as HTTP sends them; `parts` are those of the request's URL."""
    path = quote(parts.path or "/", safe=_SENT_AS_IS)
    query = "&".join(filter(None, (parts.query, urlencode(request.params, quote_via=quote))))
    return f"{path}?{query}" if query else path


def encoded_url(request: Request) -> str:
    """Return the URL of a request with its parameters; raises ValueError if there is none."""
    parts = urlsplit(request.url)
    return f"{parts.scheme}://{parts.netloc}{target_of(request, parts)}"
