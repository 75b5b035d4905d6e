"""The settings of producers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from leadline_client.batch_window import MOST_IN_FLIGHT
from leadline_client.errors import InvalidRequest
from leadline_client.wire import Acks


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """Settings of a producer.

    `linger_ms`: how long a batch waits for more records. `batch_bytes`: a batch of
    this size is sent at once, by halves if it is too large for the topic. `buffer_bytes`:
    `send` waits while the unacknowledged records are larger than this.
    `delivery_timeout_s`: a batch fails after this time, retries included. `idempotent`:
    None means only with acks=all. `metadata_max_age_s`: how long it takes at most until
    added partitions are used. `max_in_flight`: how many batches of a partition are under way
    at most, 1 to 5; without idempotence it is always 1.
    """

    acks: Acks = "all"
    linger_ms: float = 5.0
    batch_bytes: int = 1_000_000
    buffer_bytes: int = 32 * 1024 * 1024
    compression: str = "none"
    idempotent: bool | None = None
    delivery_timeout_s: float = 120.0
    metadata_max_age_s: float = 300.0
    max_in_flight: int = MOST_IN_FLIGHT

    @property
    def numbers_batches(self) -> bool:
        """Whether batches carry a producer id and sequence numbers."""
        if self.idempotent and self.acks != "all":
            raise InvalidRequest("an idempotent producer needs acks=all")
        return self.acks == "all" if self.idempotent is None else self.idempotent

    @property
    def batches_in_flight(self) -> int:
        """How many batches of a partition may be under way at the same time."""
        if not 1 <= self.max_in_flight <= MOST_IN_FLIGHT:
            raise InvalidRequest(f"max_in_flight is 1 to {MOST_IN_FLIGHT}")
        return self.max_in_flight if self.numbers_batches else 1


DEFAULTS: Final = ProducerSettings()
