"""What producers and consumers call to convert keys and values."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal, Protocol, TypeAlias, TypeVar

from leadline_client.errors import DeserializationFailed

T_contra = TypeVar("T_contra", contravariant=True)
T_co = TypeVar("T_co", covariant=True)


class Serializer(Protocol[T_contra]):
    """Makes bytes of keys or values. It never gets None, which is a record without either."""

    def serialize(self, topic: str, value: T_contra, /) -> bytes:
        """Return the bytes for a record of `topic`; any exception refuses the record."""


class Deserializer(Protocol[T_co]):
    """Makes keys or values of bytes. It never gets None, which is a record without either."""

    def deserialize(self, topic: str, data: bytes, /) -> T_co:
        """Return what the bytes of a record of `topic` stand for.

        Any exception means that the record cannot be read; see `OnDeserializationError`.
        """


OnDeserializationError: TypeAlias = (
    Literal["raise", "skip"] | Callable[[DeserializationFailed], Awaitable[None] | None]
)
"""What a consumer or reader does with a record that it cannot deserialize.

`raise`: raise DeserializationFailed, and stay before the record until the application seeks.
`skip`: log a warning and leave the record out. A function gets the error, with the raw record, and
the record is left out once it returns; if it raises, the consumer stays before the record. The
function of an asynchronous class may be a coroutine function.
"""
