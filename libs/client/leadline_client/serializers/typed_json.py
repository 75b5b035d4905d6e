"""JSON of a type by msgspec; the only module of the client library that imports it."""

from __future__ import annotations

from threading import Lock
from typing import Any, Final

import msgspec

_PREPARING: Final = Lock()
"""msgspec crashes if two threads prepare the same type at the same moment."""


class TypedJson:
    """Encodes anything that msgspec can, and decodes one type."""

    def __init__(self, wanted: Any) -> None:
        self._encoder = msgspec.json.Encoder()
        with _PREPARING:
            self._decoder = msgspec.json.Decoder(wanted)

    def serialize(self, _topic: str, value: Any, /) -> bytes:
        """Return `value` as JSON."""
        return self._encoder.encode(value)

    def deserialize(self, _topic: str, data: bytes, /) -> Any:
        """Return the value. Raises msgspec's DecodeError and ValidationError, both ValueError."""
        return self._decoder.decode(data)
