"""Running a loop again after a fault, where a fault of one round leaves nothing half done."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, NoReturn

import structlog

logger = structlog.get_logger(__name__)

PAUSE_S: Final = 1.0


async def keep_running(
    run: Callable[[], Awaitable[None]], name: str, pause_s: float = PAUSE_S
) -> NoReturn:
    """Await `run()` again and again; log an exception of it instead of ending.

    Only for loops that read and publish: one that has to finish what it began fails its owner.
    """
    while True:
        try:
            await run()
        except Exception:
            logger.exception("a task failed, and is started again", task=name)
        await asyncio.sleep(pause_s)
