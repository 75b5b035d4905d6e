"""Batching of a producer's records: one lane per partition. Pure: no IO, no clock.

A lane collects records into batches and numbers them. One batch of a lane is in
flight at a time, so that records are appended in the order in which they were
sent, whatever is retried.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from leadline_client.errors import LeadlineError, OutcomeUnknown, OutOfOrderSequence, ProducerFenced
from leadline_client.payloads import OutgoingRecord, ProducerIdentity

Token = TypeVar("Token")
MAX_SEQUENCE = 2**31 - 1
_RECORD_OVERHEAD = 21


def estimated_size(record: OutgoingRecord) -> int:
    """Return about how many bytes a record takes in a batch, before compression."""
    size = _RECORD_OVERHEAD + len(record.value or b"") + len(record.key or b"")
    return size + sum(len(name) + len(value or b"") + 4 for name, value in record.headers)


@dataclass(slots=True)
class Batch(Generic[Token]):
    """Records for one request; each has a token by which its sender is answered."""

    opened_s: float
    records: list[OutgoingRecord] = field(default_factory=list)
    tokens: list[Token] = field(default_factory=list)
    size: int = 0


@dataclass(slots=True)
class Numbering:
    """The identity of an idempotent lane and the sequence number of its next batch."""

    identity: ProducerIdentity
    next_sequence: int = 0

    def advance(self, count: int) -> None:
        """Count records that are in the log; sequences wrap at 2^31 - 1."""
        self.next_sequence = (self.next_sequence + count) % (MAX_SEQUENCE + 1)


def spoils_numbering(error: LeadlineError) -> bool:
    """Tell whether a lane needs a new identity after a batch failed for good.

    After an unknown outcome the batch may be in the log or not, so the next
    sequence number is unknown too. After any other refusal it is not in the
    log, and its numbers are free for the next batch.
    """
    return isinstance(error, (OutcomeUnknown, OutOfOrderSequence, ProducerFenced))


class Lane(Generic[Token]):
    """The waiting batches of one partition, the last of which may still be open.

    `added` counts all records that ever came, `settled` those that were answered.
    """

    def __init__(self, *, batch_bytes: int, linger_s: float) -> None:
        self.added = 0
        self.settled = 0
        self.numbering: Numbering | None = None
        self.needs_own_identity = False
        self._batch_bytes = batch_bytes
        self._linger_s = linger_s
        self._batches: deque[Batch[Token]] = deque()
        self._hurry = False

    def __bool__(self) -> bool:
        return bool(self._batches)

    def add(self, record: OutgoingRecord, token: Token, now_s: float) -> bool:
        """Append a record; return whether that began a new batch after a full one."""
        size = estimated_size(record)
        last = self._batches[-1] if self._batches else None
        overflow = last is not None and last.size + size > self._batch_bytes
        if last is None or overflow:
            last = Batch(now_s)
            self._batches.append(last)
        last.records.append(record)
        last.tokens.append(token)
        last.size += size
        self.added += 1
        return overflow

    def renew_identity(self) -> None:
        """Forget the numbering: the next batch is to begin anew, as another producer."""
        self.numbering = None
        self.needs_own_identity = True

    def flush(self) -> None:
        """Make what waits now ready at once."""
        self._hurry = True

    def due_in(self, now_s: float) -> float:
        """Return in how many seconds the first batch is to go; 0 is at once."""
        first = self._batches[0]
        if self._hurry or len(self._batches) > 1 or first.size >= self._batch_bytes:
            return 0.0
        return max(0.0, first.opened_s + self._linger_s - now_s)

    def take(self) -> Batch[Token]:
        """Remove and return the first batch."""
        batch = self._batches.popleft()
        if not self._batches:
            self._hurry = False
        return batch
