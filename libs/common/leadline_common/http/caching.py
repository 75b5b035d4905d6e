"""Documents that change rarely and are read often: strong ETags, 304, compression.

The headers are parsed here, because werkzeug's parser also accepts unquoted ETags, which must
not match, and Starlette compares ETags for static files only.
"""

from __future__ import annotations

import gzip
import re
from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.responses import Response

from leadline_common.rpc import JSON

_MIN_COMPRESSED_BYTES = 1024
# The fastest level: 10,000 partitions take 1.3 ms, and higher levels cost more than they save.
_LEVEL = 1
_QUALITY_ZERO = re.compile(r"q=0(\.0{0,3})?", re.IGNORECASE)


@dataclass(eq=False, slots=True)
class Document:
    """A prebuilt JSON document of one version.

    `version` must differ whenever the bytes differ: it is the strong ETag. The compressed
    form is built at the first request for it and has an ETag of its own, because its bytes
    are different. With `weak` it is a weak ETag: documents of one version say the same in
    different bytes.
    """

    body: bytes
    version: str
    weak: bool = False
    _gzipped: bytes | None = field(default=None, init=False)

    def answer(self, request: Request) -> Response:
        """Return the document, compressed if the caller accepts that, or 304 if it is known."""
        compressed = len(self.body) >= _MIN_COMPRESSED_BYTES and accepts_gzip(request)
        headers = {"ETag": self.etag(compressed=compressed), "Vary": "Accept-Encoding"}
        if self._is_known(request):
            return Response(status_code=304, headers=headers)
        if not compressed:
            return Response(self.body, headers=headers, media_type=JSON)
        if self._gzipped is None:
            self._gzipped = gzip.compress(self.body, compresslevel=_LEVEL, mtime=0)
        headers["Content-Encoding"] = "gzip"
        return Response(self._gzipped, headers=headers, media_type=JSON)

    def etag(self, *, compressed: bool = False) -> str:
        """Return the ETag of one form of the document."""
        if self.weak:
            return f'W/"{self.version}"'
        return f'"{self.version}-gzip"' if compressed else f'"{self.version}"'

    def _is_known(self, request: Request) -> bool:
        # Either form proves that the caller has this version of the document.
        known = {
            self.etag(compressed=compressed).removeprefix("W/") for compressed in (False, True)
        }
        stated = map(str.strip, request.headers.get("if-none-match", "").split(","))
        return any(tag == "*" or tag.removeprefix("W/") in known for tag in stated)


def accepts_gzip(request: Request) -> bool:
    """Return whether the caller accepts gzip; `gzip` takes precedence over `*` (RFC 9110)."""
    accepted = {}
    for offered in request.headers.get("accept-encoding", "").split(","):
        coding, _, parameters = offered.partition(";")
        quality = parameters.replace(" ", "")
        accepted[coding.strip().lower()] = not _QUALITY_ZERO.fullmatch(quality)
    return accepted.get("gzip", accepted.get("*", False))
