"""Which batches of idempotent producers wait for their predecessors, and for how long.

A producer has several batches of a partition in flight, and each may come over another connection.
So one may arrive before its predecessor (rule R15).
"""

from __future__ import annotations

from typing import Final

from leadline_broker.domain.producers import REMEMBERED_BATCHES

MAX_HELD: Final = REMEMBERED_BATCHES - 1
"""How many batches of a producer wait in one partition: its oldest one in flight never does."""

MAX_HELD_BYTES: Final = 64 << 20
"""How many bytes of batches wait in one broker."""

_MAX_HOLD_MS: Final = 500
"""Longer than two requests that were sent together arrive apart, shorter than clients give up."""
_SHARE_OF_TIMEOUT: Final = 4


def may_hold(count: int, held_bytes: int, size: int) -> bool:
    """Tell whether a batch of `size` bytes may wait.

    `count` batches of its producer wait in its partition, and `held_bytes` in the broker.
    """
    return count < MAX_HELD and held_bytes + size <= MAX_HELD_BYTES


def hold_ms(timeout_ms: int) -> int:
    """Return how long a batch may wait whose sender allows the broker `timeout_ms`."""
    return min(_MAX_HOLD_MS, timeout_ms // _SHARE_OF_TIMEOUT)
