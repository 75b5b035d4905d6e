"""The node that allocates blocks of producer ids: its value, and what stands for a damaged one."""

from __future__ import annotations

from typing import Final

import msgspec

from leadline_common import znodes
from leadline_common.unreadable import UNREADABLE
from leadline_common.znode_json import check_range, decode_json

MAX_PRODUCER_ID: Final = 2**62
_BLOCK_MARGIN: Final = 1_000_000
"""More ids than any block has had."""


class _ProducerIdBlock(msgspec.Struct):
    """The value of the node that allocates producer ids."""

    next: int


def next_producer_id(data: bytes, version: int, count: int) -> int:
    """Return the first id of the next block.

    If the value cannot be read, the version of its node stands for the blocks allocated so far:
    each allocation adds 1 to it. The blocks may have been of other sizes, hence the margin.
    """
    try:
        block = decode_json(data, _ProducerIdBlock) if data else _ProducerIdBlock(0)
        check_range("next", (block.next,), 0, MAX_PRODUCER_ID)
    except msgspec.MsgspecError as problem:
        UNREADABLE.add(znodes.PRODUCER_ID_BLOCK, problem)
        return (version + 1) * max(count, _BLOCK_MARGIN)
    UNREADABLE.discard(znodes.PRODUCER_ID_BLOCK)
    return int(block.next)


def encode_block(following: int) -> bytes:
    """Encode the value of the node: the first id that is not allocated."""
    return msgspec.json.encode({"version": 1, "next": following})
