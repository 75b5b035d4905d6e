"""The clock of leases and deadlines, which goes on while the machine is suspended."""

from __future__ import annotations

import sys
import time

_NS_IN_S = 1_000_000_000


def monotonic_ns() -> int:
    """Return nanoseconds since an arbitrary start; they never go backwards.

    The time for which the machine was suspended counts. On Linux and macOS `time.monotonic` leaves
    it out: after the resume a lease would seem valid, although others have taken over long since.
    """
    if sys.platform == "linux":
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    if sys.platform == "darwin":
        return time.clock_gettime_ns(time.CLOCK_MONOTONIC)  # Not the one of `time.monotonic`.
    return time.monotonic_ns()


def monotonic_s() -> float:
    """Return `monotonic_ns` in seconds."""
    return monotonic_ns() / _NS_IN_S
