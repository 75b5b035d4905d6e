"""Making any value encodable as JSON, for what must be recorded whatever a caller has sent. Pure.

JSON text allows what UTF-8 and msgspec do not: lone surrogates, integers of any size, and any
depth of nesting.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

MAX_DEPTH: Final = 32
"""Levels of nesting that are kept; what is deeper is replaced by `ELIDED`."""
ELIDED: Final = "…"

_INT_LIMIT: Final = 2**63


def encodable(value: Any, depth: int = MAX_DEPTH) -> Any:
    """Return a copy of a value that can be encoded as JSON.

    Lone surrogates become escapes, integers beyond 64 bits become hexadecimal text, and a value
    that JSON has no form for becomes its `repr`.
    """
    if isinstance(value, msgspec.Struct):
        value = msgspec.structs.asdict(value)
    if isinstance(value, Mapping | list | tuple | set | frozenset):
        return _nested(value, depth - 1) if depth > 0 else ELIDED
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        return value if -_INT_LIMIT <= value < _INT_LIMIT else hex(value)
    return encodable_text(value if isinstance(value, str) else repr(value))


def _nested(value: Any, depth: int) -> Any:
    if isinstance(value, Mapping):
        return {encodable_text(str(key)): encodable(item, depth) for key, item in value.items()}
    return [encodable(item, depth) for item in value]


def encodable_text(text: str) -> str:
    """Return a text with its lone surrogates replaced by escapes."""
    return text.encode("utf-8", "backslashreplace").decode()
