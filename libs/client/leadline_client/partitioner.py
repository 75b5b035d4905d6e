"""Which partition a record goes to: Kafka's rule, so that the two agree on keys.

A key goes to murmur2(key) mod the partition count. Without a key a producer
stays with one partition until its batch is full, then takes the next: full
batches matter more than an even spread of single records (KIP-480). Pure.
"""

from __future__ import annotations

from leadline_client.murmur2 import partition_for_key


class StickyPartitioner:
    """Chooses partitions for one topic's records."""

    def __init__(self) -> None:
        self._current = 0

    def choose(self, key: bytes | None, partition_count: int) -> int:
        """Return the partition of the next record."""
        if key is not None:
            return partition_for_key(key, partition_count)
        return self._current % partition_count

    def batch_closed(self, partition: int, partition_count: int) -> None:
        """Move on: the batch that keyless records went into is complete."""
        if partition == self._current % partition_count:
            self._current = (partition + 1) % partition_count
