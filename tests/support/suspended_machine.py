"""A machine that was suspended, as far as its clocks show it."""

from __future__ import annotations

import sys
import time

import pytest

_CLOCK = "CLOCK_BOOTTIME" if sys.platform == "linux" else "CLOCK_MONOTONIC"


def suspend(patch: pytest.MonkeyPatch, hours: int) -> None:
    """Let the clock that counts suspended time be some hours later; `time.monotonic` stood still.

    The caller undoes it by `patch`.
    """
    real, counts = time.clock_gettime_ns, getattr(time, _CLOCK)
    slept_ns = hours * 3_600_000_000_000
    patch.setattr(
        time, "clock_gettime_ns", lambda clock: real(clock) + slept_ns * (clock == counts)
    )
