"""Fsyncs that the simulated kernel does without a thread of the process that asks for them."""

from __future__ import annotations

import os
from dataclasses import dataclass

from leadline_broker.adapters.log.kernel_fsyncs import OnDone
from tests.runtime_simulation.event_loop import is_stuck
from tests.runtime_simulation.system_calls import SimulatedSystem


@dataclass(eq=False, slots=True)
class SimulatedFsync:
    """An fsync that ends at its time, or when somebody waits for it.

    It makes durable what was in the file when it began, which had `size` bytes then.
    """

    system: SimulatedSystem
    fd: int
    size: int
    on_done: OnDone
    ended: bool = False

    def end(self) -> None:
        """End it now, or when the disk goes on."""
        if not is_stuck(self.wait):
            self.wait()

    def wait(self) -> None:
        """End it now."""
        if self.ended:
            return
        self.ended = True
        try:
            self.system.fsync(self.fd, self.size)
        except OSError as error:
            self.on_done(error)
        else:
            self.on_done(None)


@dataclass(eq=False, slots=True)
class SimulatedFsyncs:
    """Those of the process that asks; they take as long as the work of a thread."""

    system: SimulatedSystem

    def start(self, fd: int, on_done: OnDone) -> SimulatedFsync:
        """Fsync a file some time later."""
        started = SimulatedFsync(self.system, fd, os.fstat(fd).st_size, on_done)
        loop = self.system.loop
        loop.call_later(loop.thread_delay_s(), started.end)
        return started
