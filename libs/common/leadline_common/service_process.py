"""What every service's process does: serve requests beside the work that makes it a member."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

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


def exit_at_once(status: int) -> NoReturn:
    """End this process although some of its threads cannot end, because their disk hangs.

    The interpreter would wait for them for ever. The kernel keeps the process until they end, with
    everything that is open: so its connections and listeners are ended first, for others to notice.
    """
    for path in list(Path("/dev/fd").iterdir()):
        # Not a socket, or the descriptor of the list itself, which is closed again.
        with suppress(OSError), socket.socket(fileno=os.dup(int(path.name))) as one:
            one.shutdown(socket.SHUT_RDWR)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
