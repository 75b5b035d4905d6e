"""Requests for the controller while it changes.

A broker learns of a new controller by its metadata. Until then it knows the address of the former
one, where nobody listens any more, or a process that has been started again and is not elected yet.
Callers would have to ask again, at growing intervals, so the broker does it for them.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from leadline_broker.runtime.cluster.metadata import ClusterMetadataCache
from leadline_client.backoff import Backoff
from leadline_client.errors import NoController

NEXT_CONTROLLER_S: Final = 5.0
"""How long a request waits for the next controller. Sessions may take longer to expire."""
FIRST_PAUSE_MS: Final = 10
LONGEST_PAUSE_MS: Final = 160
"""How soon the same controller is asked again, because it may be about to be active."""

T = TypeVar("T")


async def with_next_controller(
    metadata: ClusterMetadataCache, send: Callable[[], Awaitable[T]]
) -> T:
    """Send a request to the controller that the metadata names, until one is active.

    `send` raises NoController only if nothing has happened, so sending again is safe.

    Raises:
        NoController: no controller is known, none was active for `NEXT_CONTROLLER_S`, or this
            broker is about to stop.
        LeadlineError: another error of `send`.

    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + NEXT_CONTROLLER_S
    pauses = Backoff(random.random, first_ms=FIRST_PAUSE_MS, longest_ms=LONGEST_PAUSE_MS)
    while True:
        asked = metadata.active_controller
        try:
            return await send()
        except NoController:
            if asked is None or loop.time() >= deadline:
                raise
            if await metadata.wait_next_controller(asked, int(pauses.next_ms())):
                pauses.reset()
            elif metadata.is_stopped:
                raise
