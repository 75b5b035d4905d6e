"""What a JSON body must be before anything acts on it.

A body may be accepted by one JSON parser and refused, or failed on, by the next: half of a
surrogate pair cannot be encoded again, a number of 5,000 digits cannot be converted, and NaN is no
JSON. So every body is decoded once by the strictest parser, and refused where it fails.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TypeVar
from urllib.parse import unquote_to_bytes

import msgspec
from starlette.types import Scope

DecodedT = TypeVar("DecodedT")

_decode_any = msgspec.json.Decoder().decode


class UnacceptableBody(ValueError):
    """A body that cannot be decoded; the message says why, without quoting the body."""


def decode_body(decode: Callable[[bytes], DecodedT], body: bytes) -> DecodedT:
    """Return `decode(body)`, whatever way a msgspec decoder fails on hostile input.

    Raises:
        msgspec.DecodeError: the body is not JSON, or has not the shape of the decoder's type.
        UnacceptableBody: the body is JSON to some parsers, but cannot be represented.

    """
    try:
        return decode(body)
    except msgspec.DecodeError:
        raise
    except RecursionError:
        raise UnacceptableBody("nested too deeply") from None
    except UnicodeError:
        raise UnacceptableBody("not valid UTF-8, or half of a surrogate pair") from None
    except ValueError:
        raise UnacceptableBody("a number has too many digits") from None


def problem_of_json(body: bytes) -> str | None:
    """Return why a body must be refused although it may look like JSON; None if it need not be.

    A body that no parser takes for JSON has no such problem: the route describes that better.
    """
    try:
        decode_body(_decode_any, body)
    except UnacceptableBody as problem:
        return str(problem)
    except msgspec.DecodeError as problem:
        return None if _is_malformed(body) else str(problem)
    return None


def _is_malformed(body: bytes) -> bool:
    """Tell whether the parser of the web framework refuses the body by itself."""
    try:
        json.loads(body)
    except json.JSONDecodeError:
        return True
    except (ValueError, RecursionError):
        return False
    return False


def is_json(content_type: bytes) -> bool:
    """Tell whether a route may parse a body of this content type as JSON; an absent one counts."""
    return not content_type or b"json" in content_type.lower()


def problem_of_target(scope: Scope) -> str | None:
    """Return why the path or the query of a request must be refused; None if it need not be.

    The server would replace bytes that are not UTF-8, and the request would name another resource.
    """
    for name, raw in (("path", scope.get("raw_path") or b""), ("query", scope["query_string"])):
        if (b"%" in raw or not raw.isascii()) and not _is_utf8(unquote_to_bytes(raw)):
            return f"{name}: not valid UTF-8"
    return None


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
