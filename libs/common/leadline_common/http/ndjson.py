"""Responses in NDJSON, which are streamed line by line."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator, Mapping

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from leadline_common.audit_export import NDJSON
from leadline_common.http.caching import accepts_gzip
from leadline_common.http.errors import Responses

# The fastest level, which already compresses lines of JSON to a tenth.
_LEVEL = 1
_GZIP = 16 + zlib.MAX_WBITS


def ndjson_documentation(line: str, description: str, headers: Mapping[str, str]) -> Responses:
    """Return the documentation of an NDJSON response: an example line, and integers as headers."""
    content = {NDJSON: {"schema": {"type": "string"}, "example": line}}
    described = {
        name: {"description": meaning, "schema": {"type": "integer"}}
        for name, meaning in headers.items()
    }
    return {200: {"description": description, "content": content, "headers": described}}


def ndjson_response(
    request: Request, lines: AsyncIterator[bytes], headers: Mapping[str, str]
) -> Response:
    """Return a response that streams lines of JSON, compressed if the caller accepts that."""
    stated = {**headers, "Vary": "Accept-Encoding"}
    if accepts_gzip(request):
        stated["Content-Encoding"] = "gzip"
        lines = _compressed(lines)
    return StreamingResponse(lines, media_type=NDJSON, headers=stated)


async def _compressed(lines: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    compressor = zlib.compressobj(_LEVEL, wbits=_GZIP)
    async for chunk in lines:
        if compressed := compressor.compress(chunk):
            yield compressed
    yield compressor.flush()
