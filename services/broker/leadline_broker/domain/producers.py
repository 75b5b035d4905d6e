"""Sequence numbers of idempotent producers: which batches are new, repeated or out of order.

Each log has one table, to which leader and followers apply every batch in log order. So the
next leader accepts and refuses the same batches (rule R15; KIP-98). A new replica whose log begins
behind batches that retention has deleted gets what they tell from its leader.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from leadline_broker.domain.publishes import (
    FIRST_PUBLISHER_ID,
    ProducerFields,
    Publish,
    Publishes,
    PublishRow,
)
from leadline_client.errors import OutOfOrderSequence, ProducerFenced
from leadline_client.named_tuples import maker_of
from leadline_common.rpc import KnownProducers

NO_PRODUCER_ID = -1
"""The producer id of a batch without idempotence."""

REMEMBERED_BATCHES = 5
"""How many of a producer's latest batches are recognized when they are repeated."""

MOST_UNDONE = 64
"""How many of the latest batches a table can forget without reading the log again.

A follower truncates what its leader did not replicate to all: the batches that were in flight.
"""

_SEQUENCE_MASK = 0x7FFF_FFFF
_HALF_OF_SEQUENCES = 1 << 30


class SequencedBatch(NamedTuple):
    """The sequence numbers and the base offset of one appended batch; ends are inclusive."""

    first_sequence: int
    last_sequence: int
    base_offset: int

    @property
    def last_offset(self) -> int:
        """The offset of the last record, inclusive."""
        return self.base_offset + ((self.last_sequence - self.first_sequence) & _SEQUENCE_MASK)


_sequenced = maker_of(SequencedBatch)


@dataclass(frozen=True, slots=True)
class Accept:
    """The batch continues the sequence: append it."""


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The batch is already in the log, at these offsets (inclusive)."""

    base_offset: int
    last_offset: int


Verdict = Accept | Duplicate | OutOfOrderSequence | ProducerFenced
"""A refusal is the error to answer with; it is returned, not raised."""

ProducerRow = tuple[int, int, int, tuple[SequencedBatch, ...]]
"""Producer id, epoch, when it last wrote, its batches: a row of a snapshot.

