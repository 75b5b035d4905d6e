"""Nodes that a broker cannot do without: it waits until somebody repairs one that is damaged."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from leadline_common.cluster_id import UnreadableNode
from leadline_common.unreadable import UNREADABLE

T = TypeVar("T")


def decode_required(path: str, data: bytes, decode: Callable[[bytes], T]) -> T:
    """Return the value of a node; `decode` has one for an empty node, too.

    Raises:
        UnreadableNode: it cannot be decoded.

    """
    try:
        value = decode(data)
    except msgspec.MsgspecError as problem:
        UNREADABLE.add(path, problem)
        raise UnreadableNode(f"{path} must be repaired, or emptied: {problem}") from problem
    UNREADABLE.discard(path)
    return value
