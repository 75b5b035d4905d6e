"""Publishes: batches of an application that enter a log exactly once.

An application appends its numbered batches, each in pieces (record batches). Who
appended what is written into the producer fields of the pieces themselves, so the
replicated log is the memory: any leader rebuilds this table from it, and knows a
batch that is published again.

    producer id     bit 62, and 62 bits of a hash of the application's id
    base sequence   the number of the batch
    producer epoch  the place of the piece in the batch, and a flag on the last

Allocated producer ids count up from 0 and never reach bit 62.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, NamedTuple

from leadline_broker.domain.producer_fields import ProducerFields
from leadline_client.errors import PublishMismatch, PublishOutOfOrder

FIRST_PUBLISHER_ID: Final = 1 << 62
"""Producer ids from here on belong to applications that publish."""
LAST_BATCH: Final = 2**31 - 1
MOST_PIECES: Final = 0x4000
"""How many pieces a batch may have: their places fill the lower 14 bits."""
_LAST_PIECE: Final = 0x4000


def publisher_id(app: str) -> int:
    """Return the producer id under which an application's pieces are stored.

    Two applications share one by a chance of one in 2^62.
    """
    digest = blake2b(app.encode(), digest_size=8).digest()
    return FIRST_PUBLISHER_ID | (int.from_bytes(digest, "big") & (FIRST_PUBLISHER_ID - 1))


def piece_epoch(place: int, pieces: int) -> int:
    """Return the producer epoch of the piece at `place` (from 0) of so many."""
    return place | (_LAST_PIECE if place == pieces - 1 else 0)


class Publish(NamedTuple):
    """The latest batch of one application, as far as it is in the log.

    `counts` are the records of the pieces from place `first_piece` on (those before
    may be gone with old segments), kept while the batch is not complete. Between
    `base_offset` and `last_offset`, inclusive, lie all of its pieces that are known.
    """

    batch: int
    first_piece: int
    counts: tuple[int, ...]
    base_offset: int
    last_offset: int
    complete: bool

    @property
    def next_piece(self) -> int:
        """The place of the piece that is to follow."""
        return self.first_piece + len(self.counts)


PublishRow = tuple[int, int, Publish]
"""Publisher id, when it was last heard of (Unix ms), its latest batch: a row of a snapshot."""


@dataclass(frozen=True, slots=True)
class AppendFrom:
    """Append the pieces from this place on."""

    piece: int


@dataclass(frozen=True, slots=True)
class Published:
    """The batch is in the log already.

    `end_offset` is an offset below which all of it lies: once that is committed, so
    is the batch. `base_offset` and `last_offset` are None where they are no longer
    known.
    """

    end_offset: int
    base_offset: int | None = None
    last_offset: int | None = None


PublishVerdict = AppendFrom | Published | PublishMismatch | PublishOutOfOrder
"""A refusal is the error to answer with; it is returned, not raised."""


class Publishes:
    """The applications that publish to one log, each with its latest batch.

    Fed with every piece in the order of the log, on leader and followers alike.
    """

    __slots__ = ("_heard", "_latest", "_wrote")

    def __init__(self, rows: Iterable[PublishRow] = ()) -> None:
        self._latest: dict[int, Publish] = {}
        self._heard: dict[int, int] = {}
        self._wrote: dict[int, None] = {}
        for identity, heard, publish in rows:
            self._latest[identity] = Publish(*publish)
            self._heard[identity] = heard
            self._wrote[identity] = None

    def __len__(self) -> int:
        return len(self._latest)

    def latest(self, identity: int) -> Publish | None:
        """Return what is known of the latest batch of an application."""
        return self._latest.get(identity)

    def rows(self) -> list[PublishRow]:
        """Return the whole table as plain values; `Publishes(rows)` restores it."""
        return [
            (identity, self._heard[identity], publish) for identity, publish in self._latest.items()
        ]

    def settled(self, identity: int, batch: int) -> PublishVerdict | None:
        """Judge by its number alone; None where it depends on the pieces, see `check`."""
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
            f"batch {known.batch} is published in part: publish it again before batch {batch}",
            batch=known.batch,
        )

    def check(self, identity: int, batch: int, counts: Sequence[int]) -> PublishVerdict:
        """Judge a batch whose pieces have so many records each; changes nothing.

        What a leader left unfinished is gone on with, if what there is has as many
        records in each piece as the replay.
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
            f"batch {batch} is published in part, with other pieces than these: its replay differs",
            batch=batch,
            published_pieces=known.next_piece,
        )

    def apply(self, header: ProducerFields) -> None:
        """Note a piece that is now in the log; what the log holds is never refused."""
        identity, place = header.producer_id, header.producer_epoch & (_LAST_PIECE - 1)
        last_offset = header.base_offset + header.record_count - 1
        complete = bool(header.producer_epoch & _LAST_PIECE)
        known = self._latest.get(identity)
        first_piece, base_offset = place, header.base_offset
        counts: tuple[int, ...] = (header.record_count,)
        if known is not None and known.batch == header.base_sequence and place == known.next_piece:
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
        self._heard[identity] = max(self._heard.get(identity, -1), header.max_timestamp)
        self._wrote[identity] = None

    def heard(self, now_ms: int) -> None:
        """Note that whoever published since the last call did so by now."""
        for identity in self._wrote:
            if identity in self._heard:
                self._heard[identity] = max(self._heard[identity], now_ms)
        self._wrote.clear()

    def expire(self, before_ms: int) -> None:
        """Forget the applications that were last heard of before `before_ms` (Unix time)."""
        for identity in [one for one, heard in self._heard.items() if heard < before_ms]:
            del self._latest[identity], self._heard[identity]

    def reaches(self, offset: int) -> bool:
        """Tell whether any known piece ends at or after `offset`."""
        return any(publish.last_offset >= offset for publish in self._latest.values())
