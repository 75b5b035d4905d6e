"""The nodes of producer ids: the next number to allocate, and the key that binds ids to owners."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

import msgspec

from leadline_broker.domain.producer_ids import KEY_BYTES, MAX_NUMBER
from leadline_common import znodes
from leadline_common.cluster_id import UnreadableNode
from leadline_common.unreadable import UNREADABLE
from leadline_common.zk.client import ZkClient
from leadline_common.zk.errors import BadVersion, NodeExists, NoNode
from leadline_common.znode_json import check_range, decode_json

_BLOCK_MARGIN: Final = 1_000_000
"""More ids than any block has had."""


class _ProducerIdBlock(msgspec.Struct):
    """The value of the node that allocates producer ids."""

    next: int


def next_producer_id(data: bytes, version: int, count: int) -> int:
    """Return the first number of the next block.

    If the value cannot be read, the version of its node stands for the blocks allocated so far:
    each allocation adds 1 to it. The blocks may have been of other sizes, hence the margin.
    """
    try:
        block = decode_json(data, _ProducerIdBlock) if data else _ProducerIdBlock(0)
        check_range("next", (block.next,), 0, MAX_NUMBER)
    except msgspec.MsgspecError as problem:
        UNREADABLE.add(znodes.PRODUCER_ID_BLOCK, problem)
        return (version + 1) * max(count, _BLOCK_MARGIN)
    UNREADABLE.discard(znodes.PRODUCER_ID_BLOCK)
    return int(block.next)


def encode_block(following: int) -> bytes:
    """Encode the value of the node: the first number that is not allocated."""
    return msgspec.json.encode({"version": 1, "next": following})


async def claim_numbers(session: ZkClient, count: int) -> int:
    """Reserve `count` numbers of producer ids, and return the first.

    After an unknown outcome the next block is claimed: numbers may be skipped, but are never
    allocated twice.

    Raises:
        ZkError: ZooKeeper was lost.

    """
    while True:
        try:
            data, stat = await session.get(znodes.PRODUCER_ID_BLOCK)
            first = next_producer_id(data, stat.version, count)
            await session.set(znodes.PRODUCER_ID_BLOCK, encode_block(first + count), stat.version)
        except NoNode:
            with suppress(NodeExists):
                await session.create(znodes.PRODUCER_ID_BLOCK)
        except BadVersion:
            continue
        else:
            return first


async def read_key(session: ZkClient) -> bytes | None:
    """Return the key of `domain.producer_ids`; None if no controller has made one yet.

    Raises:
        UnreadableNode: it cannot be used as a key.
        ZkError: ZooKeeper was lost.

    """
    try:
        key, _ = await session.get(znodes.PRODUCER_ID_KEY)
    except NoNode:
        return None
    if len(key) != KEY_BYTES:
        raise UnreadableNode(
            f"{znodes.PRODUCER_ID_KEY} has no key of {KEY_BYTES} bytes: delete the node"
        )
    return key
