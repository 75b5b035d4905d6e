"""Long work on an event loop in slices, between which the loop serves everybody else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Final, TypeVar

T = TypeVar("T")

SLICE: Final = 500
"""How many items of about 20 µs each take 10 ms, which nobody who waits meanwhile notices."""


async def slices(items: Sequence[T], size: int = SLICE) -> AsyncIterator[Sequence[T]]:
    """Yield the items in parts of at most `size`, and let the loop run after each but the last.

    Whatever the caller knows about the rest of the world may have changed with each part.
    """
    for start in range(0, len(items), size):
        if start:
            await asyncio.sleep(0)
        yield items[start : start + size]
