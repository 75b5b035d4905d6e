"""What every service's process does: serve requests beside the work that makes it a member."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import structlog

from leadline_client.errors import LeadlineError
from leadline_common.process_errors import CannotRun, ServiceFailed

logger = structlog.get_logger(__name__)


async def serve_beside(
    work: asyncio.Task[None], serving: Coroutine[Any, Any, None], service: str
) -> None:
    """Await `serving`, and cancel `work` afterwards; return when both have ended.

    Work that fails ends the process, so that whoever runs it notices. Work that is cancelled
    meanwhile, because the service is stopping, does not.

    Raises:
        ServiceFailed: the work failed.

    """
    served = asyncio.create_task(serving, name=f"{service}-serving")
    try:
        await asyncio.wait({served, work}, return_when=asyncio.FIRST_COMPLETED)
        failure = work.exception() if work.done() and not work.cancelled() else None
        if isinstance(failure, CannotRun | LeadlineError):
            logger.error(f"{service} cannot run", reason=str(failure))
            raise ServiceFailed
        if failure is not None:
            logger.error(f"{service} stopped by an error", exc_info=failure)
            raise ServiceFailed
        await served
    finally:
        for task in (served, work):
            task.cancel()
        await asyncio.gather(served, work, return_exceptions=True)
