"""Removal of files beside the event loop, in a thread that does nothing else.

A topic with 10,000 partitions leaves as many directories, and a file of 64 MB takes 20 ms. In the
threads that check batches and write checkpoints, all of that would come before these.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from leadline_common.started_threads import started_threads

_THREADS: Final = 1
"""Nobody waits for a removal, but a stop; and a process is to have few threads."""


class Removals:
    """The removals of files that wait or run. Owned by the event loop; its length is their number.

    What is left when the process ends is removed when the logs are opened again.
    """

    def __init__(self) -> None:
        self._threads = started_threads("removal", _THREADS)
        self._left: set[asyncio.Future[None]] = set()

    def __len__(self) -> int:
        return len(self._left)

    def add(self, work: Callable[[], None]) -> asyncio.Future[None]:
        """Run the removal of some files; the future is done when it has ended."""
        done = asyncio.get_running_loop().run_in_executor(self._threads, work)
        self._left.add(done)
        done.add_done_callback(self._left.discard)
        return done

    async def finish(self) -> None:
        """Wait for all removals; the last thing that is asked."""
        await asyncio.gather(*self._left, return_exceptions=True)
        self._threads.shutdown(wait=False)