The time is of the process that wrote the row. Another one counts from its start, see `mark_active`.
"""

UnreadRange = tuple[int, int]
"""The first offset, and the one after the last."""

_ACCEPT = Accept()


def sequence_after(sequence: int, count: int) -> int:
    """Return the sequence number `count` records after `sequence`; 2^31 - 1 is followed by 0."""
    return (sequence + count) & _SEQUENCE_MASK


class ProducerState:
    """The epoch and the latest batches of one producer in one log.

    There may be very many of them, so `batches` is a tuple: a deque takes 600 bytes.
    Invariant: each remembered batch begins where the one before it ended, unless the log
    had already dropped the state of the producer.
    """

    __slots__ = ("batches", "epoch", "last_active_ms")

    def __init__(self, epoch: int, last_active_ms: int = -1) -> None:
        self.epoch = epoch
        self.last_active_ms = last_active_ms
        self.batches: tuple[SequencedBatch, ...] = ()

    @property
    def expected_sequence(self) -> int:
        """The sequence number that the next new batch begins with."""
        return sequence_after(self.batches[-1].last_sequence, 1) if self.batches else 0

    def remember(self, batch: SequencedBatch) -> None:
        """Add the latest batch, and forget the oldest one beyond `REMEMBERED_BATCHES`."""
        self.batches = (*self.batches[1 - REMEMBERED_BATCHES :], batch)

    def find(self, first_sequence: int, last_sequence: int) -> SequencedBatch | None:
        """Return the remembered batch with exactly these sequence numbers."""
        for batch in self.batches:
            if batch.first_sequence == first_sequence and batch.last_sequence == last_sequence:
                return batch
        return None


class _Before(NamedTuple):
    """A producer as it was before the batch at an offset; no epoch: it was unknown."""

    offset: int
    producer_id: int
    epoch: int | None
    batches: tuple[SequencedBatch, ...]


class ProducerStates:
    """The producers of one log by id, in the order of their first batch.

    `publishes` holds the applications that publish, whose ids start at
    `FIRST_PUBLISHER_ID`; their producer fields have another meaning. `as_of` is the offset of the
    next batch. `unread` are the ranges of offsets whose batches could not be read, the end
    exclusive: the table lacks what they tell.

    Invariant: `_before` has, in the order of their offsets, all batches with a producer from
    `_undo_from` on.
    """

    __slots__ = ("_before", "_states", "_undo_from", "_wrote", "publishes", "unread")

    def __init__(
        self,
        rows: Iterable[ProducerRow] = (),
        publishes: Iterable[PublishRow] = (),
        as_of: int = 0,
        unread: Iterable[UnreadRange] = (),
    ) -> None:
        self.publishes = Publishes(publishes)
        self.unread = list(unread)
        self._before: list[_Before] = []
        self._undo_from = as_of
        self._states: dict[int, ProducerState] = {}
        self._wrote: dict[int, None] = {}
        for producer_id, epoch, last_active_ms, batches in rows:
            state = self._states[producer_id] = ProducerState(epoch, last_active_ms)
            state.batches = batches[-REMEMBERED_BATCHES:]
            self._wrote[producer_id] = None

    def __len__(self) -> int:
        return len(self._states)

    @property
    def knows_any(self) -> bool:
        """Whether there is any producer or application."""
        return bool(self._states or len(self.publishes))

    def get(self, producer_id: int) -> ProducerState | None:
        """Return the state of a producer, or None if it is unknown."""
        return self._states.get(producer_id)

    def rows(self) -> list[ProducerRow]:
        """Return the producers as plain values; `ProducerStates(rows)` restores them.

        Batches are not copied: there may be a million, and a log writes them whenever it rolls.
        """
        return [
            (producer_id, state.epoch, state.last_active_ms, state.batches)
            for producer_id, state in self._states.items()
        ]

    @classmethod
    def after(cls, known: KnownProducers | None, offset: int) -> ProducerStates:
        """Return the table of a log that begins at `offset`; `known` is what `before` returned."""
        if known is None:
            return cls(as_of=offset)
        rows = [
            (producer_id, epoch, active_ms, tuple(map(_sequenced, batches)))
            for producer_id, epoch, active_ms, batches in known.producers
        ]
        return cls(rows, [(i, ms, Publish(*publish)) for i, ms, publish in known.publishes], offset)

    def before(
        self, offset: int, after: int = NO_PRODUCER_ID, most: int | None = None
    ) -> KnownProducers:
        """Return what batches below `offset` alone tell: the log of a new replica begins there.

        That is of the first `most` of the producers and applications whose ids are above `after`.
        """
        ids = sorted(known for known in chain(self._states, self.publishes.ids()) if known > after)
        told = ids[:most]
        rows = (self._row_before(offset, known) for known in told if known in self._states)
        publishes = (self.publishes.row(known) for known in told if known not in self._states)
        return KnownProducers(
            tuple(row for row in rows if row[-1]),
            tuple(row for row in publishes if row[-1].last_offset < offset),
            after,
            told[-1] if len(told) < len(ids) else NO_PRODUCER_ID,
        )

    def _row_before(self, offset: int, producer_id: int) -> ProducerRow:
        state = self._states[producer_id]
        batches = state.batches
        if batches and batches[-1].last_offset >= offset:  # Most have written nothing since.
            batches = tuple(batch for batch in batches if batch.last_offset < offset)
        return producer_id, state.epoch, state.last_active_ms, batches

    def check(
        self,
        producer_id: int,
        epoch: int,
        base_sequence: int,
        count: int,
        *,
        log_start_offset: int = 0,
    ) -> Verdict:
        """Check a batch that a producer wants to append; changes nothing.

        An unknown producer may begin at a sequence other than 0 only if retention may have
        deleted its earlier batches (`log_start_offset` > 0).
        """
        if producer_id == NO_PRODUCER_ID:
            return _ACCEPT
        state = self._states.get(producer_id)
        if state is None:
            known_from_start = log_start_offset == 0
            return _in_order(producer_id, base_sequence, 0 if known_from_start else base_sequence)
        if epoch < state.epoch:
            return ProducerFenced(
                f"producer {producer_id} has epoch {state.epoch}, the batch states {epoch}"
            )
        if epoch > state.epoch:
            return _in_order(producer_id, base_sequence, 0)
        repeated = state.find(base_sequence, sequence_after(base_sequence, count - 1))
        if repeated is not None:
            return Duplicate(repeated.base_offset, repeated.last_offset)
        return _in_order(producer_id, base_sequence, state.expected_sequence)

    def is_ahead(self, producer_id: int, epoch: int, base_sequence: int) -> bool:
        """Tell whether a batch has to follow others of its producer that are not in the log yet.

        They may be on their way. Of a producer that is unknown, or begins an epoch, none are: it
        has only one batch in flight until that is acknowledged.
        """
        state = self._states.get(producer_id)
        if state is None or epoch != state.epoch or base_sequence < 0:
            return False
        return 0 < sequence_after(base_sequence, -state.expected_sequence) < _HALF_OF_SEQUENCES

    def apply(self, header: ProducerFields) -> None:
        """Record a batch that is now in the log; never refuses."""
        if header.producer_id == NO_PRODUCER_ID:
            return
        if header.producer_id >= FIRST_PUBLISHER_ID:
            self.publishes.apply(header)
            self._before.clear()
            self._undo_from = header.base_offset + 1
            return
        state = self._states.get(header.producer_id)
        self._note(header, state)
        if state is None or header.producer_epoch > state.epoch:
            state = self._states[header.producer_id] = ProducerState(header.producer_epoch)
        self._wrote[header.producer_id] = None
        if header.producer_epoch == state.epoch and header.base_sequence >= 0:
            first = header.base_sequence
            last = sequence_after(first, header.record_count - 1)
            state.remember(SequencedBatch(first, last, header.base_offset))

    def insert(self, found: ProducerStates) -> None:
        """Add what batches tell that lie before others which are in the table already.

        `found` is the table of these batches alone. They cannot be undone one by one.
        """
        for producer_id, other in found._states.items():
            state = self._states.get(producer_id)
            if state is None or other.epoch > state.epoch:
                self._states[producer_id] = other
            elif other.epoch == state.epoch:
                batches = {batch.base_offset: batch for batch in (*state.batches, *other.batches)}
                state.batches = tuple(batches[at] for at in sorted(batches)[-REMEMBERED_BATCHES:])
            self._wrote[producer_id] = None
        self.publishes.insert(found.publishes)
        self._undo_from = max(self._behind_last, found._behind_last)
        self._before.clear()

    @property
    def _behind_last(self) -> int:
        """An offset behind which there is no batch with a producer."""
        return self._before[-1].offset + 1 if self._before else self._undo_from

    def read_again(self, number: int, up_to: int) -> None:
        """Note that the batches of an unread range are in the table, as far as `up_to`."""
        end = self.unread[number][1]
        self.unread[number : number + 1] = [(up_to, end)] if up_to < end else []

    def keep_unread(self, start: int, end: int) -> None:
        """Forget the unread offsets that the log does not have: it goes from `start` to `end`."""
        clipped = [(max(first, start), min(last, end)) for first, last in self.unread]
        self.unread = [(first, last) for first, last in clipped if first < last]

    def _note(self, header: ProducerFields, state: ProducerState | None) -> None:
        if len(self._before) == MOST_UNDONE:
            self._undo_from = self._before.pop(0).offset + 1
        epoch, batches = (None, ()) if state is None else (state.epoch, state.batches)
        self._before.append(_Before(header.base_offset, header.producer_id, epoch, batches))

    def truncate_to(self, end: int) -> bool:
        """Forget the batches from offset `end` on; return whether they are known.

        If they are not, the table is that of the longer log: read the shorter one again.
        """
        if end < self._undo_from:
            if self.reaches(end):
                return False
            self._before.clear()
            self._undo_from = end
        while self._before and self._before[-1].offset >= end:
            self._undo(self._before.pop())
        self.keep_unread(0, end)
        return True

    def _undo(self, before: _Before) -> None:
        state = self._states.get(before.producer_id)
        if state is None:  # It has expired meanwhile.
            return
        if before.epoch is None:
            del self._states[before.producer_id]
        else:
            state.epoch, state.batches = before.epoch, before.batches

    def mark_active(self, now_ms: int) -> None:
        """Set the time of every producer that wrote since the last call to `now_ms` (monotonic).

        Producers from a snapshot count as if they had written just now. The timestamps of records
        say nothing about it: those from an archive are old, and a producer that states times in
        the future would never be forgotten.
        """
        for producer_id in self._wrote:
            state = self._states.get(producer_id)
            if state is not None:
                state.last_active_ms = now_ms
        self._wrote.clear()
        self.publishes.mark_active(now_ms)

    def expire(self, before_ms: int) -> None:
        """Remove the producers that were last active before `before_ms` (monotonic).

        Applications that publish expire separately; see `Publishes.expire`. Call `mark_active`
        before.
        """
        for producer_id in [p for p, s in self._states.items() if s.last_active_ms < before_ms]:
            del self._states[producer_id]

    def reaches(self, offset: int) -> bool:
        """Return whether any remembered batch ends at or after `offset`."""
        return self.publishes.reaches(offset) or any(
            state.batches and state.batches[-1].last_offset >= offset
            for state in self._states.values()
        )


def _in_order(producer_id: int, base_sequence: int, expected: int) -> Verdict:
    if base_sequence == expected:
        return _ACCEPT
    return OutOfOrderSequence(
        f"producer {producer_id} sent sequence {base_sequence}, expected {expected}",
        expected_sequence=expected,
    )
