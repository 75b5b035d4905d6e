"""What becomes of records that were sent together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future as ThreadFuture
from typing import Final, NamedTuple, Protocol, TypeAlias

from leadline_client.named_tuples import maker_of


class RecordMetadata(NamedTuple):
    """The partition and offset of an acknowledged record; the offset is -1 with acks=0."""

    topic: str
    partition: int
    offset: int


metadata_of: Final = maker_of(RecordMetadata)

Outcome: TypeAlias = RecordMetadata | BaseException
"""Where a record is, or the error of its batch."""


class _Outcomes:
    """The outcomes of records, in their order; `on_complete` is called once all are known.

    If nobody has `asked` for them and some are errors, the event loop reports it once nobody can
    any more, as it does for its own futures.
    """

    def __init__(
        self,
        count: int,
        on_complete: Callable[[], None],
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.found: list[Outcome] = [asyncio.CancelledError()] * count
        self.asked = False
        self._left = count
        self._on_complete = on_complete
        self._loop = loop
        if not count:
            on_complete()

    def settle(self, indexes: Sequence[int], outcomes: Sequence[Outcome]) -> None:
        """Note the outcomes of the records at some indexes, each once."""
        for index, outcome in zip(indexes, outcomes, strict=True):
            self.found[index] = outcome
        self._left -= len(indexes)
        if not self._left:
            self._on_complete()

    def __del__(self) -> None:
        if self.asked or self._loop is None:
            return
        failures = [one for one in self.found if isinstance(one, Exception)]
        if failures:
            message = f"{len(failures)} records failed, and nobody asked for their outcome"
            told = {"message": message, "exception": failures[0]}
            self._loop.call_exception_handler(told)


class SentRun:
    """Records of one batch that follow one another in the log; used like the future of a record."""

    def __init__(self, outcomes: _Outcomes, indexes: Sequence[int]) -> None:
        self._outcomes = outcomes
        self._indexes = indexes
        self._done = False

    def halves(self) -> Sequence[SentRun]:
        """Return two runs that take the place of this one, which has several records."""
        middle = len(self._indexes) // 2
        parts = self._indexes[:middle], self._indexes[middle:]
        return [SentRun(self._outcomes, indexes) for indexes in parts]

    def done(self) -> bool:
        """Tell whether the outcome is known."""
        return self._done

    def set_result(self, first: RecordMetadata) -> None:
        """Note that the records are acknowledged, with the place of the first one."""
        topic, partition, offset = first
        step = 1 if offset >= 0 else 0
        places = range(len(self._indexes))
        self._settle([metadata_of((topic, partition, offset + step * place)) for place in places])

    def set_exception(self, error: BaseException) -> None:
        """Note that the batch has failed."""
        self._settle([error] * len(self._indexes))

    def cancel(self) -> bool:
        """Note that nobody waits for an acknowledgement any more."""
        if not self._done:
            self.set_exception(asyncio.CancelledError())
        return True

    def _settle(self, outcomes: Sequence[Outcome]) -> None:
        self._done = True
        self._outcomes.settle(self._indexes, outcomes)


class Completable(Protocol):
    """The part of a future that a producer uses."""

    def done(self) -> bool:
        """Tell whether the outcome is known."""
        ...

    def set_result(self, first: RecordMetadata, /) -> None:
        """Note that the records are acknowledged, with the place of the first one."""
        ...

    def set_exception(self, error: BaseException, /) -> None:
        """Note that the batch has failed."""
        ...

    def cancel(self) -> bool:
        """Note that nobody waits for an acknowledgement any more."""
        ...


class SentHalf:
    """One of the two batches that take the place of one; used like the future of a record.

    The future of the whole gets the place of the first half once both are acknowledged, in either
    order; or the error of either.
    """

    def __init__(self, whole: Completable) -> None:
        self._whole = whole
        self._halves: tuple[SentHalf, SentHalf] = (self, self)
        self._place: RecordMetadata | None = None

    @classmethod
    def both_of(cls, whole: Completable) -> Sequence[SentHalf]:
        """Return the two halves of what one future waits for."""
        first, second = halves = cls(whole), cls(whole)
        first._halves = second._halves = halves
        return halves

    def done(self) -> bool:
        """Tell whether the outcome is known."""
        return self._place is not None or self._whole.done()

    def set_result(self, place: RecordMetadata) -> None:
        """Note that this half is acknowledged, with the place of its first record."""
        self._place = place
        first, second = self._halves
        if first._place is not None and second._place is not None and not self._whole.done():
            self._whole.set_result(first._place)

    def set_exception(self, error: BaseException) -> None:
        """Note that this half has failed, and so the whole."""
        self._whole.set_exception(error)

    def cancel(self) -> bool:
        """Note that nobody waits for an acknowledgement any more."""
        return self._whole.cancel()


def _acknowledged(outcomes: Sequence[Outcome]) -> list[RecordMetadata]:
    """Return where all records are; raises the error of the first that failed."""
    records = []
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
        records.append(outcome)
    return records


class AsyncSentRecords:
    """The records of one `AsyncProducer.send_many`; await it for their metadata, in their order.

    That raises the error of the first record that failed, once all are acknowledged or have failed:
    `outcomes` tells of each.
    """

    def __init__(self, count: int) -> None:
        self._complete = asyncio.Event()
        self._outcomes = _Outcomes(count, self._complete.set, asyncio.get_running_loop())

    def __len__(self) -> int:
        return len(self._outcomes.found)

    def __await__(self) -> Generator[object, None, list[RecordMetadata]]:
        return _acknowledged((yield from self.outcomes().__await__()))

    async def outcomes(self) -> list[Outcome]:
        """Wait until each record is acknowledged or has failed; return the outcomes in order."""
        self._outcomes.asked = True
        await self._complete.wait()
        return list(self._outcomes.found)

    def run(self, indexes: Sequence[int]) -> SentRun:
        """Return what the records at some indexes are sent with."""
        return SentRun(self._outcomes, indexes)


class SentRecords:
    """The records of one `Producer.send_many`."""

    def __init__(self, count: int) -> None:
        self._complete: ThreadFuture[None] = ThreadFuture()
        self._outcomes = _Outcomes(count, lambda: self._complete.set_result(None))

    def __len__(self) -> int:
        return len(self._outcomes.found)

    def result(self, timeout_s: float | None = None) -> list[RecordMetadata]:
        """Return the metadata of the records, in their order, once all are acknowledged.

        Raises the error of the first record that failed, once none is under way any more;
        `outcomes` tells of each. Raises TimeoutError after `timeout_s`.
        """
        return _acknowledged(self.outcomes(timeout_s))

    def outcomes(self, timeout_s: float | None = None) -> list[Outcome]:
        """Wait until each record is acknowledged or has failed; return the outcomes in order.

        Raises TimeoutError after `timeout_s`.
        """
        try:
            self._complete.result(timeout_s)
        except TimeoutError:
            message = f"some records are not acknowledged after {timeout_s} s"
            raise TimeoutError(message) from None
        return list(self._outcomes.found)

    def run(self, indexes: Sequence[int]) -> SentRun:
        """Return what the records at some indexes are sent with."""
        return SentRun(self._outcomes, indexes)
