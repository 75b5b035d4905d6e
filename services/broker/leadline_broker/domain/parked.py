"""Produces that wait to be committed, by the end offsets of their records."""

from __future__ import annotations

from collections import deque

from leadline_broker.domain.effects import Acknowledge, Effect, FailAck
from leadline_client.errors import LeadershipLost


class ParkedAcks:
    """The (end offset, token) pairs of one replica, over all its roles.

    They come in the order of their offsets, but for duplicates of earlier
    batches, which may lie below.
    """

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, int]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, end_offset: int, token: int) -> None:
        """Park a produce until every record below `end_offset` is committed."""
        self._waiting.append((end_offset, token))

    def remove(self, token: int) -> None:
        """Forget a produce whose caller has given up."""
        self._waiting = deque(item for item in self._waiting if item[1] != token)

    def acknowledge_up_to(self, high_watermark: int) -> list[Effect]:
        """Release the produces whose records are committed."""
        acknowledged: list[Effect] = []
        while self._waiting and self._waiting[0][0] <= high_watermark:
            acknowledged.append(Acknowledge(self._waiting.popleft()[1]))
        return acknowledged

    def fail_beyond(self, end_offset: int) -> list[Effect]:
        """Give up the produces whose records are no longer in the log: it ends there now."""
        error = LeadershipLost("leadership moved before the records were committed")
        failed: list[Effect] = [
            FailAck(token, error) for end, token in self._waiting if end > end_offset
        ]
        self._waiting = deque(item for item in self._waiting if item[0] <= end_offset)
        return failed
