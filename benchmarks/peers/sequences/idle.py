"""What brokers need while nothing is asked of them."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import AsyncIterator, Mapping
from typing import Final

from peers.processes import cpu_s, resident_mib
from peers.report.samples import Metric
from peers.sequences.on_cluster import Subject
from peers.systems.system import BROKERS
from peers.systems.waiting import until_whole

MEMORY: Final = Metric("idle broker: resident memory", "MiB")
CPU: Final = Metric("idle broker: CPU", "% of a core")


async def measure(subject: Subject) -> AsyncIterator[Mapping[Metric, float]]:
    """Yield memory and CPU of a broker, as means of all three over a window of time."""
    await until_whole(subject.system)
    window_s = subject.sizes.idle_s
    await asyncio.sleep(window_s)  # What follows the creation of topics ends.
    pids = [subject.system.broker_pid(number) for number in BROKERS]
    before = [cpu_s(pid) for pid in pids]
    await asyncio.sleep(window_s)
    used = [cpu_s(pid) - then for pid, then in zip(pids, before, strict=True)]
    yield {
        MEMORY: statistics.fmean(resident_mib(pid) for pid in pids),
        CPU: statistics.fmean(used) / window_s * 100,
    }
