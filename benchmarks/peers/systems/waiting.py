"""Waiting for a condition with a deadline."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from peers.systems.system import BROKERS, DEADLINE_S, System

POLL_S = 0.02
PAUSE = 4.0
"""How many times as long as a check took the pause after it is, so that checks slow nothing down:
the metadata of ten thousand partitions is a megabyte.
"""


async def until(
    condition: Callable[[], Awaitable[bool]],
    what: str,
    *,
    deadline_s: float = DEADLINE_S,
    poll_s: float = POLL_S,
) -> float:
    """Wait until a condition holds; return the time at which it was seen to (`time.monotonic`).

    A refused connection counts as "not yet".

    Raises:
        TimeoutError: it did not in time; the message says `what`.

    """
    give_up = time.monotonic() + deadline_s
    while True:
        begun = time.monotonic()
        try:
            if await condition():
                return time.monotonic()
        except OSError as problem:
            last = f": {problem}"
        else:
            last = ""
        now = time.monotonic()
        if now > give_up:
            raise TimeoutError(f"not in {deadline_s:.0f} s: {what}{last}")
        await asyncio.sleep(max(poll_s, PAUSE * (now - begun)))


async def until_whole(system: System) -> float:
    """Wait until every broker sees every broker and every replica in sync."""

    async def whole() -> bool:
        return all([(await system.view(number)).is_whole for number in BROKERS])

    return await until(whole, f"{system.name} is whole", poll_s=0.2)
