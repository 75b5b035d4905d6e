"""The time until a record is acknowledged, where hardly anything else is to be done."""

from __future__ import annotations

from peers.sequences.case import ASYNCHRONOUS, Case, latencies, work
from peers.sequences.sizes import Sizes

PER_SECOND = 100.0


def cases(sizes: Sizes) -> list[Case]:
    """Return the case: one producer, no lingering."""
    paced = work(sizes.paced_records, 100, per_second=PER_SECOND)
    return [Case("latency", "100 records/s", "send_paced", paced, latencies, ASYNCHRONOUS)]
