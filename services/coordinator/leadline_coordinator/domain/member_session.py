"""What was sent to a consumer over one channel, and how far it is known to have heard (R16).

A member consumes until the stop limit has passed since it *sent* the answer that was
acknowledged to it last. Counted from when that answer was *received*, the longer evict
limit so proves that it has stopped, whatever was lost on the way since.

A Stop that awaits its answer holds acknowledgements back: whoever goes on answering
pings, but cannot stop, is stopped by its own clock.
"""

from __future__ import annotations

from leadline_coordinator.domain.records import Partition


class MemberSession:
    """The bookkeeping of one channel, from its Hello at `now_ms`."""

    __slots__ = (
        "_answered",
        "acknowledged",
        "acknowledged_at_ms",
        "connection",
        "given",
        "last_id",
        "pinged_at_ms",
        "start_id",
        "stops",
    )

    def __init__(self, connection: int, now_ms: int) -> None:
        self.connection = connection
        self.last_id = 0
        self.acknowledged = 0
        self.acknowledged_at_ms = now_ms
        self.pinged_at_ms = now_ms
        self.given: frozenset[Partition] = frozenset()
        """What it was started with over this channel, and has not stopped since."""
        self.stops: dict[int, frozenset[Partition]] = {}
        self.start_id = 0
        self._answered = 0

    def next_id(self) -> int:
        """Return the id of the next frame."""
        self.last_id += 1
        return self.last_id

    def stop(self, partitions: frozenset[Partition]) -> int:
        """Note that a Stop is sent, and return its id."""
        number = self.next_id()
        self.stops[number] = partitions
        return number

    def start(self, part: frozenset[Partition]) -> int:
        """Note that a Start is sent, and return its id. An earlier one counts no longer."""
        self.start_id = self.next_id()
        self.given = part
        return self.start_id

    def on_answer(self, number: int, now_ms: int) -> None:
        """Take in that a frame was answered; a late or repeated answer changes nothing."""
        if not 0 < number <= self.last_id:
            return
        self._answered = max(self._answered, number)
        self._acknowledge(number, now_ms)

    def on_stopped(self, number: int, now_ms: int) -> frozenset[Partition]:
        """Take in the answer to a Stop; return what has stopped, nothing if it is not awaited."""
        stopped = self.stops.pop(number, frozenset())
        self.given -= stopped
        self.on_answer(number, now_ms)
        if stopped and not self.stops:
            self._acknowledge(self._answered, now_ms)
        return stopped

    def on_started(self, number: int, now_ms: int) -> bool:
        """Take in the answer to a Start; tell whether it is the one that counts."""
        self.on_answer(number, now_ms)
        awaited = number == self.start_id
        if awaited:
            self.start_id = 0
        return awaited

    def _acknowledge(self, number: int, now_ms: int) -> None:
        held_back = self.stops and number > min(self.stops)
        if number > self.acknowledged and not held_back:
            self.acknowledged = number
            self.acknowledged_at_ms = now_ms
