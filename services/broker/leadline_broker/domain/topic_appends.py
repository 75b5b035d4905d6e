"""Appending to a topic rather than to a partition: which record goes where, and what came of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass

from leadline_client.errors import LeadlineError, UnknownPartition
from leadline_client.murmur2 import partition_for_key


@dataclass(frozen=True, slots=True)
class TopicLayout:
    """The partitions of a topic, and the one for records of a request that have no key.

    A set, because each of 100,000 records may state one of 10,000 partitions.
    """

    topic: str
    numbers: Set[int]
    keyless: int

    def place(self, partition: int | None, key: bytes | None) -> int:
        """Return the partition of a record: the stated one, or else Kafka's choice for its key.

        Raises:
            UnknownPartition: the topic has no partition of this number.

        """
        if partition is not None:
            if partition not in self.numbers:
                raise UnknownPartition(f"topic {self.topic} has no partition {partition}")
            return partition
        return self.keyless if key is None else partition_for_key(key, len(self.numbers))


def keyless_partition(numbers: Sequence[int], led: Sequence[int], random: float) -> int:
    """Return the partition for the records without a key of one request.

    It is one of those with a leader, if there are any. One partition for a whole request keeps
    batches large (KIP-480); `random`, in [0, 1), spreads the requests.
    """
    candidates = led or numbers
    return candidates[int(random * len(candidates))]


def failure_of(outcomes: Iterable[LeadlineError | None]) -> LeadlineError | None:
    """Return the error of a request of which no partition has succeeded, None if one has.

    `outcomes` has that of each partition. An unknown one comes first: the request as a whole is
    refused only if certainly nothing was appended.
    """
    errors: list[LeadlineError] = []
    for outcome in outcomes:
        if outcome is None:
            return None
        errors.append(outcome)
    return next((error for error in errors if error.outcome == "unknown"), errors[0])
