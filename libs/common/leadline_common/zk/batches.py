"""Splitting many operations into multis that ZooKeeper accepts. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from leadline_common.zk.ops import Op

MOST_OPERATIONS: Final = 1_000
MOST_BYTES: Final = 700 * 1024
"""Below the size of a request at which a server closes the connection."""
_OVERHEAD: Final = 64
"""The most bytes of an operation besides its path and data."""


def batches_of(ops: Iterable[Op]) -> Iterator[list[Op]]:
    """Split operations into multis, in order; each is applied whole, but not all at once."""
    batch: list[Op] = []
    size = 0
    for op in ops:
        weight = len(op.path) + len(getattr(op, "data", b"")) + _OVERHEAD
        if batch and (len(batch) == MOST_OPERATIONS or size + weight > MOST_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(op)
        size += weight
    if batch:
        yield batch
