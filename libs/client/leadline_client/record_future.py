"""Futures of single records that share what became of their batch.

A batch has thousands of records with one outcome. So a record's future is a number within its
batch; a future of the event loop is made only for a record that somebody waits for. The garbage
collector would otherwise spend more time with futures than the producer with records. (Kafka's
Java producer does it likewise, in `FutureRecordMetadata`.)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence
from contextvars import Context
from typing import TypeAlias

from leadline_client.sent_records import Outcome, RecordMetadata, metadata_of

LoopFuture: TypeAlias = "asyncio.Future[RecordMetadata]"


class SharedOutcome:
    """What becomes of records of one batch that were added one after another.

    Used like the future of a record by what sends the batch. A batch that is divided has two
    halves, which have outcomes of their own. If nobody ever asks for an error, the event loop
    reports it once nobody can any more, as it does for its own futures.
    """

    __slots__ = ("_asked", "_halves", "_loop", "_outcome", "_waiting", "count")

    def __init__(self, loop: asyncio.AbstractEventLoop, count: int = 0) -> None:
        self.count = count
        self._loop = loop
        self._outcome: Outcome | None = None
        self._halves: tuple[SharedOutcome, SharedOutcome] | None = None
        self._waiting: list[tuple[int, LoopFuture]] = []
        self._asked = False

    def add(self) -> RecordFuture:
        """Count one record more; return its future."""
        future = RecordFuture(self, self.count)
        self.count += 1
        return future

    def knows(self, index: int) -> bool:
        """Tell whether the outcome of one record is known."""
        part, _ = self._part(index)
        return part._outcome is not None

    def of(self, index: int) -> Outcome | None:
        """Return the outcome of one record; None while it is not known."""
        part, place = self._part(index)
        outcome = part._outcome
        if not isinstance(outcome, RecordMetadata):
            return outcome
        topic, partition, first = outcome
        return metadata_of((topic, partition, first + place if first >= 0 else first))

    def future(self, index: int) -> LoopFuture:
        """Return a future of the event loop for one record."""
        part, place = self._part(index)
        part._asked = True
        future = self._loop.create_future()
        outcome = self.of(index)
        if outcome is None:
            part._waiting.append((place, future))
        else:
            _complete(future, outcome)
        return future

    def halves(self) -> Sequence[SharedOutcome]:
        """Return the outcomes of the two halves of the records, of which there are several."""
        middle = self.count // 2
        sizes = middle, self.count - middle
        first, second = (SharedOutcome(self._loop, size) for size in sizes)
        self._halves = first, second
        waiting, self._waiting = self._waiting, []
        for index, future in waiting:
            part, place = self._part(index)
            part._asked = True
            part._waiting.append((place, future))
        return self._halves

    def done(self) -> bool:
        """Tell whether the outcome is known."""
        return self._outcome is not None

    def set_result(self, first: RecordMetadata) -> None:
        """Note that the records are acknowledged, with the place of the first one."""
        self._settle(first)

    def set_exception(self, error: BaseException) -> None:
        """Note that the batch has failed."""
        self._settle(error)

    def cancel(self) -> bool:
        """Note that nobody waits for an acknowledgement any more."""
        if self._outcome is None:
            self._settle(asyncio.CancelledError())
        return True

    def _settle(self, outcome: Outcome) -> None:
        self._outcome = outcome
        waiting, self._waiting = self._waiting, []
        for index, future in waiting:
            if not future.done() and (own := self.of(index)) is not None:
                _complete(future, own)

    def _part(self, index: int) -> tuple[SharedOutcome, int]:
        """Return the batch that a record is in at last, and its number there."""
        part = self
        while part._halves is not None:
            first, second = part._halves
            part, index = (first, index) if index < first.count else (second, index - first.count)
        return part, index

    def __del__(self) -> None:
        if isinstance(self._outcome, Exception) and not self._asked:
            self._loop.call_exception_handler(
                {
                    "message": f"{self.count} records failed, and nobody asked for their outcome",
                    "exception": self._outcome,
                }
            )


class RecordFuture:
    """The acknowledgement of one record, to be awaited; it has the methods of a future.

    Its result is where the record is, its exception the error of its batch. If the producer was
    aborted, it is cancelled, and the outcome unknown. Cancelling it takes nothing back: the record
    is sent all the same. Callbacks are given the future of the event loop that it stands for.
    """

    __slots__ = ("_future", "_index", "_shared")

    def __init__(self, shared: SharedOutcome, index: int) -> None:
        self._shared = shared
        self._index = index
        self._future: LoopFuture | None = None

    def __await__(self) -> Generator[object, None, RecordMetadata]:
        return self._of_loop().__await__()

    def done(self) -> bool:
        """Tell whether the record is acknowledged, has failed, or was cancelled."""
        if self._future is not None:
            return self._future.done()
        return self._shared.knows(self._index)

    def result(self) -> RecordMetadata:
        """Return where the record is.

        Raises:
            LeadlineError: it failed.
            asyncio.CancelledError: it was cancelled.
            asyncio.InvalidStateError: its outcome is not known yet.

        """
        return self._of_loop().result()

    def exception(self) -> BaseException | None:
        """Return the error with which the record failed, if it did; raises as `result` does."""
        return self._of_loop().exception()

    def cancelled(self) -> bool:
        """Tell whether the record was cancelled."""
        return self._of_loop().cancelled()

    def cancel(self, msg: object = None) -> bool:
        """Stop waiting for the record; return whether its outcome was not known yet."""
        return self._of_loop().cancel(msg)

    def add_done_callback(
        self, callback: Callable[[LoopFuture], object], *, context: Context | None = None
    ) -> None:
        """Have `callback` called soon after the outcome is known."""
        self._of_loop().add_done_callback(callback, context=context)

    def remove_done_callback(self, callback: Callable[[LoopFuture], object]) -> int:
        """Remove a callback; return how often it was there."""
        return self._of_loop().remove_done_callback(callback)

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """Return the event loop of the producer."""
        return self._of_loop().get_loop()

    def _of_loop(self) -> LoopFuture:
        if self._future is None:
            self._future = self._shared.future(self._index)
        return self._future


def _complete(future: LoopFuture, outcome: Outcome) -> None:
    if isinstance(outcome, RecordMetadata):
        future.set_result(outcome)
    elif isinstance(outcome, asyncio.CancelledError):
        future.cancel()
    else:
        future.set_exception(outcome)
