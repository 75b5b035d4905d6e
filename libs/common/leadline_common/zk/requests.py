"""Requests in the form that kazoo's connection expects, with undecoded replies.

kazoo uses a request's `type`, `serialize()` and `deserialize(buffer, offset)`. A request that sets
no watch has no type here (its body starts with its opcode), so that kazoo does not post-process it
as one of its own transactions. Reads with a watch are subclasses of kazoo's requests, because
kazoo registers watchers by class.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from kazoo.protocol.serialization import Exists, GetChildren, GetData
from kazoo.protocol.states import WatchedEvent

Reply: TypeAlias = tuple[bytes, int]
"""The whole reply, and the offset after its header."""
Watcher: TypeAlias = Callable[[WatchedEvent], None]


class EncodedRequest:
    """A request that is encoded already."""

    __slots__ = ("_encoded",)

    type = None
    watcher = None

    def __init__(self, encoded: bytes) -> None:
        self._encoded = encoded

    def serialize(self) -> bytes:
        """Return opcode and body."""
        return self._encoded

    def deserialize(self, buffer: bytes, offset: int) -> Reply:
        """Return the reply undecoded."""
        return buffer, offset


class ExistsWatch(Exists):
    """exists with a watch; kazoo returns None for a missing node."""

    @classmethod
    def deserialize(cls, buffer: bytes, offset: int) -> Reply:
        """Return the reply undecoded."""
        return buffer, offset


class GetDataWatch(GetData):
    """get with a watch."""

    @classmethod
    def deserialize(cls, buffer: bytes, offset: int) -> Reply:
        """Return the reply undecoded."""
        return buffer, offset


class GetChildrenWatch(GetChildren):
    """get children with a watch."""

    @classmethod
    def deserialize(cls, buffer: bytes, offset: int) -> Reply:
        """Return the reply undecoded."""
        return buffer, offset


Request: TypeAlias = EncodedRequest | ExistsWatch | GetDataWatch | GetChildrenWatch
