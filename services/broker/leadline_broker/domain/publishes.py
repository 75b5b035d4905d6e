"""Publishes: batches of an application that enter a log exactly once.

An application publishes numbered batches, each in pieces (record batches). The producer
fields of a piece say which application wrote which batch, so the replicated log itself is
the record: any leader rebuilds this table from its log and recognizes a batch that is
published again.

    producer id     bit 62, and 62 bits of a hash of the application's id
    base sequence   the number of the batch
    producer epoch  the position of the piece in the batch, and a flag on the last piece

Allocated producer ids (`producer_ids`) never reach bit 62.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from operator import attrgetter
from typing import Final, NamedTuple, Protocol

from leadline_client.errors import PublishMismatch, PublishOutOfOrder

FIRST_PUBLISHER_ID: Final = 1 << 62
"""Producer ids from this one on belong to applications that publish."""
LAST_BATCH: Final = 2**31 - 1
"""The highest number of a batch."""
MOST_PIECES: Final = 0x4000
"""How many pieces a batch may have: their positions fill the lower 14 bits."""
_LAST_PIECE: Final = 0x4000


class ProducerFields(Protocol):
    """The fields of a batch header that say who wrote the batch.

    The producer id decides what epoch and sequence mean: see `producers` for idempotent
    producers, and this module for applications.
    """

    @property
    def producer_id(self) -> int:
        """The producer or the application (`publisher_id`), or `NO_PRODUCER_ID`."""

    @property
    def producer_epoch(self) -> int:
        """The incarnation of the producer, or the position of the piece (`piece_epoch`)."""

    @property
    def base_sequence(self) -> int:
        """The sequence number of the first record, negative for none; or the batch's number."""

    @property
    def record_count(self) -> int:
        """Records in the batch."""

    @property
    def base_offset(self) -> int:
        """The offset of the first record."""


def publisher_id(app: str) -> int:
    """Return the producer id under which an application's pieces are stored.

    Two applications get the same one with a probability of 1 in 2^62.
    """
    digest = blake2b(app.encode(), digest_size=8).digest()
    return FIRST_PUBLISHER_ID | (int.from_bytes(digest, "big") & (FIRST_PUBLISHER_ID - 1))


def piece_epoch(position: int, pieces: int) -> int:
    """Return the producer epoch of the piece at `position`, from 0, in a batch of `pieces`."""
    return position | (_LAST_PIECE if position == pieces - 1 else 0)


class Publish(NamedTuple):
    """The latest batch of one application, as far as it is in the log.

    `counts` are the record counts of the pieces from position `first_piece` on, kept while
    the batch is incomplete; retention may have deleted earlier pieces. All known pieces lie
    between `base_offset` and `last_offset`, inclusive.
    """

    batch: int
    first_piece: int
    counts: tuple[int, ...]
    base_offset: int
    last_offset: int
    complete: bool

    @property
    def next_piece(self) -> int:
        """The position of the next piece."""
        return self.first_piece + len(self.counts)


PublishRow = tuple[int, int, Publish]
"""Publisher id, when it last published, its latest batch: a row of a snapshot."""


@dataclass(frozen=True, slots=True)
class AppendFrom:
    """Append the pieces from this position on."""

    piece: int


@dataclass(frozen=True, slots=True)
class Published:
    """The batch is already in the log.

    The batch lies below `end_offset`, so it is committed once the high watermark reaches
    that offset. `base_offset` and `last_offset` are None if they are no longer known.
    """

    end_offset: int
    base_offset: int | None = None
    last_offset: int | None = None


PublishVerdict = AppendFrom | Published | PublishMismatch | PublishOutOfOrder
"""A refusal is the error to answer with; it is returned, not raised."""


