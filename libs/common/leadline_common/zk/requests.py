"""Requests in the shape that kazoo's connection takes, answering with raw bytes.

kazoo asks a request for `type`, `serialize()` and `deserialize(buffer, offset)`.
A request here that sets no watch has no type (its opcode is the start of its
body), which also keeps kazoo from post-processing what looks like one of its
own transactions. Reads with a watch must be kazoo's own classes, because kazoo
files watchers by class.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from kazoo.protocol.serialization import Exists, GetChildren, GetData
from kazoo.protocol.states import WatchedEvent

Answer: TypeAlias = tuple[bytes, int]
"""The whole answer and the offset after its reply header."""
Watcher: TypeAlias = Callable[[WatchedEvent], None]


class EncodedRequest:
    """A request whose opcode and body are encoded already."""

    __slots__ = ("_encoded",)

    type = None
    watcher = None

    def __init__(self, encoded: bytes) -> None:
        self._encoded = encoded

    def serialize(self) -> bytes:
        """Return opcode and body."""
        return self._encoded

    def deserialize(self, buffer: bytes, offset: int) -> Answer:
        """Return the answer as it is."""
        return buffer, offset


class ExistsWatch(Exists):
    """exists with a watch; kazoo answers None for a missing node."""

    @classmethod
    def deserialize(cls, buffer: bytes, offset: int) -> Answer:
        """Return the answer as it is."""
        return buffer, offset


class GetDataWatch(GetData):
    """get with a watch."""

    @classmethod
    def deserialize(cls, buffer: bytes, offset: int) -> Answer:
        """Return the answer as it is."""
        return buffer, offset


class GetChildrenWatch(GetChildren):
    """get children with a watch."""

    @classmethod
    def deserialize(cls, buffer: bytes, offset: int) -> Answer:
        """Return the answer as it is."""
        return buffer, offset


Request: TypeAlias = EncodedRequest | ExistsWatch | GetDataWatch | GetChildrenWatch
