"""Producers of unique values with acks=all, idempotent ones that repeat and others; and readers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from leadline_client import batches
from leadline_client.errors import LeadlineError, OffsetOutOfRange, OutcomeUnknown
from leadline_common.rpc import MSGPACK
from tests.runtime_simulation.messages import (
    FETCH_PATH,
    PRODUCE_PATH,
    PRODUCER_ID_PATH,
    Fetch,
    Fetched,
    Produce,
    Produced,
    ProducerId,
)
from tests.runtime_simulation.network import Network
from tests.runtime_simulation.process import Process
from tests.runtime_simulation.world import World
from tests.support.checks.history import History, Read

TIMEOUT_MS = 800
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Record:
    """A record to send."""

    value: bytes
    key: bytes | None = None
    timestamp: int | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(eq=False)
class Client:
    """Sends requests about one partition to whichever broker says that it leads."""

    world: World
    network: Network
    history: History
    number: int
    topic: str
    partition: int
    brokers: list[str]
    _leader: str = field(default="", init=False)

    async def ask_once(
        self, path: str, body: bytes, kind: type[_T], *, repeatable: bool = True
    ) -> _T:
        """Send a request to the leader that is known.

        Raises:
            LeadlineError: it was refused, or its outcome is unknown.

        """
        to = self._leader or self.world.random.choice(self.brokers)
        try:
            answer = await self.network.post(
                to, path, body, MSGPACK, TIMEOUT_MS / 1000 * 1.5, repeatable=repeatable
            )
        except OutcomeUnknown:
            self._leader = ""
            raise
        except LeadlineError as refusal:
            hint = refusal.leader
            named = f"broker-{hint.id}" if hint is not None and hint.id >= 0 else ""
            self._leader = named if named != self._leader else ""
            raise
        self._leader = to
        return msgspec.msgpack.decode(answer, type=kind)

    async def pause(self) -> None:
        """Wait a little before another attempt."""
        await asyncio.sleep(self.world.between(0.01, 0.1))


@dataclass(eq=False, kw_only=True)
class Producer(Client):
    """Sends one batch after another."""

    pause_s: float
    idempotent: bool
    on_acknowledged: Callable[[Producer], object]
    acked: int = field(default=0, init=False)
    sent: int = field(default=0, init=False)
    _task: asyncio.Task[None] | None = field(default=None, init=False)
    _stopping: bool = field(default=False, init=False)
    _sequence: int = field(default=0, init=False)
    _producer_id: int = field(default=-1, init=False)

    def start(self) -> None:
        """Start the producer's process."""
        self._task = self.world.loop.in_process(Process(f"producer-{self.number}"), self._run())

    def stop(self) -> None:
        """Send nothing new any more."""
        self._stopping = True

    @property
    def busy(self) -> bool:
        """Whether the outcome of a batch is still open."""
        return self._task is not None and not self._task.done()

    async def _run(self) -> None:
        while not self._stopping:
            await asyncio.sleep(self.world.between(0, 2 * self.pause_s))
            await self._send_batch(1 + self.world.random.randrange(3))

    async def _send_batch(self, count: int) -> None:
        if self.idempotent and self._producer_id < 0:
            self._producer_id = (await self._ask(PRODUCER_ID_PATH, b"\x80", ProducerId)).id
            self._sequence = 0
        values = [f"p{self.number}-{self.sent + index}" for index in range(count)]
        self.sent += count
        for value in values:
            self.history.send(value, self.topic, self.partition, self.number)
        try:
            produced = await self._ask(PRODUCE_PATH, self._encoded(values), Produced)
        except OutcomeUnknown:
            for value in values:
                self.history.give_up(value)
            return
        self._sequence += count
        for offset, value in enumerate(values, produced.base_offset):
            self.history.ack(value, offset)
        self.acked += count
        self.on_acknowledged(self)

    def _encoded(self, values: list[str]) -> bytes:
        batch = batches.encode(
            [Record(value.encode()) for value in values],
            now_ms=1,
            producer_id=self._producer_id,
            producer_epoch=0 if self.idempotent else -1,
            base_sequence=self._sequence if self.idempotent else -1,
        )
        return msgspec.msgpack.encode(Produce(self.topic, self.partition, bytes(batch), TIMEOUT_MS))

    async def _ask(self, path: str, body: bytes, kind: type[_T]) -> _T:
        """Send until it is known that it took effect; an unknown outcome ends it.

        An idempotent producer sends after an unknown outcome, too.

        Raises:
            OutcomeUnknown: it may have taken effect, and must not be repeated.

        """
        while True:
            try:
                return await self.ask_once(path, body, kind, repeatable=self.idempotent)
            except OutcomeUnknown:
                if not self.idempotent:
                    raise
            except LeadlineError as refusal:
                del refusal  # nothing was appended
            await self.pause()


@dataclass(eq=False)
class Reader(Client):
    """Reads a partition from its begin on, as a consumer that never goes back.

    `records` are (offset, value) in the order in which they came; `problems` what a consumer must
    never see.
    """

    records: list[tuple[int, Hashable]] = field(default_factory=list, init=False)
    problems: list[str] = field(default_factory=list, init=False)
    _offset: int = field(default=0, init=False)

    @property
    def position(self) -> int:
        """The offset that it reads next."""
        return self._offset

    def start(self) -> None:
        """Start the reader's process."""
        self.world.loop.in_process(Process(f"reader-{self.number}"), self._run())

    def as_read(self) -> Read:
        """Return what it has read."""
        return Read(
            (self.topic, self.partition), self.records, f"reader {self.number}", complete=False
        )

    async def _run(self) -> None:
        while True:
            body = msgspec.msgpack.encode(Fetch(self.topic, self.partition, self._offset, 300))
            try:
                self._take(await self.ask_once(FETCH_PATH, body, Fetched))
            except OffsetOutOfRange as error:
                self.problems.append(f"I8: reader {self.number} at {self._offset}: {error}")
                return
            except LeadlineError:
                await self.pause()

    def _take(self, fetched: Fetched) -> None:
        for record in batches.decode(fetched.records):
            if record.offset < self._offset:
                continue
            if record.offset > self._offset:
                self.problems.append(
                    f"I9: reader {self.number} skips from {self._offset} to {record.offset}"
                )
            self.records.append((record.offset, (record.value or b"").decode()))
            self._offset = record.offset + 1
