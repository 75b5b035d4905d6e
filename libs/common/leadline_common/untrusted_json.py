"""Decoding of JSON that anybody may have written, with one kind of error for all that is wrong."""

from __future__ import annotations

from typing import Any, TypeVar, overload

import msgspec

T = TypeVar("T")


@overload
def decode_json(data: bytes) -> Any: ...
@overload
def decode_json(data: bytes, kind: type[T]) -> T: ...
def decode_json(data: bytes, kind: Any = Any) -> Any:
    """Decode a JSON document as a value of a type.

    Raises:
        msgspec.MsgspecError: it is not JSON, not of the type, not UTF-8 or nested too deeply.
            msgspec itself raises other errors for the last two.

    """
    try:
        return msgspec.json.decode(data, type=kind)
    except UnicodeDecodeError:
        raise msgspec.DecodeError("the JSON is not UTF-8") from None
    except RecursionError:
        raise msgspec.DecodeError("the JSON is nested too deeply") from None
