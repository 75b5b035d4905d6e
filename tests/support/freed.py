"""What is freed as soon as it ends, without the garbage collector."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.support.services.zookeeper import until


@asynccontextmanager
async def all_freed(*kinds: type) -> AsyncIterator[None]:
    """Run the block without the collector, and wait until it has left no objects of these kinds.

    A server goes on for a moment after the last response, so that this is waited for.
    """

    def alive() -> Counter[type]:
        return Counter(type(one) for one in gc.get_objects() if issubclass(type(one), kinds))

    gc.collect()
    gc.disable()
    try:
        before = alive()
        yield
        await until(lambda: alive() == before, "what the block has used is freed")
    finally:
        gc.enable()
