"""The end of a consumer, which may be closed or lost."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

from leadline_client.client import AsyncClient
from leadline_client.consumer_coordinator import ConsumerCoordinator
from leadline_client.fetching import Fetcher

Ending: TypeAlias = Callable[[], Coroutine[Any, Any, None]]
"""What is left to do at the end of a consumer; it does not refer to the consumer."""


async def end(
    coordinator: ConsumerCoordinator | None,
    fetcher: Fetcher[Any, Any],
    client: AsyncClient | None,
    *,
    quietly: bool,
) -> None:
    """Leave the group, stop reading, close the client; all of it, also if it is cancelled.

    A member that does not leave would keep its partitions without reading them.
    """
    try:
        if coordinator is not None:
            await coordinator.leave(quietly=quietly)
    finally:
        try:
            await fetcher.aclose()
        finally:
            if client is not None:
                await client.aclose()


def end_unclosed(loop: asyncio.AbstractEventLoop, ending: Ending) -> None:
    """Have a consumer that nothing refers to any more leave; any thread may have collected it."""
    last = ending()
    try:
        asyncio.run_coroutine_threadsafe(last, loop)
    except RuntimeError:  # The loop is closed, and so the member has ended.
        last.close()
    warnings.warn("an AsyncConsumer was not closed", ResourceWarning, stacklevel=2)
