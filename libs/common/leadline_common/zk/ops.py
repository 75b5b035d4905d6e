"""The operations of a multi, and the Stat of a node.

A write names the data version that it replaces. There is no default: version 0 is an ordinary
version, and an unconditional write must say `ANY_VERSION`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

import msgspec

ANY_VERSION: Final = -1
"""Write or delete unconditionally."""


class Stat(msgspec.Struct, frozen=True, gc=False):
    """ZooKeeper's metadata of a node, in wire order.

    `czxid` and `mzxid` are the transactions that created and last wrote it,
    `version` counts data writes, `cversion` changes of the child list;
    `ephemeral_owner` is a session id or 0; times are Unix milliseconds.
    """

    czxid: int
    mzxid: int
    ctime: int
    mtime: int
    version: int
    cversion: int
    aversion: int
    ephemeral_owner: int
    data_length: int
    num_children: int
    pzxid: int


class CreateOp(msgspec.Struct, frozen=True, gc=False):
    """Create `path`; the result is the created path (a sequence node has a suffix)."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequence: bool = False


class SetOp(msgspec.Struct, frozen=True, gc=False):
    """Replace the data of `path` when its version is `version`; the result is the new Stat."""

    path: str
    data: bytes
    version: int


class DeleteOp(msgspec.Struct, frozen=True, gc=False):
    """Delete `path` when its version is `version`; the result is None."""

    path: str
    version: int


class CheckOp(msgspec.Struct, frozen=True, gc=False):
    """Fail the multi unless the version of `path` is `version`; the result is None."""

    path: str
    version: int


Op: TypeAlias = CreateOp | SetOp | DeleteOp | CheckOp
OpResult: TypeAlias = str | Stat | None
"""The created path, the new Stat of a set, or None."""


class MultiResults(list[OpResult]):
    """One result per operation of a multi; `zxid` is the id of its transaction."""

    __slots__ = ("zxid",)

    def __init__(self, results: Iterable[OpResult], zxid: int) -> None:
        super().__init__(results)
        self.zxid = zxid
