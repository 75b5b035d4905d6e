"""Paths and queries of requests as HTTP sends them: with their parameters, and encoded."""

from __future__ import annotations

from functools import lru_cache
from typing import Final
from urllib.parse import SplitResult, quote, urlencode

from leadline_client.transport import Request

_SENT_AS_IS: Final = "%/:@!$&'()*+,;="
"""Characters of a path that have a meaning there, or are encoded already."""


def target_of(request: Request, parts: SplitResult) -> str:
    """Return path and query as HTTP sends them; `parts` are those of the request's URL."""
    path = quote(parts.path or "/", safe=_SENT_AS_IS)
    query = "&".join(filter(None, (parts.query, _encoded(tuple(request.params.items())))))
    return f"{path}?{query}" if query else path


@lru_cache(maxsize=256)
def _encoded(params: tuple[tuple[str, str], ...]) -> str:
    """Return parameters as HTTP sends them; those of a producer's requests hardly ever change."""
    return urlencode(params, quote_via=quote)
