"""Requests for the controller while it changes.

A broker learns of a new controller by its metadata. Until then it knows the address of the former
one. Its callers would find out by asking again, at growing intervals, so it waits for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from leadline_broker.runtime.cluster.metadata import ClusterMetadataCache
from leadline_client.errors import NoController

NEXT_CONTROLLER_S: Final = 5.0
"""How long a request waits for the next controller. Sessions may take longer to expire."""

T = TypeVar("T")


async def with_next_controller(
    metadata: ClusterMetadataCache, send: Callable[[], Awaitable[T]]
) -> T:
    """Send a request to the controller that the metadata names, and to the next one if it is gone.

    `send` raises NoController only if nothing has happened, so sending again is safe.

    Raises:
        NoController: no controller is known, or no other one within `NEXT_CONTROLLER_S`.
        LeadlineError: another error of `send`.

    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + NEXT_CONTROLLER_S
    while True:
        asked = metadata.active_controller
        try:
            return await send()
        except NoController:
            left_ms = int((deadline - loop.time()) * 1000)
            if asked is None or not await metadata.wait_next_controller(asked, left_ms):
                raise
