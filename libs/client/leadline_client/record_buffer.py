"""The records of one partition that were read but not delivered."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from leadline_client.codec import SupportsPlace

R = TypeVar("R", bound=SupportsPlace)


class RecordBuffer(Generic[R]):
    """Records in order, of which only those of one list are decoded.

    The next list is decoded once all records of this one are delivered. So few records exist at a
    time: the memory of delivered ones is used again while it is in the processor's cache, and the
    garbage collector has little to look at.
    """

    __slots__ = ("_chunk", "_later", "_next")

    def __init__(self) -> None:
        self.clear()

    def __bool__(self) -> bool:
        return self._next < len(self._chunk)

    @property
    def first(self) -> R:
        """The next record to deliver. Raises IndexError if there is none."""
        return self._chunk[self._next]

    def fill(self, chunks: Iterator[list[R]]) -> None:
        """Put lists of records, none of them empty, into an empty buffer."""
        self._later = chunks
        self._chunk, self._next = next(chunks, []), 0

    def some(self, limit: int) -> list[R]:
        """Return up to `limit` of the next records: those that are decoded, and at least one."""
        return self._chunk[self._next : self._next + limit]

    def drop(self, count: int) -> None:
        """Remove records that `some` has returned."""
        self._next += count
        if self._next == len(self._chunk):
            self.fill(self._later)

    def clear(self) -> None:
        """Remove all records; none of them is decoded any more."""
        self.fill(iter(()))
