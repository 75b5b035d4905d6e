"""Serializers of bytes and of text."""

from __future__ import annotations


class BytesSerializer:
    """Leaves bytes as they are."""

    def serialize(self, topic: str, value: bytes, /) -> bytes:  # noqa: ARG002 - Serializer's form
        """Return `value`. Raises TypeError unless it is bytes."""
        if not isinstance(value, bytes):
            raise TypeError(f"a {type(value).__name__} is not bytes")
        return value

    def deserialize(self, topic: str, data: bytes, /) -> bytes:  # noqa: ARG002 - see above
        """Return `data` as it is."""
        return data


class StringSerializer:
    """Text in UTF-8, or in another `encoding` that Python knows.

    Raises LookupError at once for an unknown encoding.
    """

    def __init__(self, encoding: str = "utf-8") -> None:
        "".encode(encoding)
        self._encoding = encoding

    def serialize(self, topic: str, value: str, /) -> bytes:  # noqa: ARG002 - Serializer's form
        """Return the bytes of `value`. Raises UnicodeEncodeError, TypeError."""
        if not isinstance(value, str):
            raise TypeError(f"a {type(value).__name__} is not text")
        return value.encode(self._encoding)

    def deserialize(self, topic: str, data: bytes, /) -> str:  # noqa: ARG002 - see above
        """Return the text of `data`. Raises UnicodeDecodeError."""
        return data.decode(self._encoding)
