"""Notices a disk that hangs: an fsync that does not end reports no error (rule R4).

A leader whose disk hangs keeps its session and acknowledges nothing, for as long as it hangs. So it
has to end, and let others lead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final

from leadline_client.errors import StorageFailed

_STEPS: Final = 10
_LONGEST_STEP_MS: Final = 1_000
"""A lower timeout is in force after this time."""


@dataclass(eq=False)
class DiskWatch:
    """Calls `on_hanging(error)` once, when one of `progresses` stays for `timeout_ms()`.

    Each changes with everything that its work on the disk ends, and is None without any. A group
    of fsyncs may take longer: after a change of roles it can have tens of thousands of logs. It
    counts steps, not time: a process that was frozen does not know what the disk did meanwhile, so
    that a pause of any length counts as one step.
    """

    progresses: Sequence[Callable[[], object]]
    timeout_ms: Callable[[], int]
    on_hanging: Callable[[StorageFailed], None]

    async def run(self) -> None:
        """Watch; never returns."""
        waits = [DiskWait(progress) for progress in self.progresses]
        while True:
            step_ms = step_ms_of(self.timeout_ms())
            await asyncio.sleep(step_ms / 1000)
            if max([wait.step(step_ms) for wait in waits]) >= self.timeout_ms():
                break
        waited_s = self.timeout_ms() / 1000
        self.on_hanging(StorageFailed(f"the disk has not answered within {waited_s:g} s"))
        await asyncio.get_running_loop().create_future()  # The broker stops.


def step_ms_of(timeout_ms: int) -> int:
    """Return how long to wait before each look at a disk that may take `timeout_ms`."""
    return min(timeout_ms // _STEPS, _LONGEST_STEP_MS)


@dataclass(eq=False, slots=True)
class DiskWait:
    """For how long the disk has ended nothing.

    `progress()` changes with everything that ends; it is None while nothing is waited for.
    """

    progress: Callable[[], object]
    _before: object = None
    _waited_ms: int = 0

    def step(self, step_ms: int) -> int:
        """Return for how many ms there was no progress; `step_ms` since the last call count."""
        progress = self.progress()
        same = progress is not None and progress == self._before
        self._waited_ms = self._waited_ms + step_ms if same else 0
        self._before = progress
        return self._waited_ms


async def ends_in_time(
    work: Coroutine[Any, Any, None], progress: Callable[[], object], timeout_ms: Callable[[], int]
) -> bool:
    """Return whether work ends; cancel it once there is no progress for `timeout_ms()`."""
    task, wait = asyncio.create_task(work), DiskWait(progress)
    try:
        waited_ms = wait.step(0)
        while waited_ms < timeout_ms():
            step_ms = step_ms_of(timeout_ms())
            if (await asyncio.wait({task}, timeout=step_ms / 1000))[0]:
                task.result()
                return True
            waited_ms = wait.step(step_ms)
        return False
    finally:
        task.cancel()
