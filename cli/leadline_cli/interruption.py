"""Running a coroutine until it ends or is interrupted: by Ctrl-C, or by SIGTERM.

Containers and service managers stop a command with SIGTERM. A second one ends the process at once.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of `work`, which SIGTERM cancels as Ctrl-C does.

    Raises:
        KeyboardInterrupt: it was interrupted, and did not return a result all the same.

    """
    try:
        return asyncio.run(_terminable(work))
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


async def _terminable(work: Coroutine[Any, Any, T]) -> T:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()

    def terminate() -> None:
        loop.remove_signal_handler(signal.SIGTERM)
        if task is not None:
            task.cancel()

    if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:  # Somebody may want it ignored.
        loop.add_signal_handler(signal.SIGTERM, terminate)
    return await work
