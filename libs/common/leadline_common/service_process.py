"""What every service's process does: serve requests beside the work that makes it a member."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import structlog

logger = structlog.get_logger(__name__)


async def serve_beside(
    work: asyncio.Task[None], serving: Coroutine[Any, Any, None], service: str
) -> None:
    """Await `serving`, and cancel `work` afterwards; return when both have ended.

    Work that fails ends the process, so that whoever runs it notices. Work that is cancelled
    meanwhile, because the service is stopping, does not.

    Raises:
        SystemExit: with 1, if the work failed.

    """
    served = asyncio.create_task(serving, name=f"{service}-serving")
    try:
        await asyncio.wait({served, work}, return_when=asyncio.FIRST_COMPLETED)
        failure = work.exception() if work.done() and not work.cancelled() else None
        if failure is not None:
            logger.error(f"{service} stopped by an error", exc_info=failure)
            raise SystemExit(1)
        await served
    finally:
        for task in (served, work):
            task.cancel()
        await asyncio.gather(served, work, return_exceptions=True)
