"""Reading six partitions from their beginning with one consumer."""

from __future__ import annotations

from peers.sequences.case import Case, rates, work
from peers.sequences.sizes import Sizes


def cases(sizes: Sizes) -> list[Case]:
    """Return the cases, of the same records as those of `produce`."""
    small, large = work(sizes.small_records, 100), work(sizes.large_records, 1_000)
    return [
        Case("consume", "consume 100 B", "consume", small, rates, reads=True),
        Case("consume", "consume 1 KB", "consume", large, rates, reads=True),
    ]
