"""The batches of one partition that are in flight, and what follows when one fails. Pure: no IO.

Batches leave in the order of their sequence numbers, and a broker appends them in that order only.
So those that are appended are always the first of those in flight. A batch that fails stops the
partition: nothing new leaves until all others have an outcome. Those that were certainly not
appended, because one before them is missing, are then numbered again and sent first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import takewhile
from typing import Final, Generic

from leadline_client.accumulator import ProducerBatch, Token
from leadline_client.errors import (
    ForeignProducerId,
    LeadlineError,
    OutOfOrderSequence,
    ProducerFenced,
)

MOST_IN_FLIGHT: Final = 5
"""A broker recognizes that many of a producer's latest batches when they are repeated."""


class BatchOutcome(Enum):
    """What became of a batch in flight."""

    ACKNOWLEDGED = auto()
    REFUSED = auto()
    """It was certainly not appended: its sequence numbers are free."""
    IN_DOUBT = auto()
    """It may have been appended, or its producer id was refused: the numbers are lost."""
    AGAIN = auto()
    """It was certainly not appended, and is sent with other numbers or as other batches."""


@dataclass(slots=True, eq=False)
class InFlightBatch(Generic[Token]):
    """A batch that was sent, with the first of its sequence numbers; 0 without idempotence."""

    batch: ProducerBatch[Token]
    base_sequence: int = 0
    outcome: BatchOutcome | None = None
    again: Sequence[ProducerBatch[Token]] = ()


class BatchWindow(Generic[Token]):
    """The batches in flight of one partition, at most `limit`, in the order of their numbers.

    An acknowledged batch stays until those before it are acknowledged: a broker recognizes
    repetitions of the latest `MOST_IN_FLIGHT` batches only, so none may be further ahead of the
    oldest one without an outcome. After a pause, one batch is alone until it is acknowledged: a
    broker that does not know the producer might take any other for the first one.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._in_flight: deque[InFlightBatch[Token]] = deque()
        self._again: deque[ProducerBatch[Token]] = deque()
        self._known = False
        self._failed = False

    def __bool__(self) -> bool:
        return bool(self._in_flight or self._again)

    @property
    def in_flight(self) -> int:
        """How many batches count for the limit."""
        return len(self._in_flight)

    @property
    def has_room(self) -> bool:
        """Whether another batch may be sent."""
        if not self._in_flight:
            return True
        return self._known and not self._failed and len(self._in_flight) < self._limit

    @property
    def has_again(self) -> bool:
        """Whether batches wait that were in flight before; they go before all others."""
        return bool(self._again)

    @property
    def has_failed(self) -> bool:
        """Whether a batch has failed, and no other may be sent until `settle`."""
        return self._failed

    @property
    def can_settle(self) -> bool:
        """Whether a batch has failed and all others have an outcome, too."""
        return self._failed and all(one.outcome is not None for one in self._in_flight)

    def take_again(self) -> ProducerBatch[Token]:
        """Remove and return the first batch that is to be sent again."""
        return self._again.popleft()

    def add(self, batch: ProducerBatch[Token]) -> InFlightBatch[Token]:
        """Add a batch that is sent after all others; its caller sets the sequence number."""
        one = InFlightBatch(batch)
        self._in_flight.append(one)
        return one

    def acknowledged_before(self, one: InFlightBatch[Token]) -> bool | None:
        """Tell whether all batches before it are acknowledged; None if that may still happen."""
        earlier = [
            each.outcome for each in takewhile(lambda each: each is not one, self._in_flight)
        ]
        if any(outcome not in (None, BatchOutcome.ACKNOWLEDGED) for outcome in earlier):
            return False
        return None if None in earlier else True

    def resolve(
        self,
        one: InFlightBatch[Token],
        outcome: BatchOutcome,
        again: Iterable[ProducerBatch[Token]] = (),
    ) -> None:
        """Note the outcome of a batch in flight; `again` are the batches to send for it."""
        one.outcome, one.again = outcome, tuple(again)
        if outcome is not BatchOutcome.ACKNOWLEDGED:
            self._failed = True
            return
        self._known = True
        while self._in_flight and self._in_flight[0].outcome is BatchOutcome.ACKNOWLEDGED:
            self._in_flight.popleft()

    def settle(self) -> int | None:
        """Go on after a failure, once `can_settle`: return with which sequence number.

        The number is that of the first batch that failed. It is free unless a batch is in doubt, or
        a later one was acknowledged: the result is None then, and another producer id is needed.
        """
        failed = list(self._in_flight)
        lost = {BatchOutcome.IN_DOUBT, BatchOutcome.ACKNOWLEDGED} & {one.outcome for one in failed}
        self._again.extendleft(reversed([batch for one in failed for batch in one.again]))
        self._in_flight.clear()
        self._failed = self._known = False
        return None if lost else failed[0].base_sequence

    def rest(self) -> None:
        """Note that nothing is left to send: the next batch is alone again.

        Retention may delete the producer's records by then, and a new leader not know it.
        """
        self._known = False

    def unfinished(self) -> list[ProducerBatch[Token]]:
        """Return the batches without a final outcome, in their order."""
        batches: list[ProducerBatch[Token]] = []
        for one in self._in_flight:
            batches.extend([one.batch] if one.outcome is None else one.again)
        return batches + list(self._again)

    def clear(self) -> None:
        """Forget all batches, whose records nobody waits for any more."""
        self._in_flight.clear()
        self._again.clear()
        self._failed = self._known = False


_NUMBERS_REFUSED: Final = (OutOfOrderSequence, ProducerFenced, ForeignProducerId)


def refuses_numbers(error: LeadlineError) -> bool:
    """Tell whether the last answer to a batch refused its sequence numbers or its producer id.

    That may only follow from what becomes of the batches before it.
    """
    return isinstance(error, _NUMBERS_REFUSED) or isinstance(error.__cause__, _NUMBERS_REFUSED)


def forgets_producer(error: Exception) -> bool:
    """Tell whether a leader refused a batch because it has nothing of its producer in the log.

    It has dropped the state of a producer that was idle, or the topic was recreated.
    """
    return isinstance(error, OutOfOrderSequence) and error.details.get("expected_sequence") == 0
