"""Protobuf messages, of a class that `protoc` has generated."""

from __future__ import annotations

from typing import Generic, Protocol, Self, TypeVar


class ProtobufMessage(Protocol):
    """The methods of generated message classes that are used here."""

    def SerializeToString(self, *, deterministic: bool = ...) -> bytes:  # noqa: N802 - Protobuf's name
        """Return the message as bytes."""

    @classmethod
    def FromString(cls, data: bytes, /) -> Self:  # noqa: N802 - Protobuf's name
        """Return the message in these bytes."""


M = TypeVar("M", bound=ProtobufMessage)


class ProtobufSerializer(Generic[M]):
    """Messages of one generated class, in Protobuf's binary form (extra `protobuf`).

    Nothing says which message the bytes are: Protobuf keeps unknown fields rather than refuse them,
    so that bytes of another message may be read as this one. Give each topic one message class.
    Equal messages give equal bytes in one release of Protobuf, so that they can be keys.
    """

    def __init__(self, message: type[M]) -> None:
        self._message = message

    def serialize(self, topic: str, value: M, /) -> bytes:  # noqa: ARG002 - Serializer's form
        """Return the message as bytes.

        Raises:
            TypeError: `value` is not a message of the class.
            google.protobuf.message.EncodeError: a required field is missing.

        """
        if not isinstance(value, self._message):
            raise TypeError(f"a {type(value).__name__} is not a {self._message.__name__}")
        return value.SerializeToString(deterministic=True)

    def deserialize(self, topic: str, data: bytes, /) -> M:  # noqa: ARG002 - see above
        """Return the message. Raises google.protobuf.message.DecodeError: the bytes are none."""
        return self._message.FromString(data)
