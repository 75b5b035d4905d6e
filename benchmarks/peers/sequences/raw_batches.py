"""Producing whole batches of one record each, by twelve clients with one batch in flight each."""

from __future__ import annotations

from peers.sequences.case import ASYNCHRONOUS, Case, byte_rate, work
from peers.sequences.sizes import Sizes

BATCHES = {"16 KB": 16_000, "256 KB": 256_000, "1 MB": 1_000_000}
CLIENTS = 12
MOST_SMALL_BATCHES = 1_500


def cases(sizes: Sizes) -> list[Case]:
    """Return a case for each size; the codec has next to nothing to do."""
    return [
        Case(
            "raw",
            f"batches of {name}",
            "produce_batches",
            work(_count(sizes, size), size, clients=CLIENTS),
            byte_rate,
            ASYNCHRONOUS,
        )
        for name, size in BATCHES.items()
    ]


def _count(sizes: Sizes, batch_bytes: int) -> int:
    return min(MOST_SMALL_BATCHES, max(CLIENTS, sizes.batch_bytes // batch_bytes))
