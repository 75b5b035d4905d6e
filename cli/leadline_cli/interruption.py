"""Running a coroutine until it ends or is interrupted: by Ctrl-C, SIGTERM or SIGHUP.

Containers and service managers stop a command with SIGTERM. A second one ends the process at once.
SIGHUP comes when the terminal is closed, and may come twice: from the kernel and from the shell.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of `work`, which SIGTERM and SIGHUP cancel as Ctrl-C does.

    Raises:
        KeyboardInterrupt: it was interrupted, and did not return a result all the same.

    """
    try:
        return asyncio.run(_terminable(work))
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


def hang_up_signals() -> list[signal.Signals]:
    """Return SIGHUP, unless this process ignores it, as under `nohup`, or handles it already."""
    return [signal.SIGHUP] if signal.getsignal(signal.SIGHUP) == signal.SIG_DFL else []


async def _terminable(work: Coroutine[Any, Any, T]) -> T:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()

    def terminate() -> None:
        loop.remove_signal_handler(signal.SIGTERM)
        if task is not None:
            task.cancel()

    def hang_up() -> None:
        if task is not None and not task.cancelling():
            terminate()

    if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:  # Somebody may want it ignored.
        loop.add_signal_handler(signal.SIGTERM, terminate)
    for number in hang_up_signals():
        loop.add_signal_handler(number, hang_up)
    return await work
