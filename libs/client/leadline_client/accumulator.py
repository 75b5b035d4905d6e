"""Batching of a producer's records, with one accumulator per partition. Pure: no IO, no clock.

An accumulator collects records into batches and gives them sequence numbers. A broker appends
batches in the order of these numbers only, so records are appended in the order in which the
application sent them, in spite of retries. `batch_window.py` has the batches in flight.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import starmap
from typing import Final, Generic, TypeVar

from leadline_client import batches
from leadline_client.batch_header import header_at
from leadline_client.errors import (
    ForeignProducerId,
    LeadlineError,
    OutcomeUnknown,
    OutOfOrderSequence,
    ProducerFenced,
)
from leadline_client.payloads import EncodedBatch, OutgoingRecord, ProducerIdentity

Token = TypeVar("Token")
MAX_SEQUENCE = 2**31 - 1
_RECORD_OVERHEAD = 21
_ANONYMOUS = ProducerIdentity(batches.NO_PRODUCER_ID, -1)


def estimated_size(record: OutgoingRecord) -> int:
    """Return the approximate size of a record in a batch, in bytes before compression."""
    size = _RECORD_OVERHEAD + len(record.value or b"") + len(record.key or b"")
    if not record.headers:
        return size
    return size + sum(len(name) + len(value or b"") + 4 for name, value in record.headers)


def chunks_of(sizes: Sequence[int], most_bytes: int) -> Iterator[range]:
    """Yield the indexes of `sizes` in ranges, each of `most_bytes` at most or of one record."""
    start = total = 0
    for index, size in enumerate(sizes):
        if total + size > most_bytes and index > start:
            yield range(start, index)
            start, total = index, 0
        total += size
    if start < len(sizes):
        yield range(start, len(sizes))


@dataclass(slots=True)
class ProducerSequence:
    """The producer id of an idempotent accumulator, and the sequence number of its next batch."""

    identity: ProducerIdentity
    next_sequence: int = 0

    def advance(self, count: int) -> None:
        """Count appended records; the numbers start again at 0 after 2^31 - 1."""
        self.next_sequence = (self.next_sequence + count) % (MAX_SEQUENCE + 1)


@dataclass(slots=True)
class ProducerBatch(Generic[Token]):
    """The records of one request.

    `tokens` are values of the caller, each for as many records as `counts` says, in their order.
    The records may come `encoded`: `records` is then empty, and there is one token for all of them.
    `first`: how many records were added to the partition before these. `deadline_s`: when the batch
    fails, once it was sent.
    """

    opened_s: float
    records: list[OutgoingRecord] = field(default_factory=list)
    tokens: list[Token] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    size: int = 0
    encoded: EncodedBatch | None = None
    first: int = 0
    deadline_s: float | None = None

    @property
    def count(self) -> int:
        """The number of records."""
        return len(self.records) if self.encoded is None else self.encoded.record_count

    def encode(self, sequence: ProducerSequence | None, *, now_ms: int, compression: str) -> bytes:
        """Return the batch of format v2 with the next sequence numbers, or without any."""
        identity = sequence.identity if sequence else _ANONYMOUS
        numbers = {
            "producer_id": identity.producer_id,
            "producer_epoch": identity.producer_epoch,
            "base_sequence": sequence.next_sequence if sequence else batches.NO_SEQUENCE,
        }
        if self.encoded is None:
            return batches.encode(self.records, now_ms=now_ms, compression=compression, **numbers)
        stamped = bytearray(self.encoded.data)
        batches.stamp_producer(stamped, header_at(stamped), **numbers)
        return bytes(stamped)

    def halves(
        self, divide: Callable[[Token], Sequence[Token]]
    ) -> tuple[ProducerBatch[Token], ...]:
        """Return the batch as two, because it is too large; none if it cannot be divided.

        `divide` returns two tokens for the halves of a token's records.
        """
        tokens, counts = self.tokens, self.counts
        if self.count < 2 or (self.encoded is not None and self.encoded.divide is None):
            return ()
        if len(tokens) == 1:
            tokens = list(divide(tokens[0]))
            counts = [counts[0] // 2, counts[0] - counts[0] // 2]
        if self.encoded is not None and self.encoded.divide is not None:
            encoded = self.encoded.divide()
            return tuple(starmap(self._encoded_part, zip(encoded, tokens, strict=True)))
        half = len(tokens) // 2
        middle = sum(counts[:half])
        return (
            self._part(self.records[:middle], tokens[:half], counts[:half]),
            self._part(self.records[middle:], tokens[half:], counts[half:]),
        )

    def _part(
        self, records: list[OutgoingRecord], tokens: list[Token], counts: list[int]
    ) -> ProducerBatch[Token]:
        size = sum(map(estimated_size, records))
        return ProducerBatch(self.opened_s, records, tokens, counts, size, first=self.first)

    def _encoded_part(self, encoded: EncodedBatch, token: Token) -> ProducerBatch[Token]:
        counts, size = [encoded.record_count], len(encoded.data)
        return ProducerBatch(self.opened_s, [], [token], counts, size, encoded, self.first)


_NEEDING_NEW_ID: Final = (OutcomeUnknown, OutOfOrderSequence, ProducerFenced, ForeignProducerId)


def needs_new_producer_id(error: LeadlineError) -> bool:
    """Tell whether an accumulator needs a new producer id after a batch failed for good.

    After an unknown outcome the batch may be in the log, so the next sequence number
    is unknown too. After any other refusal the batch is not in the log, and the next
    batch can use its numbers, unless it was the id that was refused.
    """
    return isinstance(error, _NEEDING_NEW_ID)


class RecordAccumulator(Generic[Token]):
    """The batches of one partition that wait to be sent; records are added to the last one.

    `added` counts all records.
    """

    def __init__(self, *, batch_bytes: int, linger_s: float) -> None:
        self.added = 0
        self.sequence: ProducerSequence | None = None
        self.needs_own_producer_id = False
        self._batch_bytes = batch_bytes
        self._linger_s = linger_s
        self._batches: deque[ProducerBatch[Token]] = deque()
        self._flushing = False

    def __bool__(self) -> bool:
        return bool(self._batches)

    def add(self, record: OutgoingRecord, size: int, token: Token, now_s: float) -> bool:
        """Add a record of an `estimated_size`; return whether the last batch was too full for it.

        It then is the first one of a new batch.
        """
        last = self._batches[-1] if self._batches else None
        if last is not None and last.encoded is not None:
            last = None
        overflow = last is not None and last.size + size > self._batch_bytes
        if last is None or overflow:
            last = ProducerBatch(now_s, first=self.added)
            self._batches.append(last)
        last.records.append(record)
        last.tokens.append(token)
        last.counts.append(1)
        last.size += size
        self.added += 1
        return overflow

    def extend(self, token: Token | None, record: OutgoingRecord, size: int) -> bool:
        """Add a record for the token of the one before it, if the batch will not be full by it.

        Return whether it was added: the token must be the last of a batch that waits.
        """
        last = self._batches[-1] if self._batches else None
        if last is None or last.tokens[-1] is not token or last.size + size >= self._batch_bytes:
            return False
        last.records.append(record)
        last.counts[-1] += 1
        last.size += size
        self.added += 1
        return True

    def add_run(
        self, records: Sequence[OutgoingRecord], size: int, token: Token, now_s: float
    ) -> bool:
        """Add records of this size together, for one token, to one batch; see `add`."""
        overflow = self.add(records[0], size, token, now_s)
        last = self._batches[-1]
        last.records.extend(records[1:])
        last.counts[-1] = len(records)
        self.added += len(records) - 1
        return overflow

    def shrink(self, refused_bytes: int) -> None:
        """Fill further batches with half as much as one that was too large."""
        self._batch_bytes = min(self._batch_bytes, refused_bytes // 2)

    def add_encoded(self, batch: EncodedBatch, token: Token, now_s: float) -> None:
        """Add a batch that is encoded already; no other record is added to it."""
        self._batches.append(
            ProducerBatch(
                now_s,
                tokens=[token],
                counts=[batch.record_count],
                size=len(batch.data),
                encoded=batch,
                first=self.added,
            )
        )
        self.added += batch.record_count

    def reset_producer_id(self) -> None:
        """Drop the producer id: the next batch gets a new one, and sequence number 0."""
        self.sequence = None
        self.needs_own_producer_id = True

    def flush(self) -> None:
        """Make all waiting batches ready at once."""
        self._flushing = True

    @property
    def is_complete(self) -> bool:
        """Whether no record will be added to the first batch any more, or all are to leave."""
        first = self._batches[0]
        full = first.encoded is not None or first.size >= self._batch_bytes
        return self._flushing or len(self._batches) > 1 or full

    @property
    def first(self) -> int:
        """How many records were added before the first that waits."""
        return self._batches[0].first if self._batches else self.added

    def due_in(self, now_s: float) -> float:
        """Return in how many seconds the first batch is ready to send; 0 if it is ready now."""
        if self.is_complete:
            return 0.0
        return max(0.0, self._batches[0].opened_s + self._linger_s - now_s)

    def take(self) -> ProducerBatch[Token]:
        """Remove and return the first batch."""
        batch = self._batches.popleft()
        if not self._batches:
            self._flushing = False
        return batch
