"""Readers that speak with brokers directly, and never go back."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from dataclasses import dataclass, field, replace

import msgspec

from leadline_client import batches
from leadline_client.batch_header import parse_headers
from leadline_client.errors import (
    CorruptBatch,
    LeadlineError,
    LogTruncated,
    OffsetOutOfRange,
    StorageFailed,
)
from tests.runtime_simulation.log_starts import LogStarts
from tests.runtime_simulation.messages import FETCH_PATH, Fetch, Fetched
from tests.runtime_simulation.process import Process
from tests.runtime_simulation.topics import name_of
from tests.runtime_simulation.unclean_elections import UncleanElections
from tests.runtime_simulation.workload import Client
from tests.support.checks.history import Read

_LONGEST_PAUSE_S = 4.0
TOLD = "a reader was told where its log was truncated"
NOT_SERVED = "a reader was not served what a disk cannot give"


@dataclass(eq=False)
class Reader(Client):
    """Reads a partition from its begin on, as a consumer that never goes back.

    It begins again when the topic was deleted and created again, or the partition removed and added
    again. It goes on at the log start when retention has removed what it would read next. `idle` is
    the probability that it pauses for long after an answer. `records` are (offset, value) in the
    order in which they came, of the incarnation `name`; `earlier` what was read of those before.
    Where there may be `unclean` elections it states the leader epoch of the record before. So it is
    told where the log differs from what it has read, which it forgets from there on.
    """

    log_starts: LogStarts
    idle: float
    unclean: UncleanElections | None = None
    records: list[tuple[int, Hashable]] = field(default_factory=list, init=False)
    earlier: list[Read] = field(default_factory=list, init=False)
    name: str = field(default="", init=False)
    _offset: int = field(default=0, init=False)
    _epochs: list[tuple[int, int]] = field(default_factory=list, init=False)
    """Of each batch that it has read without a gap its first offset, and its leader epoch."""

    @property
    def position(self) -> int:
        """The offset that it reads next."""
        return self._offset

    def start(self) -> None:
        """Start the reader's process."""
        self.world.loop.in_process(Process(f"reader-{self.number}"), self._run())

    def reads(self) -> list[Read]:
        """Return what it has read, by incarnation."""
        return [*self.earlier, self._as_read()] if self.name else self.earlier

    def _as_read(self) -> Read:
        place = (self.name, self.partition)
        return Read(place, self.records, f"reader {self.number}", complete=False)

    async def _run(self) -> None:
        while True:
            asked = self._offset
            last_epoch = self._epochs[-1][1] if self.unclean and self._epochs else None
            fetch = Fetch(self.topic, self.partition, asked, 300, last_epoch)
            body = msgspec.msgpack.encode(fetch)
            try:
                fetched = await self.ask_once(FETCH_PATH, body, Fetched)
                if asked == self._offset:  # Else it has begun again meanwhile.
                    self._take(fetched)
                if self.world.chance(self.idle):
                    await asyncio.sleep(self.world.between(0, _LONGEST_PAUSE_S))
            except OffsetOutOfRange as error:
                if not self._moved(error):
                    self.problems.append(f"I8: reader {self.number} at {self._offset}: {error}")
                    return
            except CorruptBatch as error:
                self.problems.append(f"reader {self.number} was served a damaged batch: {error}")
                return
            except LeadlineError as error:
                if isinstance(error, StorageFailed):
                    self.world.reached(NOT_SERVED)
                await self.pause()

    def _moved(self, error: OffsetOutOfRange) -> bool:
        """Go on where a refusal says; return whether it may be refused."""
        if isinstance(error, LogTruncated):
            return self._cut(error.details["divergence_offset"])
        log_start = error.details["log_start_offset"]
        if self.topics.name_now(self.place) != self.name:
            self._begin_again("")
            self._begin_at_start(log_start)
            return True
        return self._continue_at_start(log_start)

    def _cut(self, divergence: int) -> bool:
        """Forget what was read where the log differs by now; return whether it may differ."""
        if self.topics.name_now(self.place) != self.name:
            self._begin_again("")
            return True
        assert self.unclean is not None
        if divergence > self._offset or not self.unclean.count(self.name, self.partition):
            return False
        self.world.reached(TOLD)
        self.records = [one for one in self.records if one[0] < divergence]
        self.earlier = [
            replace(one, records=[each for each in one.records if each[0] < divergence])
            if one.partition[0] == self.name
            else one
            for one in self.earlier
        ]
        self._epochs = [one for one in self._epochs if one[0] < divergence]
        self._offset = divergence
        return True

    def look_again(self) -> None:
        """Begin again if the topic or partition is another one by now.

        Where its position happens to be the end of the new log, no answer would tell it.
        """
        if self.topics.name_now(self.place) != self.name:
            self._begin_again("")

    def _begin_again(self, name: str) -> None:
        """Read another incarnation from its begin, or whichever comes next."""
        if self.name:
            self.world.reached("a reader met a deleted topic")
            self.earlier.append(self._as_read())
        self.name, self._offset, self.records, self._epochs = name, 0, [], []

    def _begin_at_start(self, log_start: int) -> None:
        """Begin at a log start if it may be that of the incarnation that is there now."""
        name = self.topics.name_now(self.place)
        if 0 < log_start <= self.log_starts.highest(name, self.partition):
            self.name, self._offset = name, log_start

    def _continue_at_start(self, log_start: int) -> bool:
        """Go on at a log start beyond the position; return whether it may be one."""
        highest = self.log_starts.highest(self.name, self.partition)
        if not self._offset < log_start <= highest:
            return False
        self.world.reached("a reader continued at the log start")
        self.earlier.append(self._as_read())
        self._offset, self.records, self._epochs = log_start, [], []
        return True

    def _take(self, fetched: Fetched) -> None:
        name = self._name_of(fetched)
        if name != self.name:
            self._require_newer(name)
            at_begin = self._offset == 0
            self._begin_again(name)
            if not at_begin:
                return
        for header in parse_headers(fetched.records):
            self._epochs.append((header.base_offset, header.leader_epoch))
        for record in batches.decode(fetched.records):
            if record.offset < self._offset:
                continue
            if record.offset > self._offset:
                self.problems.append(
                    f"I9: reader {self.number} skips from {self._offset} to {record.offset}"
                )
            self.records.append((record.offset, (record.value or b"").decode()))
            self._offset = record.offset + 1

    def _name_of(self, fetched: Fetched) -> str:
        """Return which incarnation has answered, by the leader epochs of the records."""
        headers = list(parse_headers(fetched.records))
        if headers:
            return self.topics.name_at(self.place, fetched.topic_id, headers[-1].leader_epoch)
        # Of an answer without records only the topic is known.
        topic, now = name_of(self.topic, fetched.topic_id), self.topics.name_now(self.place)
        return next((name for name in (self.name, now) if name.startswith(topic)), topic)

    def _require_newer(self, name: str) -> None:
        """Note it if a topic is served again after a later one of its name (F25)."""
        if name in {read.partition[0] for read in self.earlier}:
            self.problems.append(f"I3: reader {self.number} got deleted topic {name} again")
