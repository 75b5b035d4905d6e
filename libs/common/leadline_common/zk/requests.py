"""Requests in the form that kazoo's connection expects, with undecoded replies.

kazoo uses a request's `type`, `serialize()` and `deserialize(buffer, offset)`. A request that sets
no watch has no type here (its body starts with its opcode), so that kazoo does not post-process it
as one of its own transactions. Reads with a watch are subclasses of kazoo's requests, because
kazoo registers watchers by class.
"""

from __future__ import annotations

from typing import TypeAlias

from kazoo.protocol.serialization import Exists, GetChildren, GetData

Reply: TypeAlias = tuple[bytes, int]
"""The whole reply, and the offset after its header."""


class _Undecoded:
    """Leaves the reply to a request undecoded."""

    __slots__ = ()

    @staticmethod
    def deserialize(buffer: bytes, offset: int) -> Reply:
        """Return the reply as it is."""
        return buffer, offset


class EncodedRequest(_Undecoded):
    """A request that is encoded already."""

    __slots__ = ("_encoded",)

    type = None
    watcher = None

    def __init__(self, encoded: bytes) -> None:
        self._encoded = encoded

    @property
    def size(self) -> int:
        """How many bytes `serialize` returns."""
        return len(self._encoded)

    def serialize(self) -> bytes:
        """Return opcode and body."""
        return self._encoded


class ExistsWatch(_Undecoded, Exists):
    """exists with a watch; kazoo returns None for a missing node."""


class GetDataWatch(_Undecoded, GetData):
    """get with a watch."""


class GetChildrenWatch(_Undecoded, GetChildren):
    """get children with a watch."""


Request: TypeAlias = EncodedRequest | ExistsWatch | GetDataWatch | GetChildrenWatch
