"""Producing with acks=all to six partitions, by clients that batch."""

from __future__ import annotations

from peers.sequences.case import Case, rates, work
from peers.sequences.sizes import Sizes


def cases(sizes: Sizes) -> list[Case]:
    """Return the cases: small records cost the client, large ones the brokers."""
    small, large = work(sizes.small_records, 100), work(sizes.large_records, 1_000)
    return [
        Case("produce", "produce 100 B", "produce", small, rates),
        Case("produce", "produce 1 KB", "produce", large, rates),
        Case("produce", "produce 100 B in lists", "produce_many", small, rates),
    ]
