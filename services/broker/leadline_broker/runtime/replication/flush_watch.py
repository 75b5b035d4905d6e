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

_TICKS: Final = 10


@dataclass(eq=False, kw_only=True)
class FlushWatch:
    """Calls `on_hanging(error)` once, when a group of fsyncs takes `timeout_ms()`.

    It counts ticks, not time: a process that was frozen does not know what the disk did meanwhile,
    so that a pause of any length counts as one tick.
    """

    flushers: Sequence[GroupFlusher]
    timeout_ms: Callable[[], int]
    on_hanging: Callable[[StorageFailed], None]

    async def run(self) -> None:
        """Watch; never returns."""
        watched = [_Watched(flusher) for flusher in self.flushers]
        while True:
            await asyncio.sleep(self.timeout_ms() / 1000 / _TICKS)
            if max([one.tick() for one in watched]) >= _TICKS:
                break
        waited_s = self.timeout_ms() / 1000
        self.on_hanging(StorageFailed(f"the disk has not ended an fsync within {waited_s:g} s"))
        await asyncio.get_running_loop().create_future()  # The broker stops.


@dataclass(eq=False, slots=True)
class _Watched:
    flusher: GroupFlusher
    group: asyncio.Future[None] | None = None
    ticks: int = 0

    def tick(self) -> int:
        """Return for how many ticks the same group has been flushed."""
        group = self.flusher.flushing
        self.ticks = self.ticks + 1 if group is not None and group is self.group else 0
        self.group = group
        return self.ticks
