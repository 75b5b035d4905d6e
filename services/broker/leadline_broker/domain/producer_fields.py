"""The part of a batch header that says who wrote the batch.

The producer id tells what the epoch and the sequence mean: see `producers` for idempotent
producers, and `publishes` for applications.
"""

from __future__ import annotations

from typing import Protocol


class ProducerFields(Protocol):
    """What the tables of producers and of publishes read of a batch header."""

    @property
    def producer_id(self) -> int:
        """The producer or the application (`publishes.publisher_id`), or `NO_PRODUCER_ID`."""

    @property
    def producer_epoch(self) -> int:
        """The incarnation of the producer, or the place of the piece (`publishes.piece_epoch`)."""

    @property
    def base_sequence(self) -> int:
        """The sequence number of the first record, negative for none; or the batch's number."""

    @property
    def record_count(self) -> int:
        """Records in the batch."""

    @property
    def base_offset(self) -> int:
        """The offset of the first record."""

    @property
    def max_timestamp(self) -> int:
        """The latest record timestamp, milliseconds since the Unix epoch."""