class Publishes:
    """The applications that publish to one log, each with its latest batch.

    Leader and followers alike apply every piece in log order.
    """

    __slots__ = ("_latest", "_published_ms", "_wrote")

    def __init__(self, rows: Iterable[PublishRow] = ()) -> None:
        self._latest: dict[int, Publish] = {}
        self._published_ms: dict[int, int] = {}
        self._wrote: dict[int, None] = {}
        for identity, published_ms, publish in rows:
            self._latest[identity] = Publish(*publish)
            self._published_ms[identity] = published_ms
            self._wrote[identity] = None

    def __len__(self) -> int:
        return len(self._latest)

    def latest(self, identity: int) -> Publish | None:
        """Return the latest batch of an application."""
        return self._latest.get(identity)

    def ids(self) -> Iterable[int]:
        """Return the publisher ids of the applications."""
        return self._latest.keys()

    def row(self, identity: int) -> PublishRow:
        """Return the row of an application that is known."""
        return identity, self._published_ms[identity], self._latest[identity]

    def rows(self) -> list[PublishRow]:
        """Return the whole table as plain values; `Publishes(rows)` restores it."""
        return [self.row(identity) for identity in self._latest]

    def settled(self, identity: int, batch: int) -> PublishVerdict | None:
        """Return the verdict that follows from the number alone, or None if the pieces decide."""
        known = self._latest.get(identity)
        if known is None or (batch > known.batch and known.complete):
            return None
        if batch == known.batch and not known.complete:
            return None
        if batch == known.batch:
            base_offset = known.base_offset if known.first_piece == 0 else None
            return Published(known.last_offset + 1, base_offset, known.last_offset)
        if known.complete:
            return Published(known.base_offset)
        return PublishOutOfOrder(
            f"batch {known.batch} is incomplete: publish it again before batch {batch}",
            batch=known.batch,
        )

    def check(self, identity: int, batch: int, counts: Sequence[int]) -> PublishVerdict:
        """Check a batch whose pieces have `counts` records; changes nothing.

        A batch that a former leader left incomplete is continued if its pieces in the log
        have the same record counts as those published now.
        """
        settled = self.settled(identity, batch)
        if settled is not None:
            return settled
        known = self._latest.get(identity)
        if known is None or known.batch != batch:
            return AppendFrom(0)
        same = tuple(counts[known.first_piece : known.next_piece]) == known.counts
        if same and known.next_piece < len(counts):
            return AppendFrom(known.next_piece)
        return PublishMismatch(
            f"batch {batch} is incomplete, and its pieces differ from those published before",
            batch=batch,
            published_pieces=known.next_piece,
        )

    def apply(self, header: ProducerFields) -> None:
        """Record a piece that is now in the log; never refuses."""
        identity, position = header.producer_id, header.producer_epoch & (_LAST_PIECE - 1)
        last_offset = header.base_offset + header.record_count - 1
        complete = bool(header.producer_epoch & _LAST_PIECE)
        known = self._latest.get(identity)
        first_piece, base_offset = position, header.base_offset
        counts: tuple[int, ...] = (header.record_count,)
        continues = known is not None and known.batch == header.base_sequence
        if known is not None and continues and position == known.next_piece:
            first_piece, base_offset = known.first_piece, known.base_offset
            counts = (*known.counts, header.record_count)
        self._latest[identity] = Publish(
            header.base_sequence,
            first_piece,
            () if complete else counts,
            base_offset,
            last_offset,
            complete,
        )
        self._published_ms.setdefault(identity, -1)
        self._wrote[identity] = None

    def insert(self, found: Publishes) -> None:
        """Add what pieces tell that lie before others which are in the table already.

        `found` is the table of these pieces alone.
        """
        for identity, other in found._latest.items():
            known = self._latest.get(identity)
            self._latest[identity] = other if known is None else _later(known, other)
            self._published_ms.setdefault(identity, -1)
            self._wrote[identity] = None

    def mark_active(self, now_ms: int) -> None:
        """Set the (monotonic) time of what published since the last call to `now_ms`.

        The timestamps of its records do not matter; see `ProducerStates.mark_active`.
        """
        for identity in self._wrote:
            if identity in self._published_ms:
                self._published_ms[identity] = now_ms
        self._wrote.clear()

    def expire(self, before_ms: int) -> None:
        """Remove the applications that last published before `before_ms` (monotonic).

        Call `mark_active` before.
        """
        for identity in [key for key, at_ms in self._published_ms.items() if at_ms < before_ms]:
            del self._latest[identity], self._published_ms[identity]

    def reaches(self, offset: int) -> bool:
        """Return whether any known piece ends at or after `offset`."""
        return any(publish.last_offset >= offset for publish in self._latest.values())


def _later(one: Publish, other: Publish) -> Publish:
    """Return the later of two parts of a log, joined if they are of one batch and adjacent."""
    earlier, later = sorted((one, other), key=attrgetter("last_offset"))
    if earlier.batch != later.batch or earlier.complete:
        return later
    if earlier.next_piece != later.first_piece:
        return later
    return later._replace(
        first_piece=earlier.first_piece,
        counts=() if later.complete else earlier.counts + later.counts,
        base_offset=earlier.base_offset,
    )
