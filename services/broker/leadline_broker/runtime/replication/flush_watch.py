"""Notices a disk that hangs: an fsync that does not end reports no error (rule R4).

A leader whose disk hangs keeps its session and acknowledges nothing, for as long as it hangs. So it
has to end, and let others lead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from leadline_broker.runtime.replication.flusher import GroupFlusher
from leadline_client.errors import StorageFailed

_STEPS: Final = 10
_LONGEST_STEP_MS: Final = 1_000
"""A lower timeout is in force after this time."""


@dataclass(eq=False, kw_only=True)
class FlushWatch:
    """Calls `on_hanging(error)` once, when no fsync of a group ends within `timeout_ms()`.

    A group may take longer: after a change of roles it can have tens of thousands of logs. It
    counts steps, not time: a process that was frozen does not know what the disk did meanwhile, so
    that a pause of any length counts as one step.
    """

    flushers: Sequence[GroupFlusher]
    timeout_ms: Callable[[], int]
    on_hanging: Callable[[StorageFailed], None]

    async def run(self) -> None:
        """Watch; never returns."""
        watched = [_Watched(flusher) for flusher in self.flushers]
        while True:
            step_ms = min(self.timeout_ms() // _STEPS, _LONGEST_STEP_MS)
            await asyncio.sleep(step_ms / 1000)
            if max([one.step(step_ms) for one in watched]) >= self.timeout_ms():
                break
        waited_s = self.timeout_ms() / 1000
        self.on_hanging(StorageFailed(f"the disk has not ended an fsync within {waited_s:g} s"))
        await asyncio.get_running_loop().create_future()  # The broker stops.


@dataclass(eq=False, slots=True)
class _Watched:
    flusher: GroupFlusher
    group: asyncio.Future[None] | None = None
    ended: int = 0
    waited_ms: int = 0

    def step(self, step_ms: int) -> int:
        """Return for how long the same group has been flushed without the end of an fsync."""
        group, ended = self.flusher.flushing, self.flusher.ended
        same = group is not None and group is self.group and ended == self.ended
        self.waited_ms = self.waited_ms + step_ms if same else 0
        self.group, self.ended = group, ended
        return self.waited_ms
