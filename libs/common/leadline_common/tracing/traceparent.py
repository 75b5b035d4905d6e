"""The header by which a trace continues in another process (W3C Trace Context). Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

HEADER: Final = "traceparent"
_HEADER_BYTES: Final = HEADER.encode()
_FORM: Final = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_LONGEST: Final = 256
"""Later versions may add to the 55 bytes of this one."""
_INVALID_VERSION: Final = b"ff"
_THIS_VERSION: Final = b"00"
_SAMPLED: Final = 1


class TraceParent(NamedTuple):
    """A span of another process: its trace, its id, and whether it is recorded there."""

    trace_id: int
    span_id: int
    sampled: bool


def trace_parent_of(headers: Iterable[tuple[bytes, bytes]]) -> TraceParent | None:
    """Return the parent that the headers of a request state; None unless exactly one is valid."""
    stated = [value for name, value in headers if name == _HEADER_BYTES]
    return parsed(stated[0]) if len(stated) == 1 else None


def parsed(value: bytes) -> TraceParent | None:
    """Return the parent that a header states, None if it is invalid."""
    if len(value) > _LONGEST:
        return None
    found = _FORM.fullmatch(value)
    if found is None:
        return None
    version, trace_id, span_id, flags, more = found.groups()
    if version == _INVALID_VERSION or (version == _THIS_VERSION and more is not None):
        return None
    parent = TraceParent(int(trace_id, 16), int(span_id, 16), bool(int(flags, 16) & _SAMPLED))
    return parent if parent.trace_id and parent.span_id else None


def written(parent: TraceParent) -> str:
    """Return the value of the header for a parent."""
    return f"00-{parent.trace_id:032x}-{parent.span_id:016x}-{int(parent.sampled):02x}"
